"""torch: the same bits as NumPy, ops, compiled graphs, gradients."""

import threading
import unittest

from common import error, main, pisa, sample, skip

try:
    import torch
except ImportError as missing:
    skip(missing)

import numpy as np
from torch_common import bits, inputs


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b)) and len(a) == len(b)


def compiled(function, **options):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


class Tensors(unittest.TestCase):
    def setUp(self):
        self.pack = pisa.load(sample("hybrid"))
        self.qkv = inputs(300, 700)

    def test_like_numpy(self):
        found = pisa.attention(*self.qkv, self.pack, return_lse=True, return_blocks=True, keep=3)
        expected = pisa.attention(*map(bits, self.qkv), self.pack, return_lse=True, return_blocks=True, keep=3)
        np.testing.assert_array_equal(bits(found[0]), expected[0])
        for x, y in zip(found[1:], expected[1:]):
            np.testing.assert_array_equal(x.numpy(), y)

    def test_dense_is_sdpa(self):
        q, k, v = self.qkv
        o = pisa.attention(q, k, v, pisa.load(sample("dense")))
        sdpa = torch.nn.functional.scaled_dot_product_attention(*(x.float() for x in self.qkv), enable_gqa=True)
        self.assertLess(error(o.float(), sdpa), 4e-3)

    def test_layouts(self):
        expected = pisa.attention(*self.qkv, self.pack)
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in self.qkv]
        o = pisa.attention(*turned, self.pack)
        self.assertTrue(torch.equal(o, expected))
        self.assertEqual(o.stride(), turned[0].stride())  # so that [B, N, H D] is a view
        fused = (
            torch.cat([turned[0].transpose(1, 2).flatten(2)] * 3, dim=2)[..., 256:512]
            .unflatten(2, (4, 64))
            .transpose(1, 2)
        )
        self.assertTrue(torch.equal(pisa.attention(fused, *turned[1:], self.pack), expected))

    def test_strides(self):
        q, k, v = self.qkv
        across = k.transpose(2, 3).contiguous().transpose(2, 3)
        shifted = torch.empty(k.numel() + 1, dtype=k.dtype)[1:].view(k.shape).copy_(k)
        expected = pisa.attention(q, k, v, self.pack)
        for bad, sentence in ((across, r"k\.stride"), (shifted, r"k\.data|k is at|k .*16")):
            with self.assertRaisesRegex(pisa.ArgumentError, sentence):
                pisa.attention(q, bad, v, self.pack)
            self.assertTrue(torch.equal(pisa.attention(q, bad, v, self.pack, copy=True), expected))

    def test_out(self):
        q, k, v = self.qkv
        out = torch.empty(1, 300, 4, 64, dtype=q.dtype).transpose(1, 2)
        self.assertIs(pisa.attention(q, k, v, self.pack, out=out), out)
        self.assertTrue(torch.equal(out, pisa.attention(q, k, v, self.pack)))
        with self.assertRaisesRegex(pisa.ArgumentError, "out has shape"):
            pisa.attention(q, k, v, self.pack, out=out[:, :2])
        with self.assertRaisesRegex(pisa.ArgumentError, "out has type torch.float32"):
            pisa.attention(q, k, v, self.pack, out=out.float())

    def test_errors(self):
        q, k, v = self.qkv
        for sentence, call in (
            ("k has type torch.float16, must be torch.bfloat16", lambda: pisa.attention(q, k.half(), v, self.pack)),
            ("v is on meta, q on cpu", lambda: pisa.attention(q, k, v.to("meta"), self.pack)),
            ("k_lengths has type", lambda: pisa.attention(q, k, v, self.pack, k_lengths=torch.ones(1))),
            (
                "k_lengths has shape",
                lambda: pisa.attention(q, k, v, self.pack, k_lengths=torch.ones(2, dtype=torch.int32)),
            ),
            ("q has shape", lambda: pisa.attention(q[0], k, v, self.pack)),
            ("k is a ndarray, but q is a tensor", lambda: pisa.attention(q, k.float().numpy(), v, self.pack)),
            ("k_lengths is a list, must be an array", lambda: pisa.attention(q, k, v, self.pack, k_lengths=[1])),
            ("k_lengths is a ndarray", lambda: pisa.attention(q, k, v, self.pack, k_lengths=np.ones(1, np.int32))),
            ("keep is 2.5, must be a whole", lambda: pisa.attention(q, k, v, self.pack, keep=2.5)),
            ("density is '0.5', must be a number", lambda: pisa.attention(q, k, v, self.pack, density="0.5")),
            ("out is a list", lambda: pisa.attention(q, k, v, self.pack, out=[1])),
            ("pack is a str", lambda: pisa.attention(q, k, v, "flux1_dev")),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(pisa.ArgumentError, sentence):
                call()

    def test_pages(self):
        pack = pisa.load("llama3_8b")
        q = torch.zeros(1, 4, 3, 128, dtype=torch.bfloat16)
        k = torch.zeros(8, 1, 64, 128, dtype=torch.bfloat16)
        for call in (pisa.attention, pisa.decode):
            for wrong in (8, 10**7, -1):
                pages = torch.tensor([[3, wrong]], dtype=torch.int32)
                with self.assertRaisesRegex(pisa.ArgumentError, rf"pages\[0, 1\] is {wrong}, must be from 0 to 7"):
                    call(q, k, k, pack, pages=pages)
                call(q, k, k, pack, pages=pages, k_lengths=torch.tensor([64], dtype=torch.int32))
            with self.assertRaisesRegex(pisa.ArgumentError, r"k has shape .*, must be \[pages, Hk, 64, D\]"):
                call(q, k[:, :, :8], k[:, :, :8], pack, pages=pages)
            with self.assertRaisesRegex(pisa.ArgumentError, "out overlaps the pages of k in memory"):
                out = k.view(-1)[3 * 64 * 128 :][: q.numel()].view(q.shape)
                call(q, k, k, pack, pages=torch.zeros(1, 2, dtype=torch.int32), out=out)

    def test_dlpack_keeps_bf16(self):
        class Foreign:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **options):
                return self.tensor.__dlpack__()

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        o = pisa.attention(*map(Foreign, self.qkv), self.pack)
        self.assertTrue(torch.equal(o, pisa.attention(*self.qkv, self.pack)))

    def test_threads(self):
        expected = pisa.attention(*self.qkv, self.pack)
        wrong = []

        def work():
            for _ in range(5):
                if not torch.equal(pisa.attention(*self.qkv, self.pack), expected):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(wrong)


class Gradients(unittest.TestCase):
    def test_refused(self):
        pack, (q, k, v) = pisa.load(sample("hybrid")), inputs(300, 700)
        q.requires_grad_()
        for call in (pisa.attention, compiled(pisa.attention)):
            with self.assertRaisesRegex(Exception, "pisa has no gradients, but q, k or v asks for them"):
                call(q, k, v, pack)
        with torch.no_grad():
            expected = pisa.attention(q, k, v, pack)
            self.assertTrue(torch.equal(compiled(pisa.attention)(q, k, v, pack), expected))
        with torch.inference_mode():
            self.assertTrue(torch.equal(pisa.attention(q, k, v, pack), expected))
            self.assertTrue(torch.equal(compiled(pisa.attention)(q, k, v, pack), expected))
        ops = torch.ops.pisa.attention
        for op, more in ((ops.default, ()), (ops.full, (0.0, 0.0, 0, *[None] * 5, True, False))):
            with self.subTest(op), self.assertRaisesRegex(NotImplementedError, "pisa has no gradients"):
                op(q, k, v, pack.key, *more)
            with self.assertRaisesRegex(Exception, "pisa has no gradients"):
                compiled(lambda q: op(q * 2, k, v, pack.key, *more))(q)
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    found = op(q, k, v, pack.key, *more)
                self.assertTrue(torch.equal(found[0] if more else found, expected))
                self.assertFalse(found[0].requires_grad)


class Graphs(unittest.TestCase):
    def test_attention(self):
        pack, (q, k, v) = pisa.load("flux1_dev", density=0.1), inputs(300, 1700, 128, 2, 2)

        def call(q, k, v):
            return pisa.attention(q * 2, k, v, pack, scale=0.1, keep=3, return_lse=True, return_blocks=True)

        self.assertTrue(same(compiled(call)(q, k, v), call(q, k, v)))

        def plain(q, k, v):
            return pisa.attention(q * 2, k, v, pack).transpose(1, 2).flatten(2)

        graph = compiled(plain, dynamic=True)
        for n in (300, 310, 129):
            self.assertTrue(torch.equal(graph(q[:, :, :n], k, v), plain(q[:, :, :n], k, v)))

        def into(q, k, v, out):
            pisa.attention(q, k, v, pack, out=out)
            return out + 1

        outs = torch.empty_like(q), torch.empty_like(q)
        self.assertTrue(torch.equal(compiled(into)(q, k, v, outs[0]), into(q, k, v, outs[1])))
        self.assertTrue(torch.equal(*outs))

        lengths = torch.tensor([1600], dtype=torch.int32)
        listed = torch.zeros(1, 2, 3, 2, dtype=torch.int32)
        given = compiled(lambda: pisa.attention(q, k, v, pack, k_lengths=lengths, blocks_in=listed, copy=True))
        expected = pisa.attention(q, k, v, pack, k_lengths=lengths, blocks_in=listed)
        self.assertTrue(torch.equal(given(), expected))

    def test_selection(self):
        pack, (q, k, v) = pisa.load(sample("select")), inputs(100, 128)
        lengths = torch.tensor([100], dtype=torch.int32)

        def lists(q, k):
            return pisa.select(q * 2, k, pack, k_lengths=lengths, worth=True, by_leaf=True)

        found, expected = compiled(lists)(q, k), lists(q, k)
        self.assertTrue(same(found[:3], expected[:3]))
        ends = expected[2][:, -1]
        self.assertTrue(all(torch.equal(found[3][h, : ends[h]], expected[3][h, : ends[h]]) for h in range(2)))

        def steps(q, k, v, pyramid):
            first = pisa.attention(q, k, v, pack, k_lengths=lengths, pyramid=pyramid)
            longer = lengths + 1
            return first, *pisa.decode(
                q[:, :, -1:] + 1, k, v, pack, pyramid, k_lengths=longer, return_lse=True, return_blocks=True
            )

        pyramids = [pisa.Pyramid(pack, 1, 128, 2, device="cpu") for _ in range(2)]
        for pyramid in pyramids:
            pyramid.memory.zero_()
        self.assertTrue(same(compiled(steps)(q, k, v, pyramids[0]), steps(q, k, v, pyramids[1])))
        self.assertTrue(torch.equal(pyramids[0].memory, pyramids[1].memory))
        self.assertTrue(pyramids[0].memory.any())

    def test_foreign_pyramid(self):
        pack, (q, k, v) = pisa.load(sample("select")), inputs(1, 128)
        for room in (64, 256):
            memory = pisa.Pyramid(pack, 1, room, 2, device="cpu").memory
            with self.assertRaisesRegex(pisa.ArgumentError, "made for another batch, room or pack"):
                torch.ops.pisa.decode.default(q, k, v, memory, torch.zeros_like(q), pack.key)
            with self.assertRaisesRegex(pisa.ArgumentError, "made for another batch, room or pack"):
                torch.ops.pisa.decode.full(q, k, v, memory, torch.zeros_like(q), None, None, pack.key)

    def test_ops(self):
        pack, (q, k, v) = pisa.load(sample("select")), inputs(100, 128)
        lengths, none = torch.tensor([100], dtype=torch.int32), [None] * 4
        checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
        ops = torch.ops.pisa
        arguments = (q, k, v, pack.key, 0.0, 0.0, 0, lengths, *none, True, True)
        torch.library.opcheck(ops.attention.full, arguments, test_utils=checks)
        torch.library.opcheck(ops.attention.default, (q, k, v, pack.key), test_utils=checks)
        torch.library.opcheck(ops.attention.more, (q, k, v, pack.key, 0.1), test_utils=checks)
        torch.library.opcheck(ops.select.full, (q, k, pack.key, 0.0, lengths, *none, True, False), test_utils=checks)
        torch.library.opcheck(ops.select.default, (q, k, pack.key), test_utils=checks)
        memory, o = pisa.Pyramid(pack, 1, 128, 2, device="cpu").memory.zero_(), torch.zeros_like(q)
        arguments = (q, k, v, memory, o, None, None, None, pack.key, 0.0, lengths, *none)
        torch.library.opcheck(ops.prefill.default, arguments, test_utils=checks)
        last, o = q[:, :, -1:].contiguous(), torch.zeros(1, 4, 1, 64, dtype=q.dtype)
        arguments = (last, k, v, memory, o, None, None, pack.key, 0.0, lengths, *none, 0, False)
        torch.library.opcheck(ops.decode.full, arguments, test_utils=checks)
        arguments = (last, k, v, memory, o, pack.key, lengths)
        torch.library.opcheck(ops.decode.default, arguments, test_utils=checks)
        torch.library.opcheck(ops.decode.more, (*arguments, 0.0, 0), test_utils=checks)

    def test_overloads(self):
        """Of the same call the overloads return the same bits, in and out of compiled graphs."""
        pack, (q, k, v) = pisa.load(sample("select")), inputs(100, 128)
        ops, key = torch.ops.pisa, pack.key
        for plain, full, *same_calls in (
            (
                lambda: ops.attention.default(q, k, v, key),
                lambda: ops.attention.full(q, k, v, key, 0.0, 0.0, 0),
                lambda: ops.attention.more(q, k, v, key),
                lambda: ops.attention(q, k, v, key),
                lambda: pisa.attention(q, k, v, pack),
            ),
            (
                lambda: ops.attention.more(q, k, v, key, 0.3),
                lambda: ops.attention.full(q, k, v, key, 0.3),
                lambda: ops.attention(q, k, v, key, 0.3),
                lambda: pisa.attention(q, k, v, pack, scale=0.3),
            ),
            (
                lambda: ops.select.default(q, k, key),
                lambda: ops.select.full(q, k, key),
                lambda: ops.select(q, k, key),
                lambda: pisa.select(q, k, pack),
            ),
        ):
            (expected,) = full()
            for call in (plain, *same_calls):
                self.assertTrue(torch.equal(call(), expected))
                self.assertTrue(torch.equal(compiled(call)(), expected))
        last, lengths = q[:, :, -1:].contiguous(), torch.tensor([100], dtype=torch.int32)
        for numbers in ((), (0.0, 0), (0.3, 1)):
            pyramids = [pisa.Pyramid(pack, 1, 128, 2, device="cpu") for _ in range(3)]
            memories = [pyramid.memory.zero_() for pyramid in pyramids]
            outs = [torch.zeros_like(last) for _ in range(3)]
            op = ops.decode.more if numbers else ops.decode.default
            op(last, k, v, memories[0], outs[0], key, lengths, *numbers)
            scale, n_new = numbers or (0.0, 1)
            rest = (None, None, key, scale, lengths, *[None] * 4, n_new)
            ops.decode.full(last, k, v, memories[1], outs[1], *rest)

            def call():
                asked = {"k_lengths": lengths, "n_new": n_new, "scale": scale or None, "out": outs[2]}
                pisa.decode(last, k, v, pack, pyramids[2], **asked)

            compiled(call)()
            for i in (1, 2):
                self.assertTrue(torch.equal(outs[0], outs[i]) and torch.equal(memories[0], memories[i]))

    def test_watched(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        pack = pisa.load(sample("hybrid"))
        with FakeTensorMode():
            q, k, v = (torch.empty(1, h, n, 64, dtype=torch.bfloat16) for h, n in ((4, 300), (2, 700), (2, 700)))
            o, blocks = pisa.attention(q, k, v, pack, return_blocks=True)
        self.assertEqual((o.shape, blocks.shape), (q.shape, (1, 4, 3, 1)))


if __name__ == "__main__":
    main()
