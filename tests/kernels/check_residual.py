"""usage: check_residual.py EMIT PLAN: the parts of ||H_j - Hbar||^2 against the definition. Partial sums of H_j are random
in their slots, so that what is read, and how it is divided, shows."""
import numpy as np

from cases import BLOCK, D, Case, close, kernel_of, rows_of_parts
from machine import F32, S32, Global, TensorMap

CASES = (  # batch, key/value heads, n_k, CTAs, CTAs and blocks a head of statistics, keys of each sequence
    (1, 1, 64, 1, 1, 1, None), (1, 3, 200, 2, 4, 4, None), (2, 2, 300, 3, 7, 9, None), (1, 2, 5 * BLOCK, 7, 2, 5, None),
    (4, 1, 2 * BLOCK, 3, 3, 2, (1, BLOCK, -5, 9999)), (3, 2, 3 * BLOCK + 10, 5, 11, 6, (BLOCK + 1, 0, 2 * BLOCK)))


def blocks_of_cta(total, ctas, cta):
    return range(total * cta // ctas, total * (cta + 1) // ctas)


def partial_sums(rng, bhk, ctas, blocks):
    """Random in the slots that statistics fills, nan elsewhere; and their sum of each head."""
    parts, sums = np.full((bhk + ctas - 1, D, D), np.nan, F32), np.zeros((bhk, D, D))
    for cta in range(ctas):
        for head in sorted({index // blocks for index in blocks_of_cta(bhk * blocks, ctas, cta)}):
            parts[cta + head] = rng.standard_normal((D, D)) * 8
            sums[head] += rows_of_parts(parts[cta + head])
    return parts, sums


def residuals(c, sums, lengths):
    out = np.zeros((c.bhk, c.nt))
    for head, j in np.ndindex(out.shape):
        n = c.n_k if lengths is None else min(max(lengths[head // c.kv_heads], 0), c.n_k)
        k, v = (x[head, j * BLOCK:min((j + 1) * BLOCK, n)] for x in (c.k, c.v))
        if len(k):
            h = (k - k.mean(0)).T @ v
            out[head, j] = ((h - sums[head] / -(-n // BLOCK)) ** 2).sum()
    return out


def check_residual(kernel, c, ctas, stat_ctas, stat_blocks, lengths):
    memory = Global(64 << 20)
    maps = [TensorMap(memory, memory.array(bits), bits.shape) for bits in c.bits[1:]]
    parts, sums = partial_sums(np.random.default_rng(ctas), c.bhk, stat_ctas, stat_blocks)
    h_norm2 = memory.empty((c.bhk, c.nt, 8), F32)
    kernel.launch(ctas, kernel.shared, memory, [
        *maps, memory.array(parts), h_norm2, c.bhk, c.kv_heads, c.n_k, c.nt, stat_ctas, stat_blocks,
        memory.array(np.array(lengths, S32)) if lengths else 0])
    got = memory.read(h_norm2, (c.bhk, c.nt, 8), F32).astype(np.float64).sum(2)
    close("h_norm2", got, residuals(c, sums, lengths), 1e-6, 1e-5)


def main():
    kernel = kernel_of("pisa_residual")
    for seed, (batch, kv_heads, n_k, *grid, lengths) in enumerate(CASES):
        check_residual(kernel, Case(seed, batch, kv_heads, 1, n_k), *grid, lengths)
        print(f"B {batch} Hk {kv_heads} Nk {n_k} CTAs {grid} lengths {lengths}: right", flush=True)


main()
