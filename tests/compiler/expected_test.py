"""expected_test.py PISAC SPECS RECORD: what `pisac explain` expects of block selection is what was
measured. In go the newest lines of each (pack, bench, length) of docs/results/h200/pyramid.jsonl,
of steps those of the newest code alone; out comes a line for each, and status 1 where one is off by
more than TOLERANCE.

A measurement repeats within 5 %; short sequences are launches more than work."""
import json
import re
import subprocess
import sys

SHORT, TOLERANCE, SHORT_TOLERANCE, STEP_TOLERANCE = 16384, 0.25, 0.40, 0.15
LENGTHS = [4096, 16384, 65536, 262144, 1048576]  # of the table of explain
BATCHES = [1, 32]  # of its steps
# The columns whose sum a bench measures; its peer on the right, where explain knows it.
BENCHES = {"selection": ("select",), "selection_attention": ("select", "attend")}
PEERS = {("selection_attention", "cudnn"): ("dense",)}
NEEDED = {("pyramid_lm", "selection"), ("pyramid_lm", "selection_attention"), ("bsa", "selection"),
          ("pyramid_lm", "decode")}


def newest(record):
    """{(what, pack, columns, tokens): ms}; a later line replaces an earlier one of the same run, a
    later run (its id begins with its time) one of an earlier run."""
    lines = sorted((json.loads(line) for line in record if line.strip()), key=lambda line: line["run"])
    code = {line["variant"]: line["ptx_sha256"] for line in lines if line["bench"] == "decode"}
    found = {}
    for line in lines:
        shape, bench, pack = line["shape"], line["bench"], line["variant"]
        if bench == "decode" and line["ptx_sha256"] != code[pack]:
            continue
        columns, peer = BENCHES.get(bench), PEERS.get((bench, line["peer"]))
        if bench == "decode" and shape["B"] in BATCHES:
            columns = (f"step {shape['B']}",)
            peer = (f"dense step {shape['B']}",) if line["peer"] == "cudnn" else None
        elif shape["B"] != 1 or shape["Nq"] != shape["Nk"]:
            continue
        if columns is None or " " in pack or "=" in pack:  # another variant than explain takes
            continue
        found[bench, pack, columns, shape["Nk"]] = line["ms"]
        if peer:
            found[line["peer"], pack, peer, shape["Nk"]] = line["peer_ms"]
    return found


def explain(pisac, specs, pack, tokens):
    """{tokens: {column: ms}}: the rows of the table, and the line of |tokens|."""
    run = subprocess.run([pisac, "explain", f"{specs}/{pack}.pisa", "--tokens", str(tokens)],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    text = run.stdout
    if "rates measured on an H200" not in text:
        sys.exit(f"{pack}: explain does not say where its rates come from")
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["tokens", "levels"])
    columns = lines[head].replace("by means", "by_means").split()
    rows = {}
    for line in lines[head + 1:]:
        cells = line.split()
        if len(cells) != len(columns) or not cells[0].isdigit():
            break
        rows[int(cells[0])] = {c: float(v) for c, v in zip(columns, cells)
                               if c in ("select", "attend", "dense")}
    if list(rows) != LENGTHS:
        sys.exit(f"{pack}: explain has rows of {list(rows)} tokens")
    here = re.search(r"expected ([\d.]+) ms to select and ([\d.]+) to attend, by .*"
                     r"; dense attention ([\d.]+)", text)
    one = dict(zip(("select", "attend", "dense"), map(float, here.groups())))
    if rows.setdefault(tokens, one) != one:
        sys.exit(f"{pack}: explain says {one} of {tokens} tokens, and {rows[tokens]} in its table")
    steps = r"batch +(\d+): a step ([\d.]+) us, a dense step ([\d.]+)"
    for batch, step, dense in re.findall(steps, text):
        rows[tokens][f"step {batch}"] = float(step) / 1e3
        rows[tokens][f"dense step {batch}"] = float(dense) / 1e3
    return rows


def main(pisac, specs, record):
    with open(record, encoding="utf-8") as file:
        measured = newest(file)
    missing = NEEDED - {(pack, bench) for bench, pack, _, _ in measured}
    if missing:
        sys.exit(f"{record} has no lines of {sorted(missing)}")
    failed = 0
    for (what, pack, columns, tokens), ms in sorted(measured.items()):
        row = explain(pisac, specs, pack, tokens)[tokens]
        expected = sum(row[c] for c in columns)
        off = expected / ms - 1
        is_step, is_short = "step" in columns[0], tokens < SHORT
        allowed = STEP_TOLERANCE if is_step else SHORT_TOLERANCE if is_short else TOLERANCE
        verdict = "ok" if abs(off) <= allowed else "FAILED"
        failed += verdict != "ok"
        print(f"{pack} {what} {tokens}: {' + '.join(columns)} expected {expected:.3f} ms, "
              f"measured {ms:.3f}, {off:+.1%}, allowed {allowed:.0%}: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
