"""A Markdown page: its fenced blocks, links and headings. In goes a path, out come lists of what the page has."""

import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Block:
    line: int  # of its first line of text, from 1
    words: list  # of the opening fence: the language, then words about it
    text: str
    output: str = None  # the `text` block behind it, with nothing but prose between
    before: str = ""  # the prose between the fence before and this one

    @property
    def language(self):
        return self.words[0] if self.words else ""


class Page:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.name = self.path.name
        self.blocks, self.prose = [], []  # prose: (line number, text) outside of fences
        self.read(self.path.read_text(encoding="utf-8").split("\n"))
        for block, after in zip(self.blocks, self.blocks[1:]):
            if after.language == "text" and block.language != "text":
                block.output = after.text

    def read(self, lines):
        start, before = None, []
        for number, line in enumerate(lines, 1):
            if line.startswith("```") and start is None:
                start, words = number, line[3:].split()
            elif line == "```":
                text = "".join(x + "\n" for x in lines[start : number - 1])
                self.blocks.append(Block(start + 1, words, text, before="\n".join(before)))
                start, before = None, []
            elif start is None:
                self.prose.append((number, line))
                before.append(line)
        assert start is None, f"{self.path}:{start}: a fence that does not end"

    def elsewhere(self):
        """{language: test} of lines `<!-- LANGUAGE ...: run by TEST -->`: blocks that a test of another suite runs."""
        found = {}
        for _, line in self.prose:
            match = re.fullmatch(r"<!-- ([a-z ]+): run by (\S+) -->", line)
            if match:
                found.update(dict.fromkeys(match[1].split(), match[2]))
        return found

    def headings(self):
        """(line number, level, title)"""
        for number, line in self.prose:
            match = re.fullmatch(r"(#+) (.+)", line)
            if match:
                yield number, len(match[1]), match[2]

    def links(self):
        """(line number, target), of pictures too"""
        for number, line in self.prose:
            line = re.sub(r"`[^`]*`", "", line)
            yield from ((number, target) for target in re.findall(r"\]\(([^)\s]+)\)", line))
            yield from ((number, target) for target in re.findall(r'src(?:set)?="([^"]+)"', line))


def anchor(title):
    """What a heading is called in links, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def pages_of(source):
    """Every page that users read: README.md and those below docs."""
    source = pathlib.Path(source)
    return [Page(p) for p in [source / "README.md", *sorted((source / "docs").rglob("*.md"))]]
