"""The JSON lines of `pisa quality`, fresh and in docs/results/quality, against their schema; the page's pictures as XML.

usage: json_test.py PISA TEST_PROGRAMS_FOLDER RECORDS, in an empty folder of its own.
"""

import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

from selection_lines import is_selection, selection_record

NUMBER, WHOLE = (int, float), int
FIGURES = {"error": NUMBER, "psnr": (int, float, type(None)), "recall": NUMBER, "mass": NUMBER, "best_mass": NUMBER,
           "inside_std": NUMBER, "between_std": NUMBER}
HEAD = {"b": WHOLE, "h": WHOLE, **FIGURES}
SHAPE = {"heads": WHOLE, "Nq": WHOLE, "Nk": WHOLE, "D": WHOLE, "type": str, "query": WHOLE, "key": WHOLE}
RECORD = {"spec": str, "variant": str, "tensors": str, "shape": dict, "density": (int, float, type(None)),
          "threshold": (int, float, type(None)), "blocks": WHOLE, "listed": NUMBER, "read": NUMBER, "cost": NUMBER, **FIGURES, "rounding": NUMBER}
PARTS = {"heads": list, "query_blocks": list, "query_recall": list}  # large records go without
ASKED = {"inside_std": NUMBER, "between_std": NUMBER}


def fields(value, schema, where):
    assert set(value) == set(schema), f"{where}: fields {sorted(set(value) ^ set(schema))}"
    for name, kind in schema.items():
        assert isinstance(value[name], kind) and not isinstance(value[name], bool), f"{where}: {name} is {value[name]!r}"


def figures(f, where):
    assert f["error"] >= 0 and 0 <= f["recall"] <= 1 + 1e-5, where
    assert 0 <= f["mass"] <= f["best_mass"] + 1e-5 <= 1 + 2e-5, where


def record(line, where):
    r = json.loads(line, parse_constant=lambda word: sys.exit(f"{where}: {word} is no JSON"))
    synthetic, whole = "asked" in r, "heads" in r
    fields(r, {**RECORD, **({"asked": dict} if synthetic else {}), **(PARTS if whole else {})}, where)
    fields(r["shape"], SHAPE, where)
    if synthetic:
        fields(r["asked"], ASKED, where)
    figures(r, where)
    assert r["blocks"] == -(-r["shape"]["Nk"] // r["shape"]["key"]) and 1 <= r["listed"] <= r["blocks"], where
    assert 0 < r["read"] <= 1 and r["read"] <= r["cost"], where
    if whole:
        parts(r, where)
    return r


def parts(r, where):
    assert len(r["heads"]) == r["shape"]["heads"], where
    for head in r["heads"]:
        fields(head, HEAD, where)
        figures(head, where)
    assert len(r["query_recall"]) == len(r["query_blocks"]) == -(-r["shape"]["Nq"] // r["shape"]["query"]), where
    assert all(0 <= recall <= 1 for recall in r["query_recall"]), where
    low, high = min(h["error"] for h in r["heads"]), max(h["error"] for h in r["heads"])
    assert low * (1 - 1e-4) <= r["error"] <= high * (1 + 1e-4), f"{where}: all heads {r['error']} not in [{low}, {high}]"


def lines(text, name):
    found = [record(line, f"{name}:{i + 1}") for i, line in enumerate(text.splitlines())]
    assert found, f"{name} has no lines"
    return found


def pictures(page):
    for svg in re.findall(r"<svg .*?</svg>", page, re.S):
        xml.fromstring(svg)


def main():
    pisa, programs, records = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for method in ("hybrid", "dense"):
        subprocess.run([programs / "make_pack", method, f"{method}.pack"], check=True)
    command = [pisa, "quality", "hybrid.pack", "dense.pack", "--synthetic", "std=0.5,1", "--tokens", "500", "--heads",
               "0,2", "--densities", "spec,0.5", "--json", "--html", "page.html"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    fresh = lines(done.stdout, "stdout")
    assert len(fresh) == 6 and all("heads" in r for r in fresh) and {r["density"] for r in fresh} == {None, 0.5}
    page = pathlib.Path("page.html").read_text()
    pictures(page)
    assert page.count("<svg ") == 7
    for path in sorted(records.glob("*.jsonl")):
        text = path.read_text()
        if is_selection(text.splitlines()[0]):
            for i, line in enumerate(text.splitlines()):
                selection_record(line, f"{path.name}:{i + 1}", False)
        else:
            lines(text, path.name)
    for path in sorted(records.glob("*.svg")):
        xml.fromstring(path.read_text())
    for path in sorted(records.glob("*.html")):
        pictures(path.read_text())


main()
