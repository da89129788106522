"""torch: the way of a GPU tensor to a launch, on a driver whose kernels do nothing; what it costs the host."""

import os
import time
import unittest

from common import main, pisa, sample, skip

try:
    import torch
except ImportError as missing:
    skip(missing)

from pisa import _torch
from torch_common import bits, inputs


class Launches(unittest.TestCase):
    """The way of a GPU tensor, walked with CPU tensors on a driver whose kernels do nothing."""

    def setUp(self):
        os.environ["PISA_LIBCUDA"] = os.environ["PISA_FAKE_CUDA"]
        names = ("device_number", "current_device", "current_stream", "new_gpu", "new_workspace")
        self.saved = {name: getattr(_torch, name) for name in names}
        self.streams = []
        _torch.device_number = lambda x: 0
        _torch.current_device = lambda: 0
        _torch.new_gpu = _torch.new_cpu
        _torch.new_workspace = lambda shape, *_: _torch.make_memory(*shape, "cpu")  # the GPU's allocator aligns
        _torch.current_stream = lambda device: self.streams.append(device) or 0

    def tearDown(self):
        for name, value in self.saved.items():
            setattr(_torch, name, value)

    def test_calls(self):
        for name in (
            "dense",
            "hybrid",
            "select",
        ):  # the driver has one shared-memory limit for both attend_edge: the larger
            pack = pisa.load(sample(name))
            q, k, v = inputs(300, 300)
            o = pisa.attention(q, k, v, pack, return_lse=True)[0]
            self.assertEqual((o.shape, o.dtype), (q.shape, q.dtype))
            self.assertEqual(self.streams.pop(), 0)
        pyramid = pisa.Pyramid(pack, 1, 300, 2, device="cpu")
        pisa.select(q, k, pack, worth=True, pyramid=pyramid)
        pisa.decode(q[:, :, -1:], k, v, pack, pyramid)
        with self.assertRaisesRegex(pisa.ArgumentError, "pyramid"):
            pisa.decode(q[:, :, -1:], k, v, pack)
        for sentence, call in (
            ("k is a ndarray", lambda: pisa.attention(q, k.float().numpy(), v, pack)),
            ("k_lengths is a list", lambda: pisa.attention(q, k, v, pack, k_lengths=[1])),
            ("k_lengths is a list", lambda: pisa.select(q, k, pack, k_lengths=[1])),
            ("k_lengths is a list", lambda: pisa.decode(q, k, v, pack, pyramid, k_lengths=[1])),
            ("keep is \\[2\\]", lambda: pisa.attention(q, k, v, pack, keep=[2])),
            ("keep is 2.5", lambda: pisa.attention(q, k, v, pack, keep=2.5)),
            ("pyramid is a ndarray, must be a pisa.Pyramid", lambda: pisa.select(q, k, pack, pyramid=bits(q))),
            ("pack is a str", lambda: pisa.attention(q, k, v, "flux1_dev")),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(pisa.ArgumentError, sentence):
                call()
        self.assertEqual(len(pack._modules), 1)

    def test_layouts(self):
        """Every call gets the plan of its own layouts, whatever the call before had."""
        pack, (q, k, v) = pisa.load(sample("hybrid")), inputs(300, 700)
        turned = q.transpose(1, 2).contiguous().transpose(1, 2)
        longer = inputs(300, 800)
        seen, launch = [], _torch.lib.launch

        def keep(module, call, *rest):
            request = call._obj
            seen.append((request.n_k, request.q.stride[1], request.q.data, request.k.data, request.v.data))
            return launch(module, call, *rest)

        _torch.lib.launch = keep
        try:
            for call in (
                lambda *qkv: pisa.attention(*qkv, pack),
                lambda *qkv: torch.ops.pisa.attention.default(*qkv, pack.key),
            ):
                for qkv in [(q, k, v), (turned, k, v), longer, (turned, k, v), (turned, k, v)] * 2:
                    o = call(*qkv)
                    self.assertEqual((o.shape, o.stride()), (qkv[0].shape, qkv[0].stride()))
                    expected = (qkv[1].shape[2], qkv[0].stride(1), *(x.data_ptr() for x in qkv))
                    self.assertEqual(seen.pop(), expected)
                for wrong in ((q, k.half(), v), (q, k, v[:, :, :-1]), (q, k, v.float()), (q[..., :32], k, v)):
                    with self.assertRaises(pisa.ArgumentError):
                        call(*wrong)
        finally:
            _torch.lib.launch = launch

    def test_calls_within_calls(self):
        """A finalizer or a signal's handler may call in the midst of a call."""
        pack, outer, inner = pisa.load(sample("hybrid")), inputs(300, 700), inputs(300, 700)
        seen, launch = [], _torch.lib.launch

        def keep(module, call, *rest):
            seen.append([getattr(call._obj, name).data for name in "qkvo"])
            return launch(module, call, *rest)

        def interrupt(device):
            if not results[1:]:
                results.append(None)
                results[1] = pisa.attention(*inner, pack)
            return 0

        pisa.attention(*outer, pack)
        results = [None]
        _torch.lib.launch, _torch.current_stream = keep, interrupt
        try:
            results[0] = pisa.attention(*outer, pack)
            pisa.attention(*outer, pack)
        finally:
            _torch.lib.launch = launch
        wanted = [[x.data_ptr() for x in (*qkv, o)] for qkv, o in zip((inner, outer), reversed(results))]
        self.assertEqual(seen[:2], wanted)
        self.assertEqual(seen[2][:3], wanted[1][:3])

    def test_host_time(self):
        pack = pisa.load(sample("hybrid"))
        q, k, v = inputs(300, 700)
        best = {}
        op = torch.ops.pisa.attention.default
        for name, call in (
            ("pisa.attention", lambda: pisa.attention(q, k, v, pack)),
            ("torch.ops.pisa.attention", lambda: op(q, k, v, pack.key)),
        ):
            with torch.inference_mode():
                call()
                rounds = []
                for _ in range(20):
                    begin = time.thread_time()
                    for _ in range(100):
                        call()
                    rounds.append((time.thread_time() - begin) / 100)
                    self.streams.clear()
                best[name] = min(rounds) * 1e6
        print("".join(f"{name}: {us:.1f} us of a processor\n" for name, us in best.items()), end="")
        self.assertLess(best["pisa.attention"], 45, "three times what is promised on a machine that is not busy")


if __name__ == "__main__":
    main()
