"""A FLUX-shaped model on a GPU: 24 heads of 128, 4096 image and 512 text tokens; few blocks, random weights.

With the dense pack the model gives what it gives with SDPA, with flux1_dev something finite and near; times of a forward.

PISA_PACKS=generated PISA_LIBRARY=... python3 tests/python/flux_gpu_test.py
"""

import time
import unittest

from common import error, main, pisa, skip

try:
    import diffusers
    import torch

    import pisa.diffusers
except ImportError as missing:
    skip(missing)
if not torch.cuda.is_available():
    skip("torch sees no GPU")

SIDE, TEXT = 64, 512


def flux():
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(num_layers=2, num_single_layers=4).to("cuda", torch.bfloat16).eval()
    ids = torch.zeros(SIDE, SIDE, 3)
    ids[..., 1] += torch.arange(SIDE)[:, None]
    ids[..., 2] += torch.arange(SIDE)

    def random(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    return model, dict(
        hidden_states=random(1, SIDE * SIDE, 64),
        encoder_hidden_states=random(1, TEXT, 4096),
        pooled_projections=random(1, 768),
        timestep=torch.tensor([0.5], device="cuda", dtype=torch.bfloat16),
        img_ids=ids.flatten(0, 1).cuda(),
        txt_ids=torch.zeros(TEXT, 3, device="cuda"),
    )


def forward_ms(model, inputs):
    """Median of 9 forwards."""
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        model(**inputs)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times[1:])[4]


class Flux(unittest.TestCase):
    def test_forward(self):
        model, inputs = flux()
        with torch.inference_mode():
            expected, times = model(**inputs).sample, {"SDPA": forward_ms(model, inputs)}
            self.assertTrue(expected.isfinite().all())
            for name, most in (("dense", 2e-2), ("flux1_dev", 0.5)):
                attached = pisa.diffusers.attach(model, pisa.load(name), grid=(SIDE, SIDE))
                found = model(**inputs).sample
                times[name] = forward_ms(model, inputs)
                attached.remove()
                self.assertTrue(found.isfinite().all())
                self.assertLess(error(found.float().cpu(), expected.float().cpu()), most, name)
            self.assertTrue(torch.equal(model(**inputs).sample, expected), "removed, it is as it was")
        print("".join(f"{name}: {ms:.2f} ms a forward\n" for name, ms in times.items()), end="")


if __name__ == "__main__":
    main()
