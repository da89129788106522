"""The schema of the JSON lines of `pisa quality` about packs that select blocks."""

import json

NUMBER, WHOLE = (int, float), int
SHARE = (int, float, type(None))  # null of no query
FIGURES = {"queries": WHOLE, "recall": SHARE, "captured": SHARE, "ratio": SHARE}
RECORD = {"spec": str, "variant": str, "tensors": str, "shape": dict, "leaf": WHOLE, "keep": WHOLE, "every": WHOLE, **FIGURES,
          "flat_recall": SHARE, "heads": list}
SHAPE = {"heads": WHOLE, "kv_heads": WHOLE, "Nq": WHOLE, "Nk": WHOLE, "D": WHOLE, "type": str}
HEAD = {"b": WHOLE, "kv_head": WHOLE, **FIGURES}


def fields(value, schema, where):
    assert set(value) == set(schema), f"{where}: fields {sorted(set(value) ^ set(schema))}"
    for name, kind in schema.items():
        assert isinstance(value[name], kind) and not isinstance(value[name], bool), f"{where}: {name} is {value[name]!r}"


def figures(f, where):
    shares = [f[name] for name in ("recall", "captured", "ratio", "flat_recall") if name in f]
    if f["queries"] == 0:
        assert shares == [None] * len(shares), where
        return
    assert f["queries"] > 0 and 0 <= f["recall"] <= 1 and 0 <= f["captured"] <= 1 + 1e-4, where
    assert 0 <= f["ratio"] and 0 <= f.get("flat_recall", 0) <= 1, where


def is_selection(line):
    return "keep" in json.loads(line)


def selection_record(line, where, whole):
    """|whole|: with figures by position, which large records go without."""
    r = json.loads(line)
    fields(r, {**RECORD, **({"positions": list} if whole else {})}, where)
    fields(r["shape"], SHAPE, where)
    figures(r, where)
    for head in r["heads"]:
        fields(head, HEAD, where)
        figures(head, where)
    assert len(r["heads"]) % r["shape"]["kv_heads"] == 0 or len(r["heads"]) == r["shape"]["kv_heads"], where
    assert r["queries"] == sum(head["queries"] for head in r["heads"]), where
    for position in r.get("positions", ()):
        fields(position, FIGURES, where)
        figures(position, where)
    return r
