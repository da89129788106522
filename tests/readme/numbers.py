"""Every time and ratio that the README quotes is the latest record in docs/results. numbers.py README PIECEWISE PYRAMID"""

import json
import re
import sys


def latest(path):
    """(variant, tokens) -> the measurements beside cuDNN on random inputs of the last run that has some, reading an eighth
    or all."""
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            read = record["shape"].get("density")
            if record["peer"] == "cudnn" and record["bench"] == "piecewise" and read in (0.125, 1.0):
                key = record["variant"], record["shape"]["Nq"]
                run = [r for r in found.get(key, []) if r["run"] == record["run"]]
                found[key] = run + [record]
    return found


def beside(record, others):
    """Of |others| the one that took turns with |record|, else the last."""
    scene = [r for r in others if (r["run"], r["peer_ms"]) == (record["run"], record["peer_ms"])]
    return (scene or others)[-1]


def same(quoted, value):
    """The quoted text is the value, rounded to as many digits as it shows."""
    decimals = len(quoted.partition(".")[2])
    return f"{value:.{decimals}f}" == quoted


def check_table(text, records):
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+)x \|$", text, re.M)
    assert rows, "no table of results"
    for tokens, cudnn, dense, hybrid, ratio in rows:
        of_dense = records["dense", int(tokens)][-1]
        of_hybrid = beside(of_dense, records["hybrid", int(tokens)])
        pairs = [
            (cudnn, of_hybrid["peer_ms"]),
            (dense, of_dense["ms"]),
            (hybrid, of_hybrid["ms"]),
            (ratio, of_hybrid["ratio"]),
        ]
        for quoted, value in pairs:
            yield same(quoted, value), f"{tokens} tokens: the README says {quoted}, the record {value}"


def check_sentences(text, records):
    """'7.8x at 32760' and '119056 tokens: 7.7x': some record of that length has this ratio."""
    pairs = [(n, r) for r, n in re.findall(r"([\d.]+)x\s+at\s+(\d+)", text)]
    for tokens, ratio in pairs + re.findall(r"(\d+)\s+tokens:\s+([\d.]+)x", text):
        ratios = [r["ratio"] for (_, n), run in records.items() if n == int(tokens) for r in run]
        right = any(same(ratio, value) for value in ratios)
        yield right, f"{tokens} tokens: the README says {ratio}x, the records {ratios}"


def selection_of(path):
    """(bench, peer, tokens) -> pyramid_lm's latest measurement of it, one sequence."""
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            r = json.loads(line)
            if r["variant"] == "pyramid_lm" and r["shape"]["B"] == 1:
                found[r["bench"], r["peer"], r["shape"]["Nk"]] = r
    return found


def check_selection(text, records):
    rows = re.findall(r"^\| (\d+) " + r"\| ([\d.]+) " * 5 + r"\| ([\d.]+)x \|$", text, re.M)
    assert rows, "no table of selections"
    for tokens, select, walk, scan, attend, dense, ratio in rows:
        lists = records["selection", "pyramid-per-query", int(tokens)]
        flat = records["selection", "flat-heads-separate", int(tokens)]
        both = records["selection_attention", "cudnn", int(tokens)]
        pairs = [
            (select, lists["ms"]),
            (walk, lists["peer_ms"]),
            (scan, flat["peer_ms"]),
            (attend, both["ms"]),
            (dense, both["peer_ms"]),
            (ratio, both["ratio"]),
        ]
        for quoted, value in pairs:
            yield same(quoted, value), f"selection, {tokens} tokens: the README says {quoted}, the record {value}"


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        text = page.read()
    records = latest(sys.argv[2])
    wrong = [why for check in (check_table, check_sentences) for right, why in check(text, records) if not right]
    wrong += [why for right, why in check_selection(text, selection_of(sys.argv[3])) if not right]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
