"""docs/python.md: every example runs as printed, in order; those that load models are only compiled."""

import importlib
import re
import sys
import unittest

from common import main, pisa, sample

PAGE = sys.argv.pop(1)
with open(PAGE, encoding="utf-8") as file:
    EXAMPLES = re.findall(r"```python ?(\w*)\n(.*?)```", file.read(), re.S)


class Page(unittest.TestCase):
    def run_examples(self, kind, **names):
        found = [code for tag, code in EXAMPLES if tag == kind]
        self.assertTrue(found)
        for code in found:
            exec(compile(code, PAGE, "exec"), names)
        return names

    def test_numpy(self):
        names = self.run_examples("")
        self.run_examples("pyramid", **{**names, "pack": pisa.load(sample("select"))})

    def test_torch(self):
        try:
            importlib.import_module("torch")
        except ImportError as missing:
            self.skipTest(str(missing))
        self.run_examples("torch")

    def test_shown(self):
        for tag, code in EXAMPLES:
            self.assertIn(tag, ("", "torch", "pyramid", "shown"))
            compile(code, PAGE, "exec")

    def test_every_name_is_told(self):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        for name in (*(n for n in pisa.__all__ if not n.startswith("_")), *vars(pisa.load("dense"))):
            if not name.startswith("_") and name not in ("selects", "stamp"):
                self.assertIn(name, page)


if __name__ == "__main__":
    main()
