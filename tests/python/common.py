"""What all tests of the package share: random arrays, sample packs, errors, and a way to skip with the reason."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np

    import pisa
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SKIPPED = 77  # ctest's word for it (CMakeLists.txt)


@functools.lru_cache(maxsize=None)
def folder():
    """A folder that is removed at the end."""
    path = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, path)
    return path


@functools.lru_cache(maxsize=None)
def sample(method):
    """The path of a pack without code (tests/tool/make_pack.c), which the CPU runs."""
    path = os.path.join(folder(), f"{method}.pack")
    subprocess.run([os.environ["PISA_MAKE_PACK"], method, path], check=True)
    return path


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def softmax_attention(q, k, v, causal=False):
    """Dense attention in double, [B, H, N, D], with query heads that share key heads; queries are the last tokens."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if causal:
        n_q, n_k = s.shape[2:]
        s = np.where(np.arange(n_k) <= np.arange(n_q)[:, None] + n_k - n_q, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def error(got, expected):
    """Relative L2."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def skip(reason):
    """Ends the whole file: what it needs is not there."""
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=1)


__all__ = ["error", "folder", "main", "normal", "pisa", "sample", "skip", "softmax_attention"]
