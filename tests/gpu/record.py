#!/usr/bin/env python3
"""Turns what a GPU box measured into the records under docs/results/. Standard library only.

record.py fragment verify.jsonl --driver 580.159.04 -o validation.json
    The marks that a run of `pisa verify --both --json` earned: the PTX and the cubin of every
    spec whose complete list of cases passed as cubin and as PTX.
record.py merge [--validation validation.json] [--bench bench.jsonl] [--kernels kernels.jsonl]
                [--host host.jsonl] [--tune tune.jsonl] [--docs docs/results] [--packs generated]
    Adds a fragment, benchmark lines, times of single kernels, host times and choices of tuned packs to the records. With
    --packs, marks of code that is in none of the packs there are dropped.
"""

import argparse
import json
import pathlib
import sys

BENCH_KEYS = {
    "run": str,
    "commit": str,
    "device": str,
    "driver": str,
    "bench": str,
    "variant": str,
    "shape": dict,
    "ms": float,
    "ms_sustained": float,
    "peer": str,
    "peer_ms": float,
    "peer_ms_sustained": float,
    "ratio": float,
    "ptx_sha256": list,
}
COMMON_SHAPE = {"B", "H", "Hk", "Nq", "Nk", "D", "type"}
PIECEWISE, SELECTION = "h200/piecewise.jsonl", "h200/pyramid.jsonl"
RECORDS = {
    "piecewise": PIECEWISE,
    "photograph": PIECEWISE,
    "selection": SELECTION,
    "selection_attention": SELECTION,
    "decode": SELECTION,
}
SHAPE_KEYS = {
    PIECEWISE: COMMON_SHAPE | {"density"},
    SELECTION: COMMON_SHAPE | {"leaf", "keep"},
}
KERNELS = "h200/kernels.jsonl"
RUN_KEYS = {"run", "commit", "device", "driver", "bench"}
HOST = "h200/host.jsonl"
HOST_KEYS = RUN_KEYS | {"side", "call", "variant", "shape", "launches", "us", "launches_us", "ours_us", "dropped_us"}
TUNE = "h200/tune.jsonl"
TUNE_KEYS = {"bench", "variant", "device", "driver", "seed", "shape", "chosen", "best", "written", "rounds", "ms"}
TUNE_KEYS |= {"over_best", "over_written"}


def stop(message):
    sys.exit(f"record.py: {message}")


def read_lines(path):
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


# ---- marks ----


def earned(lines):
    """{spec: [summary line, ...]} of the specs whose codes all passed everything."""
    codes = {}
    for line in lines:
        if line.get("verify") == "code":
            codes.setdefault(line["spec"], []).append(line)
    marks = {}
    for spec, found in codes.items():
        kinds = {line["code"] for line in found}
        wanted = {"ptx", "cubin"} if found[0]["has_cubin"] else {"ptx"}
        if wanted <= kinds and all(line["passed"] and line["complete"] for line in found):
            marks[spec] = found
    return marks


def fragment(arguments):
    passed, devices = [], {}
    for spec, lines in sorted(earned(read_lines(arguments.lines)).items()):
        for line in lines:
            devices[line["device"]] = {"driver": arguments.driver, "compute": line["compute"]}
            passed.append(
                {
                    "sha256": line["sha256"],
                    "kind": line["code"],
                    "spec": spec,
                    "device": line["device"],
                    "driver": arguments.driver,
                    "max_rel_l2": line["max_rel_l2"],
                    "max_lse_abs": line["max_lse_abs"],
                }
            )
    write_marks(arguments.output, {"devices": devices, "passed": passed})
    print(f"{len(passed)} marks for {len({mark['spec'] for mark in passed})} specs")


def write_marks(path, record):
    """One mark a line: a diff shows what changed."""
    marks = sorted(
        record["passed"],
        key=lambda mark: (mark["spec"], mark["kind"], mark["sha256"], mark["device"]),
    )
    lines = ",\n".join("    " + json.dumps(mark) for mark in marks)
    body = f'{{\n  "devices": {json.dumps(record["devices"], sort_keys=True)},\n  "passed": ['
    body += f"\n{lines}\n  ]\n}}\n" if marks else "]\n}\n"
    pathlib.Path(path).write_text(body, encoding="utf-8")


def digests_of(folder):
    """Every part digest named by the manifests of the packs in |folder|."""
    digests = set()
    for path in sorted(pathlib.Path(folder).glob("*.pack")):
        content = path.read_bytes()
        header, _, rest = content.partition(b"\n")
        manifest = rest[: int(header.split()[2])].decode("ascii")
        digests |= {line.split()[5] for line in manifest.splitlines() if line.startswith("part ")}
    return digests


def merge_marks(docs, path, packs):
    target = docs / "validation.json"
    record = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    added = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    key = lambda mark: (mark["sha256"], mark["kind"], mark["spec"], mark["device"])
    marks = {key(mark): mark for mark in record.get("passed", []) + added["passed"]}
    if packs:
        current = digests_of(packs)
        marks = {name: mark for name, mark in marks.items() if mark["sha256"] in current}
    devices = {**(record.get("devices") or {}), **added["devices"]}
    write_marks(target, {"devices": devices, "passed": list(marks.values())})
    print(f"{target}: {len(marks)} marks")


# ---- measurements ----


def check_measurement(line):
    for key, kind in BENCH_KEYS.items():
        value = line.get(key)
        if not isinstance(value, (int, float) if kind is float else kind):
            stop(f"a benchmark line has no {key} of type {kind.__name__}: {line}")
    if line["bench"] not in RECORDS:
        stop(f"unknown bench {line['bench']!r}")
    shape = SHAPE_KEYS[RECORDS[line["bench"]]]
    if set(line) != set(BENCH_KEYS) or set(line["shape"]) != shape:
        stop(f"a benchmark line has other fields than docs/results/README.md names: {line}")


def append(target, line):
    """Once: a line that is there already is not added again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(line) + "\n"
    if target.exists() and text in target.read_text(encoding="utf-8").splitlines(keepends=True):
        return
    with target.open("a", encoding="utf-8") as out:
        out.write(text)


def merge_measurements(docs, path):
    for line in read_lines(path):
        check_measurement(line)
        append(docs / RECORDS[line["bench"]], line)
    print(f"{path}: recorded")


def merge_kernels(docs, path):
    """Lines of `pisa bench --json`."""
    for line in read_lines(path):
        if line.get("bench") != "kernels" or not {"spec", "sha256", "shape", "ms"} <= set(line):
            stop(f"no line of `pisa bench --json`: {line}")
        append(docs / KERNELS, line)
    print(f"{path}: recorded")


def merge_lines(docs, path, target, bench, keys):
    """Lines of one |bench|, with these |keys|."""
    for line in read_lines(path):
        if line.get("bench") != bench or set(line) != keys(line):
            stop(f"no line of {target}, as docs/results/README.md has them: {line}")
        append(docs / target, line)
    print(f"{path}: recorded")


def host_keys(line):
    return HOST_KEYS | ({"c_us"} if line.get("side") == "torch" else set())


def merge(arguments):
    docs = pathlib.Path(arguments.docs)
    if arguments.validation:
        merge_marks(docs, arguments.validation, arguments.packs)
    if arguments.bench:
        merge_measurements(docs, arguments.bench)
    if arguments.kernels:
        merge_kernels(docs, arguments.kernels)
    if arguments.host:
        merge_lines(docs, arguments.host, HOST, "host", host_keys)
    if arguments.tune:
        merge_lines(docs, arguments.tune, TUNE, "tune", lambda line: TUNE_KEYS)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("fragment")
    command.add_argument("lines")
    command.add_argument("--driver", required=True)
    command.add_argument("-o", "--output", required=True)
    command.set_defaults(run=fragment)
    command = commands.add_parser("merge")
    command.add_argument("--validation")
    command.add_argument("--bench")
    command.add_argument("--kernels")
    command.add_argument("--host")
    command.add_argument("--tune")
    command.add_argument("--docs", default="docs/results")
    command.add_argument("--packs")
    command.set_defaults(run=merge)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
