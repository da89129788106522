"""The kernel flat against the definition (select.h): check_flat.py EMIT flat=1 KEY=VALUE ..."""
from select_lists import PLAN, run
from selection import ceil_div


def calls():
    """Ragged ends, more queries than a unit has, more sequences than one in a unit; few leaves; ties, nan, great numbers."""
    C, K, page = PLAN.C, PLAN.K, PLAN.page
    n = C * max(2 * K, 20) + 5 if not page else ceil_div(C * max(2 * K, 20), page) * page
    yield dict(kv_heads=1, batch=1, n_q=19, n_k=n)
    yield dict(kv_heads=2, batch=3, n_q=3, n_k=n, lengths=[n - C // 2 - 1, 5, 0], worth=False, ctas=1)
    if not page:
        yield dict(kv_heads=2, packed=[(2, n), (0, 3), (1, n - C), (9, 4), (3, C * K + C + 1)], token_major=True)
    yield dict(kv_heads=1, batch=1, n_q=4, n_k=n, size=40.0)
    for special in "equal", "nan", "zero":
        yield dict(kv_heads=1, batch=1, n_q=3, n_k=n, special=special)


run("flat", calls(), lambda call: call.ctas)
