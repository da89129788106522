"""told_test.py SOURCE BUILD: README.md and docs tell of everything that a user can name, and show it in an example that is run:
functions of pisa.h, options of both programs, words and clauses of the language, names of the Python package. A line for
each that they do not."""

import ast
import pathlib
import re
import subprocess
import sys

from pages import Page, pages_of

GENERAL = {"out", "out_bytes", "error", "pack", "variant", "module", "call"}  # parameters that pisa.h tells of once, at its top


def text_of(pages, language):
    """All examples in a language that are meant to work."""
    return "\n".join(b.text for p in pages for b in p.blocks if b.language == language and "refused" not in b.words)


def read(path):
    return path.read_text(encoding="utf-8")


# ---- C ----


def functions(source, pages):
    names = re.findall(r"^  (pisa_\w+);$", read(source / "runtime/libpisa.map"), re.M)
    assert names
    page, examples = read(source / "docs/c.md"), text_of(pages, "c")
    for name in names:
        if f"`{name}()`" not in page:
            yield f"c.md does not tell of {name}"
        if f"{name}(" not in examples:
            yield f"no example calls {name}"


def parameters(source):
    """Each parameter is in the comment of its function, or is one of those that the header tells of at its top."""
    header = read(source / "runtime/pisa.h")
    top = header[: header.index("*/")]
    yield from (f"the top of pisa.h does not tell of |{name}|" for name in sorted(GENERAL) if f"|{name}|" not in top)
    declaration = r"(?:/\*((?:(?!\*/).)*)\*/\n)?(?:pisa_status|const char|void) \*?(pisa_\w+)\(([^)]*)\);(?: /\*(.*?)\*/)?"
    for before, name, given, after in re.findall(declaration, header, re.S):
        for parameter in re.findall(r"(\w+)(?:,|$)", given):
            if parameter not in GENERAL | {"void"} and f"|{parameter}|" not in before + after:
                yield f"the comment of {name} does not tell of |{parameter}|"


# ---- commands ----


def options(build, pages):
    """Every option of a command is in a command line of some page."""
    lines = re.sub(r"\\\n", " ", text_of(pages, "sh")).splitlines()
    for program in ("pisac", "pisa"):
        for command in commands_of(build / "bin" / program):
            said = subprocess.run([build / "bin" / program, command, "--help"], stdout=subprocess.PIPE, text=True, check=True)
            typed = [words for words in map(str.split, lines) if words[1:2] == [command] and words[0].split("/")[-1] == program]
            if not typed:
                yield f"no page has `{program} {command}`"
            for option in re.findall(r"^  (--?[a-z][a-z-]*)", said.stdout, re.M):
                if not any(option in words for words in typed):
                    yield f"no example has `{program} {command} {option}`"


def commands_of(program):
    said = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    found = re.findall(r"^  ([a-z]+)  ", said.stdout, re.M)
    assert found
    return found


# ---- the language ----


def language(source):
    page = Page(source / "docs/LANGUAGE.md")
    prose = "\n".join(line for _, line in page.prose)
    examples = " ".join(re.sub(r"#.*", "", text_of([page], "pisa")).split())
    table = read(source / "dsl/fields.c")
    words = re.findall(r'^  \{"(\w+)", +HOME_', table, re.M) + re.findall(r'\{"([\w ]+)", +[A-Z_0-9]+\}', table)
    assert len(words) > 60
    for word in dict.fromkeys(words):
        if not re.search(rf"`[^`]*\b{word}\b[^`]*`", prose):
            yield f"LANGUAGE.md does not tell of '{word}'"
        if not re.search(rf"\b{word}\b", examples):
            yield f"no example of LANGUAGE.md has '{word}'"


def clauses(source):
    """Every clause has an example, its own or one of a clause in it."""
    page = Page(source / "docs/LANGUAGE.md")
    found = [(number, title) for number, level, title in page.headings() if level > 1]
    ends = [number for number, _ in found[1:]] + [10**9]
    numbers = [title.split()[0].rstrip(".") for _, title in found]
    for (start, title), end, clause in zip(found, ends, numbers):
        inner = any(other.startswith(clause + ".") for other in numbers)
        if not inner and not any(start < b.line < end and b.language in ("pisa", "sh") for b in page.blocks):
            yield f"no example of clause {title}"


# ---- Python ----


def python(source, pages):
    folder = source / "runtime/python/pisa"
    page, examples = read(source / "docs/python.md"), text_of(pages, "python")
    public = next(
        ast.literal_eval(node.value)
        for node in ast.parse(read(folder / "__init__.py")).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    for name in public:
        if not re.search(rf"\b{name}\b", page):
            yield f"python.md does not tell of pisa.{name}"
    for file in ("_api.py", "_pack.py", "diffusers.py", "transformers.py"):
        for node in ast.parse(read(folder / file)).body:
            name = getattr(node, "name", "")
            shown = name if name in public and name != "Pack" else None  # what `load` gives
            if name == "attach":
                shown = f"{file[:-3]}.attach"
            if shown and f"pisa.{shown}(" not in examples:
                yield f"no example calls pisa.{shown}"
            if shown and isinstance(node, ast.FunctionDef):
                for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs:
                    if not re.search(rf"\b{argument.arg}\b", page):
                        yield f"python.md does not tell of {argument.arg} of pisa.{shown}"


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    pages = pages_of(source)
    errors = [
        *functions(source, pages),
        *parameters(source),
        *options(build, pages),
        *language(source),
        *clauses(source),
        *python(source, pages),
    ]
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
