"""diffusers models of tiny random configurations: with a dense pack what they give with SDPA, in any token order."""

import unittest

from common import error, main, pisa, skip

try:
    import diffusers
    import torch

    import pisa.diffusers
except ImportError as missing:
    skip(missing)

HEADS, D = 2, 128


def flux():
    model = diffusers.FluxTransformer2DModel(
        in_channels=4,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=D,
        num_attention_heads=HEADS,
        joint_attention_dim=32,
        pooled_projection_dim=16,
        axes_dims_rope=(32, 48, 48),
    )
    rows, columns = 13, 20
    ids = torch.zeros(rows, columns, 3)
    ids[..., 1] += torch.arange(rows)[:, None]
    ids[..., 2] += torch.arange(columns)
    return model, dict(
        hidden_states=torch.randn(1, rows * columns, 4),
        encoder_hidden_states=torch.randn(1, 24, 32),
        pooled_projections=torch.randn(1, 16),
        timestep=torch.tensor([0.5]),
        img_ids=ids.flatten(0, 1),
        txt_ids=torch.zeros(24, 3),
    )


def sd3(dim=D):
    model = diffusers.SD3Transformer2DModel(
        sample_size=32,
        patch_size=2,
        in_channels=4,
        num_layers=3,
        attention_head_dim=dim,
        num_attention_heads=HEADS,
        joint_attention_dim=32,
        caption_projection_dim=HEADS * dim,
        pooled_projection_dim=16,
        out_channels=4,
        pos_embed_max_size=32,
        dual_attention_layers=(0,),
        qk_norm="rms_norm",
    )
    return model, dict(
        hidden_states=torch.randn(2, 4, 26, 36),
        encoder_hidden_states=torch.randn(2, 21, 32),
        pooled_projections=torch.randn(2, 16),
        timestep=torch.tensor([500.0, 500.0]),
    )


def wan():
    model = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=HEADS,
        attention_head_dim=D,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=32,
        ffn_dim=32,
        num_layers=3,
    )
    return model, dict(
        hidden_states=torch.randn(1, 4, 3, 20, 28),
        encoder_hidden_states=torch.randn(1, 12, 16),
        timestep=torch.tensor([500]),
    )


def hunyuan():
    model = diffusers.HunyuanVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=HEADS,
        attention_head_dim=D,
        num_layers=2,
        num_single_layers=2,
        num_refiner_layers=1,
        patch_size=2,
        patch_size_t=1,
        text_embed_dim=16,
        pooled_projection_dim=8,
        rope_axes_dim=(32, 48, 48),
        guidance_embeds=False,
    )
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[1, 11:] = 0
    return model, dict(
        hidden_states=torch.randn(2, 4, 3, 20, 24),
        encoder_hidden_states=torch.randn(2, 20, 16),
        encoder_attention_mask=mask,
        pooled_projections=torch.randn(2, 8),
        timestep=torch.tensor([500, 500]),
    )


class Models(unittest.TestCase):
    def run_model(self, make):
        """Dense by the pack, in three token orders, is SDPA; by a sparse pack it is something else, but not far."""
        torch.manual_seed(1)
        model, inputs = make()
        model = model.to(torch.bfloat16).eval()
        inputs = {name: x.bfloat16() if x.is_floating_point() else x for name, x in inputs.items()}
        if "img_ids" in inputs:
            inputs["img_ids"] = inputs["img_ids"].float()
        with torch.no_grad():
            expected = model(**inputs).sample.float()
            for tile in ("default", None, 8, 5):
                attached = pisa.diffusers.attach(model, pisa.load("dense"), tile=tile)
                calls = self.count(attached)
                self.assertLess(error(model(**inputs).sample.float(), expected), 5e-3, f"tile {tile}")
                self.assertEqual(len(calls), len(attached.saved))
                attached.remove()
            attached = pisa.diffusers.attach(model, pisa.load("hybrid"))
            sparse = error(model(**inputs).sample.float(), expected)
            self.assertGreater(sparse, 4e-3)
            self.assertLess(sparse, 2e-2)
            attached.remove()
            self.assertEqual(error(model(**inputs).sample.float(), expected), 0)
        return model, inputs, expected

    def count(self, attached):
        calls, attend = [], attached.attend
        attached.attend = lambda *arguments: calls.append(1) or attend(*arguments)
        return calls

    def test_flux(self):
        model, inputs, expected = self.run_model(flux)
        with torch.no_grad():
            with self.assertRaisesRegex(pisa.ArgumentError, "are no picture of 13 x 20: use tile=None"):
                attached = pisa.diffusers.attach(model, pisa.load("dense"))
                model(**{**inputs, "hidden_states": inputs["hidden_states"][:, 1:], "img_ids": inputs["img_ids"][:-1]})
            attached.remove()
            # text at the other end, where the pack reads it exactly
            attached = pisa.diffusers.attach(model, pisa.load("hunyuan_video"), exact_text=True)
            attached.pack = pisa.load("dense")
            self.assertEqual((attached.exact_at, attached.n_exact), ("last", 256))
            self.assertLess(error(model(**inputs).sample.float(), expected), 5e-3)
            attached.remove()
            attached = pisa.diffusers.attach(model, pisa.load("dense"), exact_text=True)
            with self.assertRaisesRegex(
                pisa.ArgumentError, "there are 24 text tokens, but dense always reads none exactly"
            ):
                model(**inputs)
            attached.remove()

    def test_exact_text(self):
        """Shipped packs that always read the text: what they read of so small a picture is all of it."""
        torch.manual_seed(1)
        for make, name, at in ((flux, "flux1_dev_text", ("first", 512)), (lambda: sd3(64), "sd35_text", ("last", 333))):
            with self.subTest(name), torch.no_grad():
                model, inputs = make()
                model = model.to(torch.bfloat16).eval()
                inputs = {k: x.bfloat16() if x.is_floating_point() else x for k, x in inputs.items()}
                if "img_ids" in inputs:
                    inputs["img_ids"] = inputs["img_ids"].float()
                expected = model(**inputs).sample.float()
                attached = pisa.diffusers.attach(model, pisa.load(name), exact_text=True)
                self.assertEqual((attached.exact_at, attached.n_exact), at)
                self.assertEqual(attached.exact_at, attached.text_at)  # text stays where it is
                self.assertLess(error(model(**inputs).sample.float(), expected), 5e-3)
                longer = torch.randn(inputs["encoder_hidden_states"].shape[0], at[1] + 1, 32).bfloat16()
                inputs["encoder_hidden_states"] = longer
                if "txt_ids" in inputs:
                    inputs["txt_ids"] = torch.zeros(at[1] + 1, 3)
                with self.assertRaisesRegex(pisa.ArgumentError, f"but {name} always reads {at[1]} exactly"):
                    model(**inputs)

    def test_sd3(self):
        self.run_model(sd3)

    def test_wan(self):
        self.run_model(wan)

    def test_hunyuan(self):
        self.run_model(hunyuan)

    def test_dense_blocks_and_steps(self):
        model, inputs = wan()
        model, inputs = (
            model.to(torch.bfloat16),
            {n: x.bfloat16() if x.is_floating_point() else x for n, x in inputs.items()},
        )
        attached = pisa.diffusers.attach(model, pisa.load("dense"), dense_blocks=1, dense_steps=2)
        calls, seen = self.count(attached), []
        with torch.no_grad():
            for timestep in (900, 900, 600, 300, 0, 900):  # one step may be two forwards
                calls.clear()
                model(**{**inputs, "timestep": torch.tensor([timestep])})
                seen.append(len(calls))
        self.assertEqual(seen, [0, 0, 0, 2, 2, 0])

    def test_errors(self):
        with self.assertRaisesRegex(pisa.ArgumentError, "model is a Linear, must be one of FluxTransformer2DModel"):
            pisa.diffusers.attach(torch.nn.Linear(1, 1), pisa.load("dense"))

    def test_tile_order(self):
        order = pisa.diffusers.tile_order(2, 3, 5, 2).tolist()
        self.assertEqual(order[:15], [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14])
        self.assertEqual(order[15:], [n + 15 for n in order[:15]])


if __name__ == "__main__":
    main()
