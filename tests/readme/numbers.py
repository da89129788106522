"""Every time and ratio that the README quotes is the latest record in docs/results. numbers.py README RECORDS"""

import json
import re
import sys


def latest(path):
    """(variant, tokens) -> the measurements beside cuDNN on random inputs of the last run that has some."""
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["peer"] == "cudnn" and record["bench"] == "piecewise":
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


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        text = page.read()
    records = latest(sys.argv[2])
    wrong = [why for check in (check_table, check_sentences) for right, why in check(text, records) if not right]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
