"""The kernel decode against the definition (select.h), and what it attends to against its lists, by clusters of 1 to 8
CTAs; and where decode and append of a call may run side by side, the order of what keeps them from others.
check_decode.py EMIT KEY=VALUE ..."""
import re

from select_lists import PLAN, run
from selection import ceil_div


def calls():
    """Several levels below the first; short, ragged, more queries than keys; packed; ties, nan, great numbers; and so
    many levels that a step does not reach the leaves."""
    C, K, g, page = PLAN.C, PLAN.K, PLAN.g, PLAN.page
    deep = C * K * g * g + 3 * C + 5 if not PLAN.flat else C * max(4 * K, 70) + 5
    n = ceil_div(deep, page) * page if page else deep
    some = ceil_div(20 * C, page) * page if page else 2 * C * K + 7
    yield dict(kv_heads=2, batch=1, n_q=1, n_k=n, splits=8)
    yield dict(kv_heads=1, batch=2, n_q=2, n_k=n, lengths=[n - C // 2 - 1, 3 * C + 1], worth=False, splits=2)
    yield dict(kv_heads=1, batch=3, n_q=3, n_k=some, lengths=[some, 0, 2], size=40.0, splits=1)
    if not page:
        yield dict(kv_heads=2, packed=[(1, n), (0, 3), (2, 2 * C * K), (3, 1), (1, C * K + C + 1)], token_major=True,
                   splits=4)
    for special in "equal", "nan", "zero":
        yield dict(kv_heads=1, batch=1, n_q=2, n_k=n, special=special, splits=3 if special == "nan" else 0)
        if not page:
            yield dict(kv_heads=1, batch=1, n_q=1, n_k=C * (K + 3) + 1, special=special, splits=4)
    if not page:
        yield dict(kv_heads=1, batch=1, n_q=2, n_k=n, special="nan value", splits=8)
    far = C * K * g ** 5
    if not PLAN.flat and not page and far <= 8192:
        for rest in 1, C * g ** 3 + 5:
            yield dict(kv_heads=1, batch=1, n_q=1, n_k=far + rest)
        yield dict(kv_heads=1, batch=1, n_q=1, n_k=far, special="equal")


def check_launches():
    """Append lets decode begin when all before append is complete; decode that may not wait for it on its way does at its
    end."""
    def words(name):
        statements = " ".join(PLAN.kernel(name).source)
        return re.findall(r"\b(?:launch_dependents|griddepcontrol\.wait|ret|[ls][dt]\.global|ld\.acquire)\b", statements)
    append, decode = ([word.split(".")[-1] for word in words(name)] for name in ("append", "decode"))
    if not PLAN.early:
        for kernel in append, decode:
            assert kernel[:2] == ["launch_dependents", "wait"] and kernel.count("wait") == 1, kernel[:3]
        return
    assert append[:2] == ["wait", "launch_dependents"], append[:3]
    assert decode[0] == "launch_dependents" and set(decode[1:3]) == {"wait", "acquire"}, decode[:4]
    ends = [before for before, word in zip(decode, decode[1:]) if word == "ret"]
    assert ends and (not PLAN.forces_new or set(ends) == {"wait"}), ends
    assert not PLAN.overlaps or decode.count("wait") == 1 + len(ends), ends


check_launches()
run("decode", calls(), lambda call: call.s.R, PLAN.decode_start if PLAN.decode_start >= 0 else None)
