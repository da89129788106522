"""examples_test.py PAGE SOURCE BUILD [gpu]: runs the examples of a page, in their order, as a reader would who stands in the root of
the repository with build/bin on PATH. Where a `text` block follows, it is what must be printed; `...` in it stands for anything. With
`gpu` there is one, and what needs it must work.

    sh            is typed                          sh gpu     must get as far as to look for a GPU, which is not there
    sh build      makes pisa itself: only looked at, other tests do it
    pisa          is accepted by `pisac check`      pisa refused  is not, with the message that follows
    c             is compiled, warnings are errors  python     runs, all of a page in one process
    python torch  runs where torch is               python shown  is compiled
    text, json, others: nothing
    WORD NAME.EXT also writes the block to that file, which the prose before it must name"""

import contextlib
import difflib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from pages import Page

LINKED = ("docs", "generated", "runtime", "specs", "run", "README.md")  # what a reader finds where he stands
NO_DEVICE = 2  # exit status of pisa
PROGRESS = r"\d+ of \d+, [\d:]+ left  "  # a bar where there is a terminal
SKIPPED = 77  # ctest's word for it (CMakeLists.txt)


class Wrong(Exception):
    pass


def same_line(expected, got):
    """`...` is anything; decimals may differ by a twentieth, since processors round differently; blanks in a row are one."""
    decimal = r"(?<![\d.])\d+\.\d+(?![\d.])"
    numbers = re.findall(decimal, expected)
    parts = re.split(decimal, " ".join(expected.split()))
    pattern = r"(\d+\.\d+)".join(re.escape(part).replace(r"\.\.\.", ".*") for part in parts)
    found = re.fullmatch(pattern, " ".join(got.split()))
    return found is not None and all(abs(float(a) - float(b)) <= 0.05 * float(a) for a, b in zip(numbers, found.groups()))


def same(expected, got):
    """Lists of lines; a line `...` is any number of lines."""
    if not expected:
        return not got
    if expected[0].strip() == "...":
        return any(same(expected[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and same_line(expected[0], got[0]) and same(expected[1:], got[1:])


class Reader:
    def __init__(self, page, source, build, place, has_gpu):
        self.page, self.place, self.source, self.has_gpu = page, place, source, has_gpu
        self.names, self.skipped = {}, []  # of the page's Python; blocks that only compile here
        for name in LINKED:
            os.symlink(source / name, place / name)
        os.symlink(build, place / "build")
        self.environment = dict(
            os.environ,
            PATH=f"{build}/bin:{os.environ['PATH']}",
            HOME=str(place),
            PISA_PACKS=str(source / "generated"),
            PYTHONDONTWRITEBYTECODE="1",
        )
        if not has_gpu:  # the same on machines with one
            self.environment["PISA_LIBCUDA"] = str(place / "no-such-libcuda.so.1")

    def do(self, command):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, cwd=self.place, env=self.environment, text=True, check=False, **pipes)

    def check(self, block, ran, status=0):
        if ran.returncode != status:
            raise Wrong(f"exit status {ran.returncode}, not {status}:\n{ran.stdout}")
        if block.output is None:
            return
        page, printed = block.output.splitlines(), [x for x in ran.stdout.splitlines() if not re.match(PROGRESS, x)]
        if not same(page, printed):
            raise Wrong("\n".join(difflib.unified_diff(page, printed, "page", "printed", lineterm="")))

    def written(self, block, otherwise):
        """Writes a block to the file that it is called by, or |otherwise|; its name."""
        name = next((w for w in block.words[1:] if "." in w), otherwise)
        if name != otherwise and name not in block.before:
            raise Wrong(f"the text does not say to save it as {name}")
        (self.place / name).write_text(block.text, encoding="utf-8")
        return name

    def sh(self, block):
        commands = re.sub(r"\\\n", " ", block.text).splitlines()
        if "gpu" in block.words:
            if "GPU" not in block.before:
                raise Wrong("nothing tells that it needs a GPU")
            for command in commands:
                self.gpu(command)
        elif "build" in block.words:
            for command in commands:
                self.builds(command)
        else:
            self.check(block, self.do(["sh", "-eu", "-c", block.text]))

    def builds(self, command):
        """A command of `run`, a preset, a target of the build folder, or pip on the folder that has pyproject.toml."""
        words = command.split()
        if words[0] == "./run":
            known = self.do(["sh", "./run", "help"]).stdout.split()
        elif "--preset" in words:
            known = json.loads((self.source / "CMakePresets.json").read_text(encoding="utf-8"))
            known = [preset["name"] for preset in known["configurePresets"]]
        elif "--target" in words:
            known = self.do(["cmake", "--build", "build", "--target", "help"]).stdout.replace(":", " ").split()
        else:
            known = ["."] if words[:2] == ["pip", "install"] and (self.source / "pyproject.toml").exists() else []
        if words[-1] not in known:
            raise Wrong(f"{command}: nothing is called {words[-1]}")

    def gpu(self, command):
        """Options are read before a device is looked for: a wrong one is another exit status."""
        if not re.match(r"pisa ", command):
            raise Wrong(f"no command of pisa: {command}")
        begin = time.monotonic()
        ran = self.do(["sh", "-eu", "-c", command])
        if self.has_gpu:
            if ran.returncode:
                raise Wrong(f"{command}: exit status {ran.returncode}:\n{ran.stdout}")
            print(f"{time.monotonic() - begin:5.1f} s  {command}", flush=True)
        elif ran.returncode != NO_DEVICE or "cannot open the CUDA driver" not in ran.stdout:
            raise Wrong(f"{command}: exit status {ran.returncode}:\n{ran.stdout}")

    def pisa(self, block):
        name = self.written(block, "example.pisa")
        refused = "refused" in block.words
        if refused and block.output is None:
            raise Wrong("no message behind a refused example")
        ran = self.do(["pisac", "check", name])
        if refused:
            self.check(block, ran, 1)
        elif ran.returncode:
            raise Wrong(ran.stdout)

    def c(self, block):
        name = self.written(block, "example.c")
        flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iruntime"]
        self.check(block, self.do(["cc", *flags, "-c", name, "-o", os.devnull]))

    def python(self, block):
        code = compile(block.text, f"{self.page.name}:{block.line}", "exec")
        if "shown" in block.words or ("torch" in block.words and not importlib.util.find_spec("torch")):
            self.skipped.append(block)
            return
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.names)
        self.check(block, subprocess.CompletedProcess([], 0, printed.getvalue()))

    def read(self):
        """Runs every example; what is wrong, a line each."""
        elsewhere = self.page.elsewhere()
        for block in self.page.blocks:
            run = {"sh": self.sh, "pisa": self.pisa, "c": self.c, "python": self.python}.get(block.language)
            if block.language in elsewhere:
                continue
            try:
                if run:
                    run(block)
                elif len(block.words) > 1:
                    self.written(block, None)
            except Exception as why:
                yield f"{self.page.path}:{block.line}: {why}"


def tests_of(build):
    """The names of all tests of a build folder."""
    said = subprocess.run(["ctest", "--test-dir", str(build), "-N"], stdout=subprocess.PIPE, text=True, check=True)
    return set(re.findall(r"Test +#\d+: (\S+)", said.stdout))


def main():
    page, source, build = (pathlib.Path(x).resolve() for x in sys.argv[1:4])
    has_gpu = sys.argv[4:] == ["gpu"]
    page = Page(page)
    if any(b.language == "python" for b in page.blocks) and not importlib.util.find_spec("numpy"):
        print("skipped: its examples need NumPy")
        sys.exit(SKIPPED)
    errors = []
    elsewhere = set(page.elsewhere().values())
    if elsewhere:
        errors += [f"{page.path}: there is no test {name}" for name in sorted(elsewhere - tests_of(build))]
    place = pathlib.Path(tempfile.mkdtemp())
    try:
        os.chdir(place)
        reader = Reader(page, source, build, place, has_gpu)
        errors += reader.read()
        for block in reader.skipped:
            print(f"{page.path}:{block.line}: not run: {' '.join(block.words)}")
    finally:
        shutil.rmtree(place)
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
