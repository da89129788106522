#!/usr/bin/env python3
"""coverage.py PISAC SPECS...: do the variants of all specs of these folders have every value that is to be verified on a GPU?

In: folders of .pisa files, the variants that `pisac explain` says can be built. Out: each value, and each combination of tail,
router and type, that no variant has; exit status 1 where there is one.
"""

import concurrent.futures
import itertools
import pathlib
import re
import subprocess
import sys

TAILS = ["drop"] + [f"{rest} {mass}" for rest in ("taylor_0", "taylor_1", "taylor_hybrid") for mass in ("zeroth", "second")]
ROUTERS = ["mean", "mean+log_covariance", "mean+log_residual", "mean+log_key_variance", "threshold diagonal", "threshold full"]
TYPES = ["bf16", "fp16"]

PIECEWISE = {
    "tail x router x type": [" / ".join(three) for three in itertools.product(TAILS, ROUTERS, TYPES)],
    "head_dim x query x key x type": [
        f"{d} {blocks} {kind}" for d in (64, 96, 128) for blocks in ("64 64", "128 64", "128 128") for kind in TYPES
    ],
    "G": ["1", "2", "3", "4", "8", "12", "16"],
    "lists": ["separate", "union"],
    "half_tile": ["off", "on"],
    "always": ["none", "first", "last", "diagonal", "window", "range", "tokens first", "tokens last"],
    "below": ["none", "dense"],
}
DENSE = {
    "head_dim": ["64", "96", "128"],
    "type": TYPES,
    "mask": ["none", "causal"],
    "G": ["1", "3", "4", "8", "16", "32"],
    "decode": ["no", "yes"],
    "page": ["0", "16"],
}
SELECTION = {
    "route": ["flat", "pyramid"],
    "head_dim x type": [f"{d} {kind}" for d in (64, 128) for kind in TYPES],
    "G": ["1", "2", "3", "4", "8", "12", "16", "32"],
    "mask": ["none", "causal"],
    "leaf x group": [f"{leaf} {group}" for leaf in (16, 32, 64, 128) for group in (2, 4, 8)],
    "keep": ["1", "3", "8", "32"],
    "score x route": [f"{score} {route}" for score in ("mean", "half_variance", "lse") for route in ("pyramid", "flat")],
    "reduce x head_dim": [f"{r} {d}" for r in ("sum", "max", "lse", "mass", "max_mass") for d in (64, 128)],
    "reduce x leaf_stage": [f"{r} {stage}" for r in ("sum", "max", "lse", "mass", "max_mass") for stage in ("automatic", "fused")],
    "always": [
        "none", "first", "current", "first previous", "first current", "previous current", "first previous current", "first last",
        "range tokens last",
    ],
    "start": ["root", "number"],
    "decode_start": ["same", "number"],
    "below": ["none", "flat", "dense"],
    "decode": ["no", "yes"],
    "page": ["0", "16", "32", "64", "128"],
}


def word(text, keyword, default):
    """The value behind a keyword, blanks as `--set` spells them."""
    found = re.search(rf"(?:^|[{{;\n])\s*{keyword} ([^;}}\n]*)", text)
    return re.sub(r"\+ ", "+", found[1].strip()).replace(" +", "+").replace(" ", "_") if found else default


def inside(text, keyword):
    found = re.search(rf"^\s*{keyword}\s[^{{\n]*{{([^}}]*)}}", text, re.MULTILINE)
    return "\n" + found[1] + "\n" if found else ""


def always_of(text, causal, selects):
    """Words of the always-set, numbers left out."""
    value = word(text, "always", None)
    if value is None:
        return ("first previous current" if selects else "diagonal") if causal else "none"
    names = [re.sub(r"_\d.*|\d+\.\.\d+", "", part.strip("_")) for part in value.split(",")]
    return " ".join("range" if name in ("tokens", "tokens_") else name.replace("_", " ") for name in names)


def variants_of(pisac, path):
    """(kind, {name: [values]}) of every variant of a spec."""
    spec = "\n".join(line.split("#")[0] for line in path.read_text().splitlines())
    body = re.sub(r"^\s*(vary|tune)\s*{[^}]*}", "", spec, flags=re.MULTILINE)
    said = subprocess.run([pisac, "explain", str(path)], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{path}: {said.stderr}")
    shape, route = inside(body, "shape"), inside(body, "route")
    kind = re.search(r"^\s*route\s+(\w+)", body, re.MULTILINE)
    kind = "dense" if "all exact" in body else "piecewise" if kind[1] == "top_k" else "selection"
    method = re.search(r"^\s*route\s+(\w+)", body, re.MULTILINE)
    base = {
        "type": word(shape, "type", "bf16"), "query": word(inside(body, "blocks"), "query", "128"),
        "key": word(inside(body, "blocks"), "key", "64"), "leaf": word(inside(body, "pyramid"), "leaf", "64"),
        "group": word(inside(body, "pyramid"), "group", "2"), "keep": word(route, "keep", "0"),
        "score": word(route, "score", "lse" if method and method[1] == "pyramid" else "mean"),
        "reduce": word(route, "reduce heads", "sum"), "start": word(route, "start", "root"),
        "decode_start": word(route, "decode_start", "same"), "variance": word(route, "variance", "diagonal"),
        "rest": word(inside(body, "attend"), "rest", "drop"), "mass": word(inside(body, "attend"), "mass", "zeroth_order"),
        "lists": word(body, "lists", "separate"), "half_tile": word(body, "half_tile", "off"),
        "leaf_stage": word(body, "leaf_stage", "automatic"),
    }
    heads, d, mask = int(word(shape, "heads", 0)), word(shape, "head_dim", ""), word(shape, "mask", "none")
    below = re.search(r"below \d+ tokens use (\w+)", body)
    fixed = {
        "G": heads // int(word(shape, "kv_heads", heads)), "mask": mask, "below": below[1] if below else "none",
        "always": always_of(route, mask == "causal", kind == "selection"), "route": method[1] if method else "none",
        "decode": "yes" if re.search(r"^\s*phases.*decode", body, re.MULTILINE) else "no",
        "page": word(inside(body, "pages"), "size", "0"), "head_dim": d,
    }
    table = re.search(r"^variants\n((?:  .*\n)*)", said.stdout, re.MULTILINE)
    lines = [line.split()[1:] for line in table[1].splitlines()] if table else [[]]
    for settings in lines or [[]]:
        chosen = dict(setting.split("=", 1) for setting in settings)
        chosen = {name.replace("reduce_heads", "reduce"): value for name, value in chosen.items()}
        yield kind, facts(base | chosen, fixed, "threshold " in route)


def facts(v, fixed, threshold):
    second = "second" if v["mass"] == "second_order" else "zeroth"
    tail = "drop" if v["rest"] == "drop" else f"{v['rest']} {second}"
    router = f"threshold {v['variance']}" if threshold else v["score"]
    d = fixed["head_dim"]
    return {name: str(value) for name, value in (fixed | v).items()} | {
        "tail x router x type": f"{tail} / {router} / {v['type']}",
        "head_dim x query x key x type": f"{d} {v['query']} {v['key']} {v['type']}",
        "head_dim x type": f"{d} {v['type']}", "leaf x group": f"{v['leaf']} {v['group']}",
        "score x route": f"{v['score']} {fixed['route']}", "reduce x head_dim": f"{v['reduce']} {d}",
        "reduce x leaf_stage": f"{v['reduce']} {v['leaf_stage']}",
        "start": "root" if v["start"] == "root" else "number",
        "decode_start": v["decode_start"] if v["decode_start"] == "same" else "number",
    }  # fmt: skip


def main():
    pisac, folders = sys.argv[1], sys.argv[2:]
    paths = sorted(path for folder in folders for path in pathlib.Path(folder).glob("*.pisa"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = [each for some in pool.map(lambda path: list(variants_of(pisac, path)), paths) for each in some]
    missing = []
    for kind, wanted in (("piecewise", PIECEWISE), ("dense", DENSE), ("selection", SELECTION)):
        for name, values in wanted.items():
            there = {facts[name] for of, facts in found if of == kind}
            if name == "always" and kind == "piecewise":  # words of one set count by themselves
                there = {w for w in values if any(re.search(rf"(^| ){w}( |$)", one) for one in there)}
            missing += [f"{kind}: no variant has {name} {value}" for value in values if value not in there]
    print(f"{len(paths)} specs, {len(found)} variants, {len(missing)} gaps", *missing, sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
