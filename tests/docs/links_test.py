"""links_test.py SOURCE: every link of README.md and docs leads to a file, a folder or a heading; every drawing is in a page."""

import pathlib
import sys
import xml.etree.ElementTree

from pages import Page, anchor, pages_of


def wrong(page, target):
    """What is wrong with a link, or None."""
    if target.startswith(("https://", "http://")):
        return None
    path, _, heading = target.partition("#")
    file = page.path.parent / path if path else page.path
    if not file.exists():
        return f"{target} is not there"
    if heading and heading not in [anchor(title) for _, _, title in Page(file).headings()]:
        return f"{file.name} has no heading #{heading}"
    return None


def drawings(folder, pages):
    """A drawing is an SVG with a title, is read on light and dark ground, and is in some page."""
    shown = {(page.path.parent / target).resolve() for page in pages for _, target in page.links()}
    found = sorted(folder.glob("*.svg"))
    if not found:
        yield f"{folder}: no drawings"
    for path in found:
        text = path.read_text(encoding="utf-8")
        root = xml.etree.ElementTree.fromstring(text)
        if root.find("{http://www.w3.org/2000/svg}title") is None:
            yield f"{path}: no title"
        if "prefers-color-scheme: dark" not in text:
            yield f"{path}: not for dark grounds"
        if path.resolve() not in shown:
            yield f"{path}: in no page"


def main():
    source = pathlib.Path(sys.argv[1])
    pages = pages_of(source)
    errors = list(drawings(source / "docs" / "drawings", pages))
    for page in pages:
        for line, target in page.links():
            why = wrong(page, target)
            if why:
                errors.append(f"{page.path}:{line}: {why}")
    sys.exit("\n".join(errors) or 0)


if __name__ == "__main__":
    main()
