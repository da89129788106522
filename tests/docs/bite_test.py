"""bite_test.py SOURCE BUILD: pages with one fault each, which examples_test.py must find; and one without."""

import pathlib
import subprocess
import sys
import tempfile

FAULTS = [  # a page, what is said of it
    ("```sh\nfalse\n```\n", "exit status 1"),
    ("```sh\necho 1.00 two\n```\nprints\n```text\n1.20 two\n```\n", "+1.00 two"),
    ("```sh\nprintf 'a\\nb\\n'\n```\n```text\na\n...\nc\n```\n", "+b"),
    ("On a GPU:\n```sh gpu\npisa verify README.md --nonsense\n```\n", "exit status 1"),
    ("```sh gpu\npisa tune generated/hybrid.pack\n```\n", "nothing tells that it needs a GPU"),
    ("```sh build\n./run nothing\n```\n", "nothing is called nothing"),
    ("```pisa\nspec x { shape { heads 1 } }\n```\n", "head_dim"),
    ("```pisa refused\nspec x { shape { heads 1; head_dim 64 }; attend { all exact } }\n```\n```text\nno\n```\n", "exit status 0"),
    ("```c\n#include <pisa.h>\nint f(int x) { return 0; }\n```\n", "unused"),
    ("```python\nprint(1)\n```\n```text\n2\n```\n", "+1"),
    ("```python shown\n1 +\n```\n", "invalid syntax"),
    ("Save it.\n```c app.c\nint x;\n```\n", "does not say to save it"),
    ("<!-- c: run by no.test -->\n", "no test no.test"),
]
SOUND = "Save as `a.txt`:\n```text a.txt\nfile\n```\n```sh\ncat a.txt; echo 1.01 x; echo y\n```\n```text\nfile\n1.00   x\n...\n```\n"


def said_of(text, source, build):
    with tempfile.TemporaryDirectory() as place:
        page = pathlib.Path(place) / "page.md"
        page.write_text(text, encoding="utf-8")
        program = pathlib.Path(__file__).with_name("examples_test.py")
        command = [sys.executable, program, page, source, build]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main():
    source, build = sys.argv[1:3]
    sound = said_of(SOUND, source, build)
    errors = [f"a sound page: {sound.stdout}"] if sound.returncode else []
    for text, word in FAULTS:
        ran = said_of(text, source, build)
        if ran.returncode == 0 or word not in ran.stdout:
            errors.append(f"of\n{text}is said\n{ran.stdout}")
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
