"""usage: check_statistics.py EMIT PLAN: every output of the statistics kernel against its definition."""
import numpy as np

from cases import BLOCK, D, PLAN, ULP, Case, close, from_bits, kernel_of, rows_of_parts, slot_sums
from machine import F32, S32, Global, TensorMap

CASES = (  # batch, key/value heads, n_q, n_k, CTAs, keys of each sequence
    (1, 1, 64, 64, 1, None), (2, 2, 131, 200, 3, None), (1, 3, 200, 63, 5, None), (1, 1, 1, 129, 2, None),
    (3, 2, 140, 300, 4, (BLOCK + 1, 0, 300)), (4, 1, 40, 2 * BLOCK, 2, (1, BLOCK, -5, 9999)))
SCALE = 0.0883883476


class Cut:
    """The definitions where |lengths| end sequences: sums over the keys of a block that there are, zeros where none."""

    def __init__(self, c, lengths):
        lengths = [c.n_k] * c.batch if lengths is None else np.clip(lengths, 0, c.n_k)
        self.k_mean, self.v_mean, self.variance = (np.zeros((c.bhk, c.nt, D)) for _ in range(3))
        self.h = np.zeros((c.bhk, c.nt, D, D))
        for i in np.ndindex(c.bhk, c.nt):
            head, j = i
            rows = slice(j * BLOCK, min((j + 1) * BLOCK, lengths[head // c.kv_heads]))
            k, v = c.k[head, rows], c.v[head, rows]
            if len(k):
                self.k_mean[i], self.v_mean[i], self.variance[i] = k.mean(0), v.mean(0), k.var(0)
                self.h[i] = (k - k.mean(0)).T @ v


def check_statistics(kernel, c, ctas, lengths, wants):
    memory = Global(64 << 20)
    maps = [TensorMap(memory, memory.array(bits), bits.shape) for bits in c.bits]
    q_mean = memory.empty((c.bh, c.nqs, D), np.uint16)
    k_mean, v_mean, k_variance = (memory.empty((c.bhk, c.nt, D), np.uint16) for _ in range(3))
    h_norm2 = memory.empty((c.bhk, c.nt, 8), F32)
    h_part = memory.empty((c.bhk + ctas - 1, D, D), F32)
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, q_mean, k_mean, v_mean, h_norm2, h_part, c.bhk, c.kv_heads, c.n_q, c.n_k, c.blocks, k_variance,
        SCALE / 2, memory.array(np.array(lengths, S32)) if lengths else 0])
    want = Cut(c, lengths)
    close("q_mean", from_bits(memory.read(q_mean, (c.bh, c.nqs, D), np.uint16)), c.mean(c.q), 1e-6, ULP / 2)
    rows = {"k_mean": (k_mean, want.k_mean, True), "v_mean": (v_mean, want.v_mean, wants["v"]),
            "k_variance": (k_variance, SCALE / 2 * want.variance, wants["variance"])}
    for name, (array, right, wanted) in rows.items():
        if wanted:
            close(name, from_bits(memory.read(array, right.shape, np.uint16)), right, 1e-6, ULP / 2)
    if wants["norm"] or wants["trace"]:
        got = memory.read(h_norm2, (c.bhk, c.nt, 8), F32).astype(np.float64).sum(2)
        close("h_norm2", got, (want.h ** 2).sum((2, 3)) if wants["norm"] else want.variance.sum(2), 1e-6, 1e-5)
    if wants["sum"]:
        parts = memory.read(h_part, (c.bhk + ctas - 1, D, D), F32).astype(np.float64)
        sums, used = slot_sums(rows_of_parts(parts), c, ctas)
        close("h_part", sums, want.h.sum(1), 2e-3)
        for slot in set(range(len(parts))) - used:
            assert np.isnan(parts[slot]).all(), f"slot {slot} written"


def main():
    wants = {"v": PLAN.tail in ("taylor_0", "taylor_hybrid"), "variance": PLAN.second_order and PLAN.tail != "taylor_1",
             "sum": PLAN.tail == "taylor_hybrid" or PLAN.term == "log_residual",
             "norm": PLAN.term == "log_covariance", "trace": PLAN.term == "log_key_variance"}
    kernel = kernel_of("pisa_statistics")
    for seed, (*shape, ctas, lengths) in enumerate(CASES):
        check_statistics(kernel, Case(seed, *shape), ctas, lengths, wants)
        print("B {} Hk {} Nq {} Nk {} CTAs {} lengths {}: right".format(*shape, ctas, lengths), flush=True)


main()
