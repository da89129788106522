"""torch on a GPU: launches against the CPU, streams, threads, CUDA graphs, compiled graphs, several GPUs, host time.

PISA_PACKS=generated PISA_LIBRARY=... python3 tests/python/gpu_test.py
"""

import threading
import time
import unittest

from common import error, main, pisa, skip

try:
    import torch
except ImportError as missing:
    skip(missing)
if not torch.cuda.is_available():
    skip("torch sees no GPU")


def inputs(n, device="cuda", heads=24):
    torch.manual_seed(n)
    return [torch.randn(1, heads, n, 128, dtype=torch.bfloat16).to(device) for _ in range(3)]


class Gpu(unittest.TestCase):
    def test_like_the_cpu(self):
        for name in ("dense", "flux1_dev"):
            pack, qkv = pisa.load(name), inputs(1700, heads=2)
            found = pisa.attention(*qkv, pack, return_lse=True)
            blocks = None if name == "dense" else pisa.attention(*qkv, pack, return_blocks=True)[1]
            expected = pisa.attention(
                *(x.cpu() for x in qkv), pack, return_lse=True, blocks_in=None if blocks is None else blocks.cpu()
            )
            self.assertLess(error(found[0].float().cpu(), expected[0].float()), 6e-3)
            self.assertLess((found[1].cpu() - expected[1]).abs().max(), 2e-3)

    def test_graph(self):
        pack, (q, k, v) = pisa.load("flux1_dev"), inputs(4608)
        expected = pisa.attention(q, k, v, pack)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = pisa.attention(q, k, v, pack)
        o.zero_()
        graph.replay()
        self.assertTrue(torch.equal(o, expected))

    def test_compiled(self):
        pack, (q, k, v) = pisa.load("flux1_dev"), inputs(4608)
        with torch.inference_mode():
            call = torch.compile(
                lambda q, k, v: pisa.attention(q, k, v, pack) * 2, fullgraph=True, mode="reduce-overhead"
            )
            for _ in range(4):
                self.assertTrue(torch.equal(call(q, k, v), pisa.attention(q, k, v, pack) * 2))

    def test_streams_and_threads(self):
        pack, (q, k, v) = pisa.load("flux1_dev"), inputs(4608)
        expected, wrong = pisa.attention(q, k, v, pack), []
        torch.cuda.synchronize()

        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(10):
                    if not torch.equal(pisa.attention(q, k, v, pack), expected):
                        wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(wrong)

    @unittest.skipIf(torch.cuda.device_count() < 2, "there is one GPU")
    def test_two_gpus(self):
        pack, qkv = pisa.load("flux1_dev"), inputs(4608)
        expected = pisa.attention(*qkv, pack)
        for _ in range(2):
            found = pisa.attention(*(x.to("cuda:1") for x in qkv), pack)
            self.assertEqual(found.get_device(), 1)
            self.assertTrue(torch.equal(found.to("cuda:0"), expected))
            self.assertTrue(torch.equal(pisa.attention(*qkv, pack), expected))
        there = [x.to("cuda:1") for x in qkv]
        for current in (1, 1, 0, 1):  # as the current device, where calls are repeated, and not
            with torch.cuda.device(current):
                self.assertTrue(torch.equal(pisa.attention(*there, pack).to("cuda:0"), expected))
                self.assertTrue(torch.equal(pisa.attention(*qkv, pack), expected))

    def test_host_time(self):
        """What a call takes the host, the driver's launches included; few enough that the queue does not fill."""
        pack, (q, k, v) = pisa.load("flux1_dev"), inputs(4608)
        op, best = torch.ops.pisa.attention.default, {}
        for name, call in (
            ("pisa.attention", lambda: pisa.attention(q, k, v, pack)),
            ("torch.ops.pisa.attention", lambda: op(q, k, v, pack.key)),
        ):
            rounds = []
            with torch.inference_mode():
                for _ in range(30):
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    for _ in range(50):
                        call()
                    rounds.append((time.perf_counter() - begin) / 50 * 1e6)
            best[name] = sorted(rounds)[len(rounds) // 2]
        print("".join(f"{name}: {us:.1f} us of the host, launches included\n" for name, us in best.items()), end="")


if __name__ == "__main__":
    main()
