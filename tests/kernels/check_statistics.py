"""usage: check_statistics.py EMIT PLAN: every output of the statistics kernel against its definition."""
import numpy as np

from cases import D, PLAN, ULP, Case, close, from_bits, kernel_of, slot_sums
from machine import F32, Global, TensorMap

CASES = (  # batch, key/value heads, n_q, n_k, CTAs
    (1, 1, 64, 64, 1), (2, 2, 131, 200, 3), (1, 3, 200, 63, 5), (1, 1, 1, 129, 2))
SCALE = 0.0883883476


def check_statistics(kernel, c, ctas, wants):
    memory = Global(64 << 20)
    maps = [TensorMap(memory, memory.array(bits), bits.shape) for bits in c.bits]
    q_mean = memory.empty((c.bh, c.nqs, D), np.uint16)
    k_mean, v_mean, k_variance = (memory.empty((c.bhk, c.nt, D), np.uint16) for _ in range(3))
    h_norm2 = memory.empty((c.bhk, c.nt, 8), F32)
    h_part = memory.empty((c.bhk + ctas - 1, D, D), F32)
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, q_mean, k_mean, v_mean, h_norm2, h_part, c.bhk, c.kv_heads, c.n_q, c.n_k, c.blocks, k_variance,
        SCALE / 2])
    for name, array, x, n in (("q_mean", q_mean, c.q, c.nqs), ("k_mean", k_mean, c.k, c.nt), ("v_mean", v_mean, c.v, c.nt)):
        if name == "v_mean" and not wants["v"]:
            continue
        got = from_bits(memory.read(array, (len(x), n, D), np.uint16))
        close(name, got, c.mean(x), 1e-6, ULP / 2)
    h, variance = c.h(), c.variance()
    if wants["variance"]:
        close("k_variance", from_bits(memory.read(k_variance, (c.bhk, c.nt, D), np.uint16)), SCALE / 2 * variance, 1e-6, ULP / 2)
    if wants["norm"] or wants["trace"]:
        got = memory.read(h_norm2, (c.bhk, c.nt, 8), F32).astype(np.float64).sum(2)
        close("h_norm2", got, (h ** 2).sum((2, 3)) if wants["norm"] else variance.sum(2), 1e-6, 1e-5)
    if wants["sum"]:
        parts = memory.read(h_part, (c.bhk + ctas - 1, D, D), F32).astype(np.float64)
        sums, used = slot_sums(parts, c, ctas)
        close("h_part", sums, h.sum(1), 2e-3)
        for slot in set(range(len(parts))) - used:
            assert np.isnan(parts[slot]).all(), f"slot {slot} written"


def main():
    wants = {"v": PLAN.tail != "drop", "sum": PLAN.tail == "taylor_hybrid", "variance": PLAN.second_order,
             "norm": PLAN.term == "log_covariance", "trace": PLAN.term == "log_key_variance"}
    kernel = kernel_of("pisa_statistics")
    for case in CASES:
        *shape, ctas = case
        check_statistics(kernel, Case(sum(case), *shape), ctas, wants)
        print("B {} Hk {} Nq {} Nk {} CTAs {}: right".format(*case), flush=True)


main()
