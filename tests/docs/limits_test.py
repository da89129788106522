"""limits_test.py SOURCE BUILD: the tables of LANGUAGE.md, "What is not built", against pisac: every line is a diagnostic that it gives of
a spec in tests/compiler/errors, every diagnostic has its line, and no sentence of compiler/plan/limits*.c lacks a spec."""

import pathlib
import re
import subprocess
import sys


def plain(text):
    """Without the marks of code; every number alike."""
    return re.sub(r"\d+", "N", text.replace("`", "")).strip()


def lines_of(page):
    chapter = re.search(r"^## 11\..*?(?=^## |\Z)", page, re.M | re.S).group()
    rows = [row.strip("|").split("|") for row in chapter.splitlines() if row.startswith("|")]
    return [(plain(legal), plain(but)) for legal, but in rows if but.strip() not in ("but", "---")]


def diagnostics(pisac, errors):
    found = set()
    for spec in sorted(errors.glob("*.pisa")):
        said = subprocess.run([pisac, "check", spec], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        found |= {(plain(a), plain(b)) for a, b in re.findall(r": note: (.*) cannot be built yet: (.*)", said.stdout)}
    return found


def sentences(source):
    """Of the files that say what is not built, all texts of three words or more."""
    for file in ("limits.c", "limits_selection.c"):
        text = re.sub(r"/\*.*?\*/", "", (source / "compiler/plan" / file).read_text(encoding="utf-8"), flags=re.S)
        yield from re.findall(r'"((?:[^"\\]|\\.)*)"', re.sub(r'"\s*"', "", text))
    pyramid = (source / "compiler/plan/pyramid.c").read_text(encoding="utf-8")
    why = re.search(r"^const char \*plan_why_not_clustered.*?^}", pyramid, re.M | re.S).group()
    yield from re.findall(r'return "(.*)"', why)


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    lines = lines_of((source / "docs/LANGUAGE.md").read_text(encoding="utf-8"))
    given = diagnostics(build / "bin/pisac", source / "tests/compiler/errors")
    assert lines and given
    faults = []
    for legal, but in lines:
        if not any(found in legal and possible == but for found, possible in given):
            faults.append(f"pisac does not say what stands in LANGUAGE.md: {legal} | {but}")
    for found, possible in sorted(given):
        if not any(found in legal and possible == but for legal, but in lines):
            faults.append(f"LANGUAGE.md does not tell of: {found} cannot be built yet: {possible}")
    said = {text for pair in given for text in pair}
    for text in sentences(source):
        if text.count(" ") > 1 and plain(text.replace("%d", "1")) not in said:
            faults.append(f"no spec of tests/compiler/errors shows: {text}")
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
