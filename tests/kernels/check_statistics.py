"""usage: check_statistics.py EMIT PLAN: every output of the statistics kernel against its definition."""
import numpy as np

from cases import D, PLAN, ULP, Case, close, from_bits, kernel_of, slot_sums
from machine import F32, Global, TensorMap

CASES = (  # batch, key/value heads, n_q, n_k, CTAs
    (1, 1, 64, 64, 1), (2, 2, 131, 200, 3), (1, 3, 200, 63, 5), (1, 1, 1, 129, 2))


def check_statistics(kernel, c, ctas, wants):
    memory = Global(64 << 20)
    maps = [TensorMap(memory, memory.array(bits), bits.shape) for bits in c.bits]
    q_mean = memory.empty((c.bh, c.nq64, D), np.uint16)
    k_mean, v_mean = (memory.empty((c.bhk, c.nt, D), np.uint16) for _ in range(2))
    h_norm2 = memory.empty((c.bhk, c.nt, 8), F32)
    h_part = memory.empty((c.bhk + ctas - 1, D, D), F32)
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, q_mean, k_mean, v_mean, h_norm2, h_part, c.bhk, c.kv_heads, c.n_q, c.n_k, c.blocks])
    for name, array, x, n in (("q_mean", q_mean, c.q, c.nq64), ("k_mean", k_mean, c.k, c.nt), ("v_mean", v_mean, c.v, c.nt)):
        if name == "v_mean" and not wants["v"]:
            continue
        got = from_bits(memory.read(array, (len(x), n, D), np.uint16))
        close(name, got, c.mean(x), 1e-6, ULP / 2)
    h = c.h()
    if wants["norm"]:
        got = memory.read(h_norm2, (c.bhk, c.nt, 8), F32).astype(np.float64).sum(2)
        close("h_norm2", got, (h ** 2).sum((2, 3)), 1e-6, 1e-5)
    if wants["sum"]:
        parts = memory.read(h_part, (c.bhk + ctas - 1, D, D), F32).astype(np.float64)
        sums, used = slot_sums(parts, c, ctas)
        close("h_part", sums, h.sum(1), 2e-3)
        for slot in set(range(len(parts))) - used:
            assert np.isnan(parts[slot]).all(), f"slot {slot} written"


def main():
    hybrid, covariance = PLAN.tail == "taylor_hybrid", PLAN.term == "log_covariance"
    wants = {"v": PLAN.tail != "drop", "norm": covariance, "sum": hybrid}
    kernel = kernel_of("pisa_statistics")
    for case in CASES:
        *shape, ctas = case
        check_statistics(kernel, Case(sum(case), *shape), ctas, wants)
        print("B {} Hk {} Nq {} Nk {} CTAs {}: right".format(*case), flush=True)


main()
