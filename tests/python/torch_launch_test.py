"""torch: the ways of a GPU tensor to a launch, on a driver whose kernels do nothing; what they cost the host."""

import concurrent.futures
import contextlib
import ctypes
import os
import threading
import time
import unittest

from common import main, pisa, sample, skip

try:
    import torch
except ImportError as missing:
    skip(missing)

from pisa import _torch
from torch_common import bits, inputs


POINTER = ctypes.c_void_p
LAUNCH = ctypes.PYFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER, ctypes.c_size_t, POINTER, POINTER)


class Launches(unittest.TestCase):
    """The way of a GPU tensor through Python, walked with CPU tensors on a driver whose kernels do nothing."""

    extension = None

    def setUp(self):
        os.environ["PISA_LIBCUDA"] = os.environ["PISA_FAKE_CUDA"]
        names = ("device_number", "current_device", "current_stream", "new_gpu", "new_workspace", "_repeat")
        self.saved = {name: getattr(_torch, name) for name in names}
        self.streams = []
        _torch.device_number = lambda x: 0
        _torch.current_device = lambda: 0
        _torch.new_gpu = _torch.new_cpu
        _torch.new_workspace = lambda shape, *_: _torch.make_memory(*shape, "cpu")  # the GPU's allocator aligns
        _torch.current_stream = lambda device: self.streams.append(device) or 0
        _torch._repeat = self.extension
        _torch._local.repeats.clear()

    def tearDown(self):
        for name, value in self.saved.items():
            setattr(_torch, name, value)
        _torch._local.repeats.clear()

    @contextlib.contextmanager
    def seen(self, note):
        """note(call, by_repeat) sees every launch."""
        launch, address = _torch.lib.launch, _torch.lib.launch_address

        def keep(module, call, *rest):
            note(call._obj, False)
            return launch(module, call, *rest)

        @LAUNCH
        def keep_repeated(module, call, *rest):
            note(_torch.lib.Attention.from_address(call), True)
            return LAUNCH(address)(module, call, *rest)

        _torch.lib.launch, _torch.lib.launch_address = keep, ctypes.cast(keep_repeated, POINTER).value
        try:
            yield
        finally:
            _torch.lib.launch, _torch.lib.launch_address = launch, address
            _torch._local.repeats.clear()

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
        """Every call gets the layouts that it has, whatever the call before had; what was seen before is repeated."""
        pack, (q, k, v) = pisa.load(sample("hybrid")), inputs(300, 700)
        turned = q.transpose(1, 2).contiguous().transpose(1, 2)
        longer = inputs(300, 800)
        seen = []

        def note(call, by_repeat):
            seen.append((by_repeat, call.n_k, call.q.stride[1], call.q.data, call.k.data, call.v.data))

        with self.seen(note):
            for call in (
                lambda *qkv: pisa.attention(*qkv, pack),
                lambda *qkv: torch.ops.pisa.attention.default(*qkv, pack.key),
            ):
                before = []
                for qkv in [(q, k, v), (turned, k, v), longer, (turned, k, v), (turned, k, v)] * 2:
                    layout = qkv[0].stride(), qkv[1].shape
                    o = call(*qkv)
                    self.assertEqual((o.shape, o.stride()), (qkv[0].shape, qkv[0].stride()))
                    repeated = self.extension is not None and layout in before
                    expected = (repeated, qkv[1].shape[2], qkv[0].stride(1), *(x.data_ptr() for x in qkv))
                    self.assertEqual(seen.pop(), expected)
                    before.append(layout)
                for wrong in ((q, k.half(), v), (q, k, v[:, :, :-1]), (q, k, v.float()), (q[..., :32], k, v)):
                    with self.assertRaises(pisa.ArgumentError):
                        call(*wrong)
                parameter = torch.nn.Parameter(k, requires_grad=False)
                self.assertEqual(call(q, parameter, v).shape, q.shape)
                self.assertEqual(seen.pop()[0], False)
        self.assertEqual(seen, [])

    def test_outputs(self):
        """What a call asks for is where the launch writes it."""
        pack, (q, k, v) = pisa.load(sample("hybrid")), inputs(300, 700)
        lengths, out = torch.tensor([650], dtype=torch.int32), torch.empty_like(q)
        asked = {"return_lse": True, "return_blocks": True, "k_lengths": lengths, "out": out, "keep": 3, "scale": 0.5}
        seen = []

        def note(call, by_repeat):
            pointers = [call.o.data, call.lse, call.blocks, call.k_lengths]
            seen.append((by_repeat, pointers, call.keep, call.scale, call.worth))

        with self.seen(note):
            for repeated in (False, self.extension is not None):
                found = pisa.attention(q, k, v, pack, **asked)
                self.assertIs(found[0], out)
                self.assertEqual([x.shape for x in found[1:]], [(1, 4, 300), (1, 4, 3, 3)])
                addresses = [x.data_ptr() for x in (*found, lengths)]
                self.assertEqual(seen.pop(), (repeated, addresses, 3, 0.5, None))

    def test_selection(self):
        pack, (q, k, v) = pisa.load(sample("select")), inputs(300, 300)
        pyramid, last = pisa.Pyramid(pack, 1, 300, 2, device="cpu"), q[:, :, -1:].contiguous()
        seen = []
        with self.seen(lambda call, by_repeat: seen.append((by_repeat, call.blocks, call.worth, call.pyramid))):
            for repeated in (False, self.extension is not None):
                blocks, worth = pisa.select(q, k, pack, worth=True, pyramid=pyramid)
                addresses = [x.data_ptr() for x in (blocks, worth, pyramid.memory)]
                self.assertEqual(seen.pop(), (repeated, *addresses))
                o = pisa.decode(last, k, v, pack, pyramid)
                self.assertEqual(o.shape, last.shape)
                self.assertEqual(seen.pop(), (repeated, None, None, pyramid.memory.data_ptr()))

    def test_refusals(self):
        """What libpisa refuses is an error on each way, with its sentence."""
        pack, (q, k, v) = pisa.load(sample("hybrid")), inputs(300, 700)
        whole = torch.empty(q.numel() + 8, dtype=q.dtype)
        shifted = whole[1 : 1 + q.numel()].view(q.shape)
        for out in (torch.empty_like(q), shifted, shifted, torch.empty_like(q), shifted):
            if out is shifted:
                with self.assertRaisesRegex(pisa.ArgumentError, "aligned|multiple"):
                    pisa.attention(q, k, v, pack, out=out)
            else:
                self.assertIs(pisa.attention(q, k, v, pack, out=out), out)

    def test_many_layouts(self):
        pack = pisa.load(sample("hybrid"))
        for n in range(2 * _torch.MOST_LAYOUTS + 2):
            q, k, v = inputs(64, 64 + n)
            self.assertEqual(pisa.attention(q, k, v, pack).shape, q.shape)
        self.assertLessEqual(max(map(len, _torch._local.repeats.values()), default=0), _torch.MOST_LAYOUTS)

    def test_calls_within_calls(self):
        """A finalizer or a signal's handler may call in the midst of a call."""
        pack, outer, inner = pisa.load(sample("hybrid")), inputs(300, 700), inputs(300, 700)
        seen, results, new_workspace = [], [None], _torch.new_workspace

        def interrupt(*like):
            if armed and not results[1:]:
                results.append(None)
                _torch._local.repeats.clear()
                results[1] = pisa.attention(*inner, pack)
            return new_workspace(*like)

        _torch.new_workspace, armed = interrupt, []
        with self.seen(lambda call, by_repeat: seen.append([getattr(call, name).data for name in "qkvo"])):
            for _ in range(2):
                pisa.attention(*outer, pack)
            seen.clear()
            armed.append(True)
            results[0] = pisa.attention(*outer, pack)
            pisa.attention(*outer, pack)
        wanted = [[x.data_ptr() for x in (*qkv, o)] for qkv, o in zip((inner, outer), reversed(results))]
        self.assertEqual(seen[:2], wanted)
        self.assertEqual(seen[2][:3], wanted[1][:3])

    def test_threads(self):
        """Calls of several threads at once, which take turns in the midst of launches: each has its own tensors."""
        pack, seen = pisa.load(sample("hybrid")), {}

        def note(call, by_repeat):
            time.sleep(0)  # another thread's turn
            seen.setdefault(threading.get_ident(), set()).add(tuple(getattr(call, name).data for name in "qkv"))

        def work(qkv):
            for _ in range(50):
                self.assertEqual(pisa.attention(*qkv, pack).shape, qkv[0].shape)
            return threading.get_ident(), {tuple(x.data_ptr() for x in qkv)}

        with self.seen(note), concurrent.futures.ThreadPoolExecutor(4) as pool:
            expected = {}
            for thread, addresses in pool.map(work, [inputs(300, 700) for _ in range(8)]):
                expected.setdefault(thread, set()).update(addresses)
        self.assertEqual(seen, expected)

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


@unittest.skipIf(_torch._repeat is None, "there is no extension, or torch is older than 2.10")
class Repeats(Launches):
    """The way through the extension."""

    extension = _torch._repeat


if __name__ == "__main__":
    main()
