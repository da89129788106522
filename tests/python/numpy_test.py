"""NumPy on the CPU: the same bits as `pisa run --device cpu`; packs by name, types, strides, options and errors."""

import os
import subprocess
import unittest

from common import error, folder, main, normal, pisa, sample, softmax_attention

import numpy as np

from pisa import _numpy


def run_tool(pack, *options, **arrays):
    """`pisa run` on the CPU: inputs by name in, outputs {"o": ..., "lse": ..., ...} that |options| name out."""
    words = [os.environ["PISA_TOOL"], "run", pack.path, "--device", "cpu"]
    words += [word for choice in pack.settings.items() for word in ("--set", "=".join(choice))]
    for name, array in arrays.items():
        file = os.path.join(folder(), f"{name}.npy")
        np.save(file, array)
        words += [f"--{name.replace('_', '-')}", file]
    outputs = {}
    for option in options:
        outputs[option] = os.path.join(folder(), f"out_{option}.npy")
        words += ["-o" if option == "o" else f"--{option}", outputs[option]]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return {name: np.load(file) for name, file in outputs.items()}


def inputs(n_q, n_k, d, heads=4, kv_heads=2, batch=1):
    shapes = ((batch, heads, n_q, d), (batch, kv_heads, n_k, d), (batch, kv_heads, n_k, d))
    return [normal(shape, seed) for seed, shape in enumerate(shapes)]


class Loading(unittest.TestCase):
    def test_by_name(self):
        pack = pisa.load("flux1_dev")
        self.assertEqual((pack.name, pack.dtype, pack.head_dim, pack.query), ("flux1_dev", "bf16", 128, 128))
        self.assertIs(pack, pisa.load("flux1_dev"))
        self.assertIn("flux1_dev", pisa.packs())

    def test_by_path(self):
        pack = pisa.load(sample("select"))
        self.assertEqual((pack.method, pack.mask, pack.key_block, pack.group), ("pyramid", "causal", 16, 2))
        self.assertEqual(pack.phases, ("prefill", "decode"))

    def test_variants(self):
        pack = pisa.load("flux1_dev", density="0.10", half_tile="on")
        self.assertEqual(pack.settings, {"half_tile": "on", "query": "128", "density": "0.1"})
        self.assertEqual(pisa.load("flux1_dev", query=64).query, 64)
        self.assertEqual(pisa.load(pisa.load("flux1_dev", density=0.1).key).settings["density"], "0.1")
        with self.assertRaisesRegex(pisa.Error, "no variant has these settings; there are: 'half_tile=off"):
            pisa.load("flux1_dev", density=0.5)

    def test_missing(self):
        with self.assertRaisesRegex(FileNotFoundError, "'flux'; shipped ones are .*dense, .*flux1_dev"):
            pisa.load("flux")
        with self.assertRaisesRegex(FileNotFoundError, "there is no pack './flux.pack'"):
            pisa.load("./flux.pack")
        with self.assertRaisesRegex(pisa.NotFoundError, "'flux1_dev.pack'; shipped ones are .*flux1_dev") as caught:
            pisa.load("flux1_dev.pack")
        self.assertIsInstance(caught.exception, pisa.Error)
        self.assertEqual(caught.exception.status, "i/o error")
        with self.assertRaisesRegex(pisa.ArgumentError, "pack is a NoneType, must be a name or a path"):
            pisa.load(None)

    def test_damaged(self):
        path = os.path.join(folder(), "damaged.pack")
        with open(path, "wb") as file:
            file.write(b"PISA-PACK 3 10")
        with self.assertRaises(pisa.Error) as caught:
            pisa.load(path)
        self.assertEqual(caught.exception.status, "corrupt pack")

    def test_a_changed_file(self):
        path = os.path.join(folder(), "changing.pack")
        for method in ("dense", "select"):
            with open(sample(method), "rb") as source, open(path, "wb") as file:
                file.write(source.read())
            os.utime(path, (1, hash(method) % 1000))
            self.assertEqual(pisa.load(path).selects, method == "select")

    def test_a_recorded_choice(self):
        path = os.path.join(folder(), "chosen.pack")
        with open(sample("hybrid"), "rb") as source, open(path, "wb") as file:
            file.write(source.read())
        self.assertEqual(pisa.load(path).budget, (0, 0))
        q, k, v = inputs(300, 700, 64)
        for name, array in (("q", q), ("k", k), ("v", v)):
            np.save(os.path.join(folder(), f"sweep_{name}.npy"), array)
        files = [word for name in "qkv" for word in (f"--{name}", os.path.join(folder(), f"sweep_{name}.npy"))]
        options = ["--densities", "0.5", "--max-error", "1", "--device", "cpu"]
        subprocess.run(
            [os.environ["PISA_TOOL"], "sweep", path, *files, *options], check=True, stdout=subprocess.DEVNULL
        )
        pack = pisa.load(path)
        self.assertEqual(pack.budget, (0.5, 0))
        np.testing.assert_array_equal(pisa.attention(q, k, v, pack), pisa.attention(q, k, v, pack, density=0.5))
        self.assertEqual(pisa.load(path, density=0.25).budget, (0, 0))
        lists = np.zeros((1, 4, 3, 1), np.int32)
        self.assertEqual(pisa.attention(q, k, v, pack, blocks_in=lists).shape, q.shape)


class Attention(unittest.TestCase):
    def test_like_the_tool(self):
        for pack, d in ((pisa.load("flux1_dev", density=0.1), 128), (pisa.load(sample("hybrid")), 64)):
            heads = 2 * pack.group
            q, k, v = inputs(300, 1700, d, heads, 2)
            o, lse, blocks = pisa.attention(q, k, v, pack, return_lse=True, return_blocks=True)
            told = run_tool(pack, "o", "lse", "blocks", q=q, k=k, v=v)
            np.testing.assert_array_equal(o, told["o"])
            np.testing.assert_array_equal(lse, told["lse"])
            np.testing.assert_array_equal(blocks, told["blocks"])

    def test_dense_is_softmax(self):
        q, k, v = inputs(70, 200, 64)
        o = pisa.attention(q, k, v, pisa.load(sample("dense")))
        self.assertLess(error(o, softmax_attention(q, k, v)), 4e-3)
        o = pisa.attention(q, k, v, pisa.load(sample("dense")), scale=1e-9)
        self.assertLess(error(o, np.broadcast_to(v.mean(2, keepdims=True).repeat(2, 1), o.shape)), 2e-2)

    def test_types(self):
        q, k, v = inputs(70, 200, 64)
        pack = pisa.load(sample("dense"))
        o = pisa.attention(q, k, v, pack)
        self.assertEqual(o.dtype, np.float32)
        self.assertEqual(pisa.attention(q.astype(np.float64), k, v, pack).dtype, np.float64)
        bits = pisa.attention(*map(_numpy.round_bf16, (q, k, v)), pack)
        self.assertEqual(bits.dtype, np.uint16)
        np.testing.assert_array_equal(_numpy.widen_bf16(bits), o)
        with self.assertRaisesRegex(pisa.ArgumentError, "k has type float16, must be uint16 .* or float32 for"):
            pisa.attention(q, k.astype(np.float16), v, pack)
        half = pisa.load("hybrid_fp16")
        q, k, v = (x.astype(np.float16) for x in inputs(70, 200, 128, 2, 2))
        o = pisa.attention(q, k, v, half)
        self.assertEqual(o.dtype, np.float16)
        self.assertLess(error(pisa.attention(*(x.astype(np.float32) for x in (q, k, v)), half), o), 1e-6)

    def test_bf16(self):
        x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, -np.inf, np.nan, 3e38, 1e-40], np.float32)
        y = _numpy.widen_bf16(_numpy.round_bf16(x))
        np.testing.assert_array_equal(y[:4], np.array([1, 1, 1 + 2**-6, -np.inf], np.float32))
        self.assertTrue(np.isnan(y[4]))
        self.assertLess(abs(y[5] / 3e38 - 1), 2**-8)

    def test_strides(self):
        pack = pisa.load(sample("dense"))
        q, k, v = map(_numpy.round_bf16, inputs(70, 200, 64))
        o = pisa.attention(q, k, v, pack)
        turned = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
        np.testing.assert_array_equal(pisa.attention(*turned, pack), o)
        odd = np.zeros((*k.shape[:3], 65), np.uint16)[..., :64]
        odd[...] = k
        across = np.asfortranarray(k)
        for bad in (odd, across):
            with self.assertRaisesRegex(pisa.ArgumentError, r"k\.stride"):
                pisa.attention(q, bad, v, pack)
            np.testing.assert_array_equal(pisa.attention(q, bad, v, pack, copy=True), o)
        with self.assertRaisesRegex(pisa.ArgumentError, r"q\.stride"):
            pisa.attention(q[:, :, ::-1], k, v, pack)
        np.testing.assert_array_equal(pisa.attention(q[:, :, ::-1], k, v, pack, copy=True)[:, :, ::-1], o)

    def test_out(self):
        pack = pisa.load(sample("dense"))
        q, k, v = inputs(70, 200, 64)
        expected = pisa.attention(q, k, v, pack)
        out = np.empty_like(q)
        self.assertIs(pisa.attention(q, k, v, pack, out=out), out)
        np.testing.assert_array_equal(out, expected)
        with self.assertRaisesRegex(pisa.ArgumentError, r"out has shape \(1, 4, 70, 32\), must be q's"):
            pisa.attention(q, k, v, pack, out=out[..., :32])
        with self.assertRaisesRegex(pisa.ArgumentError, "out has type float16"):
            pisa.attention(q, k, v, pack, out=out.astype(np.float16))

    def test_out_that_must_not_be_written(self):
        pack = pisa.load(sample("dense"))
        wide = inputs(70, 200, 64)
        for q, k, v in (wide, list(map(_numpy.round_bf16, wide))):
            constant = bytes(q.nbytes)
            broadcast = np.lib.stride_tricks.as_strided(np.zeros_like(q[:, :1]), q.shape, (0, 0, *q.strides[2:]))
            for out, sentence in (
                (np.frombuffer(constant, q.dtype).reshape(q.shape), "out is read-only"),
                (np.broadcast_to(q[:, :1], q.shape), "out is read-only"),
                (broadcast, "out has strides .*: its elements overlap"),
            ):
                with self.assertRaisesRegex(pisa.ArgumentError, sentence):
                    pisa.attention(q, k, v, pack, out=out)
            self.assertEqual(constant, bytes(q.nbytes))
        with self.assertRaisesRegex(pisa.ArgumentError, "o overlaps q in memory"):
            pisa.attention(q, k, v, pack, out=q)
        expected = pisa.attention(*wide, pack)
        pisa.attention(*wide, pack, out=wide[0])  # rounded before it is written
        np.testing.assert_array_equal(wide[0], expected)

    def test_lists_lengths_budgets(self):
        pack = pisa.load(sample("hybrid"))
        q, k, v = inputs(300, 700, 64, batch=2)
        _, blocks = pisa.attention(q, k, v, pack, keep=3, return_blocks=True)
        self.assertEqual(blocks.shape, (2, 4, 3, 3))
        _, more = pisa.attention(q, k, v, pack, density=0.5, return_blocks=True)
        self.assertEqual(more.shape, (2, 4, 3, 5))
        np.testing.assert_array_equal(
            pisa.attention(q, k, v, pack, blocks_in=blocks), pisa.attention(q, k, v, pack, keep=3)
        )
        short = pisa.attention(q, k, v, pack, k_lengths=np.array([700, 100], np.int32))
        np.testing.assert_array_equal(short[0], pisa.attention(q, k, v, pack)[0])
        np.testing.assert_array_equal(short[1:], pisa.attention(q[1:], k[1:, :, :100], v[1:, :, :100], pack))

    def test_errors(self):
        pack = pisa.load(sample("hybrid"))
        q, k, v = inputs(70, 200, 64)
        for sentence, call in (
            (r"q has shape \(4, 70, 64\), must have four", lambda: pisa.attention(q[0], k, v, pack)),
            (r"q has shape .* but head_dim of .* is 64", lambda: pisa.attention(q[..., :32], k, v, pack)),
            (r"k has shape .* and v .*, which must be the same", lambda: pisa.attention(q, k, v[:, :, 1:], pack)),
            (r"heads / kv_heads is 4 / 1, must be the spec's 2", lambda: pisa.attention(q, k[:, :1], v[:, :1], pack)),
            ("their batches differ", lambda: pisa.attention(q.repeat(2, 0), k, v, pack)),
            ("density and keep are both set", lambda: pisa.attention(q, k, v, pack, keep=1, density=0.5)),
            ("density is 1.5", lambda: pisa.attention(q, k, v, pack, density=1.5)),
            ("keep is 0, must be positive", lambda: pisa.attention(q, k, v, pack, keep=0)),
            ("scale is -1", lambda: pisa.attention(q, k, v, pack, scale=-1)),
            ("k_lengths has shape", lambda: pisa.attention(q, k, v, pack, k_lengths=np.ones(2, np.int32))),
            ("k_lengths has type", lambda: pisa.attention(q, k, v, pack, k_lengths=np.ones(1))),
            ("blocks_in has shape", lambda: pisa.attention(q, k, v, pack, blocks_in=np.zeros((4, 1, 1), np.int32))),
            (
                "q_starts and k_starts go together",
                lambda: pisa.attention(q, k, v, pack, q_starts=np.zeros(2, np.int32)),
            ),
            ("pages is set, but", lambda: pisa.attention(q, k, v, pack, pages=np.zeros((1, 4), np.int32))),
            ("does not select blocks", lambda: pisa.select(q, k, pack)),
            ("q is a list, must be an array", lambda: pisa.attention([1], k, v, pack)),
            ("k_lengths is a list, must be an array", lambda: pisa.attention(q, k, v, pack, k_lengths=[200])),
            ("blocks_in is a list, must be an array", lambda: pisa.attention(q, k, v, pack, blocks_in=[[0]])),
            ("q_starts is a list", lambda: pisa.attention(q, k, v, pack, q_starts=[0, 70], k_starts=[0, 200])),
            ("pages is a list, must be an array", lambda: pisa.attention(q, k, v, pack, pages=[[0]])),
            ("k is a list, must be an array", lambda: pisa.attention(q, [1], v, pack)),
            ("out is a str, must be an array", lambda: pisa.attention(q, k, v, pack, out="o.npy")),
            ("v is None, must be an array", lambda: pisa.attention(q, k, None, pack)),
            ("pyramid is a ndarray, must be a pisa.Pyramid", lambda: pisa.decode(q, k, v, pack, q)),
            ("pack is a str, must be what pisa.load returns", lambda: pisa.attention(q, k, v, "flux1_dev")),
            ("pack is a str, must be what pisa.load returns", lambda: pisa.select(q, k, "flux1_dev")),
            ("pack is a NoneType", lambda: pisa.Pyramid(None, 1, 64)),
            ("room is 6.5, must be a whole number", lambda: pisa.Pyramid(pack, 1, 6.5)),
            ("keep is 2.5, must be a whole number", lambda: pisa.attention(q, k, v, pack, keep=2.5)),
            ("keep is 1180591620717411303424, must", lambda: pisa.attention(q, k, v, pack, keep=2**70)),
            ("keep is \\[2\\], must be a whole number", lambda: pisa.attention(q, k, v, pack, keep=[2])),
            ("density is '0.5', must be a number", lambda: pisa.attention(q, k, v, pack, density="0.5")),
            ("density is nan, must be positive", lambda: pisa.attention(q, k, v, pack, density=np.nan)),
            ("scale is '1', must be a positive", lambda: pisa.attention(q, k, v, pack, scale="1")),
            (
                "k_lengths has numbers that are not of int32",
                lambda: pisa.attention(q, k, v, pack, k_lengths=np.array([2**32 + 5])),
            ),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(pisa.ArgumentError, sentence):
                call()

    def test_dlpack(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        arrays = [x.astype(np.float16) for x in inputs(70, 200, 128, 2, 2)]
        pack = pisa.load("hybrid_fp16")
        o = pisa.attention(*map(Foreign, arrays), pack)
        expected = pisa.attention(*arrays, pack)
        np.testing.assert_array_equal(np.asarray(o), expected)
        out = np.zeros_like(arrays[0])
        pisa.attention(*map(Foreign, arrays), pack, out=Foreign(out))
        np.testing.assert_array_equal(out, expected)


class Selection(unittest.TestCase):
    def setUp(self):
        self.pack = pisa.load(sample("select"))

    def test_like_the_tool(self):
        q, k, v = inputs(200, 200, 64)
        blocks, worth = pisa.select(q, k, self.pack, worth=True)
        told = run_tool(self.pack, "blocks", "worth", q=q, k=k)
        np.testing.assert_array_equal(blocks, told["blocks"])
        np.testing.assert_array_equal(worth, told["worth"])
        o, lse, same = pisa.attention(q, k, v, self.pack, return_lse=True, return_blocks=True)
        told = run_tool(self.pack, "o", "lse", "blocks", q=q, k=k, v=v)
        np.testing.assert_array_equal(o, told["o"])
        np.testing.assert_array_equal(lse, told["lse"])
        np.testing.assert_array_equal(same, blocks)

    def test_starts(self):
        q, k, v = inputs(150, 150, 64)
        starts = np.array([0, 50, 50, 150], np.int32)
        o, blocks = pisa.attention(q, k, v, self.pack, q_starts=starts, k_starts=starts, return_blocks=True)
        self.assertEqual(blocks.shape, (2, 150, 5))
        for first, last in ((0, 50), (50, 150)):
            part = [np.ascontiguousarray(x[:, :, first:last]) for x in (q, k, v)]
            one, lists = pisa.attention(*part, self.pack, return_blocks=True)
            np.testing.assert_array_equal(o[:, :, first:last], one)
            np.testing.assert_array_equal(blocks[:, first:last], lists[0])

    def test_by_leaf(self):
        q, k, _ = inputs(100, 100, 64)
        blocks, offsets, queries = pisa.select(q, k, self.pack, by_leaf=True)
        self.assertEqual(offsets.shape, (2, 8))
        for head in range(2):
            for leaf in range(7):
                listed = queries[head, offsets[head, leaf] : offsets[head, leaf + 1]]
                np.testing.assert_array_equal(listed, np.nonzero((blocks[0, head] == leaf).any(1))[0])

    def test_decode(self):
        room, batch = 128, 2
        q, k, v = inputs(room, room, 64, batch=batch)
        whole, lists = pisa.attention(q, k, v, self.pack, return_blocks=True)
        pyramid = pisa.Pyramid(self.pack, batch, room, 2)
        pisa.select(q[:, :, :100], k, self.pack, k_lengths=np.full(batch, 100, np.int32), pyramid=pyramid)
        for n in (101, 102):
            lengths = np.full(batch, n, np.int32)
            last = np.ascontiguousarray(q[:, :, n - 1 : n])
            o, blocks = pisa.decode(last, k, v, self.pack, pyramid, k_lengths=lengths, return_blocks=True)
            np.testing.assert_array_equal(blocks[:, :, 0], lists[:, :, n - 1])
            self.assertLess(error(o[:, :, 0], whole[:, :, n - 1]), 1e-6)
        fresh = pisa.Pyramid(self.pack, batch, room, 2)
        pisa.select(q[:, :, :102], k, self.pack, k_lengths=np.full(batch, 102, np.int32), pyramid=fresh)
        self.assertEqual(fresh.memory.shape, pyramid.memory.shape)

    def test_foreign_pyramid(self):
        q, k, v = inputs(1, 128, 64, batch=2)
        for batch, room in ((2, 64), (2, 256), (1, 128)):
            pyramid = pisa.Pyramid(self.pack, batch, room, 2)
            with self.assertRaisesRegex(pisa.ArgumentError, "made for another batch, room or pack"):
                pisa.decode(q, k, v, self.pack, pyramid)
            with self.assertRaisesRegex(pisa.ArgumentError, "made for another batch, room or pack"):
                pisa.select(q, k, self.pack, pyramid=pyramid)

    def test_errors(self):
        q, k, v = inputs(100, 100, 64)
        with self.assertRaisesRegex(pisa.ArgumentError, "density"):
            pisa.attention(q, k, v, self.pack, density=0.5)
        with self.assertRaisesRegex(pisa.ArgumentError, "n_new is 17, must be from 0 to 16"):
            pisa.decode(q, k, v, self.pack, n_new=17)
        with self.assertRaisesRegex(pisa.ArgumentError, "n_new is 1.5, must be a whole number"):
            pisa.decode(q, k, v, self.pack, n_new=1.5)
        with self.assertRaisesRegex(pisa.Error, "phase is "):
            pisa.decode(*inputs(70, 200, 64), pisa.load(sample("dense")))


class Pages(unittest.TestCase):
    """Entries of the table that are no pages; those behind a sequence's last key are not looked at."""

    def setUp(self):
        self.pack = pisa.load("llama3_8b")
        self.q = normal((2, 4, 3, 128), 0)
        self.k, self.v = normal((8, 1, self.pack.page, 128), 1), normal((8, 1, self.pack.page, 128), 2)

    def calls(self, **arrays):
        for call in (pisa.attention, pisa.decode):
            yield lambda: call(self.q, self.k, self.v, self.pack, **arrays)
        if self.pack.selects:
            yield lambda: pisa.select(self.q, self.k, self.pack, **arrays)

    def test_outside(self):
        for wrong in (8, 10**7, -1):
            pages = np.array([[3, 1], [0, wrong]], np.int32)
            for call in self.calls(pages=pages):
                with self.assertRaisesRegex(pisa.ArgumentError, rf"pages\[1, 1\] is {wrong}, must be from 0 to 7"):
                    call()
            for call in self.calls(pages=pages, k_lengths=np.array([2, 1], np.int32) * self.pack.page):
                call()
            for call in self.calls(pages=pages, k_lengths=np.array([200, self.pack.page + 1], np.int32)):
                with self.assertRaisesRegex(pisa.ArgumentError, r"pages\[1, 1\]"):
                    call()
        for call in self.calls(pages=np.array([[3, 1], [0, 2**32 + 1]])):
            with self.assertRaisesRegex(pisa.ArgumentError, "pages has numbers that are not of int32"):
                call()

    def test_short_pages(self):
        pages = np.array([[3, 1], [0, 2]], np.int32)
        self.k, self.v = (np.ascontiguousarray(x[:, :, :32]) for x in (self.k, self.v))
        for call in self.calls(pages=pages):
            with self.assertRaisesRegex(pisa.ArgumentError, r"k has shape \(8, 1, 32, 128\), must be \[pages, Hk, 64,"):
                call()

    def test_out_in_the_pages(self):
        pages = np.array([[0], [1]], np.int32)
        self.q = np.zeros((2, 4, 3, 128), np.uint16)
        self.k = np.zeros((8, 1, self.pack.page, 128), np.uint16)
        self.v = self.k.copy()
        for x in (self.k, self.v):
            out = x.reshape(-1)[2 * 64 * 128 :][: self.q.size].reshape(self.q.shape)
            with self.assertRaisesRegex(pisa.ArgumentError, "out overlaps the pages of k or v"):
                pisa.attention(self.q, self.k, self.v, self.pack, pages=pages, out=out)


if __name__ == "__main__":
    main()
