"""The kernel decode against the definition (select.h), and what it attends to against its lists, by clusters of 1 to 8
CTAs: check_decode.py EMIT KEY=VALUE ..."""
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
    far = C * K * g ** 5
    if not PLAN.flat and not page and far <= 8192:
        for rest in 1, C * g ** 3 + 5:
            yield dict(kv_heads=1, batch=1, n_q=1, n_k=far + rest)
        yield dict(kv_heads=1, batch=1, n_q=1, n_k=far, special="equal")


run("decode", calls(), lambda call: call.s.R, PLAN.decode_start if PLAN.decode_start >= 0 else None)
