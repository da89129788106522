"""Llama and Qwen models of tiny random configurations: what they give with SDPA, while a list holds every leaf."""

import unittest

from common import error, main, pisa, sample, skip

try:
    import torch
    import transformers

    import pisa.transformers
except ImportError as missing:
    skip(missing)

SIZES = dict(
    vocab_size=64,
    hidden_size=256,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=512,
)
KINDS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}


def make(kind, **others):
    torch.manual_seed(2)
    config, model = KINDS[kind]
    return model(config(**{**SIZES, **others})).to(torch.bfloat16).eval()


def tokens(batch, n):
    return torch.randint(0, 64, (batch, n), generator=torch.Generator().manual_seed(3))


class Models(unittest.TestCase):
    def setUp(self):
        self.pack = pisa.load(sample("select"))  # 5 leaves of 16 keys: up to 80 tokens all of them

    def test_prompt(self):
        for kind in KINDS:
            model, ids = make(kind), tokens(2, 75)
            with torch.no_grad():
                expected = model(ids).logits.float()
                pisa.transformers.attach(model, self.pack)
                self.assertEqual(model.config._attn_implementation, "pisa")
                self.assertLess(error(model(ids).logits.float(), expected), 1e-2)
                model.set_attn_implementation("sdpa")
                longer = tokens(2, 300)
                expected = model(longer).logits.float()
                model.set_attn_implementation("pisa")
                found = model(longer).logits.float()
                self.assertLess(error(found[:, :75], expected[:, :75]), 1e-2)
                self.assertGreater(error(found[:, 200:], expected[:, 200:]), 1e-2)

    def decode_all(self, model, ids, cache, prompt):
        """The logits of every token: of a prompt, then of one token at a time."""
        logits = [model(ids[:, :prompt], past_key_values=cache).logits]
        for n in range(prompt, ids.shape[1]):
            logits.append(model(ids[:, n : n + 1], past_key_values=cache).logits)
        return torch.cat(logits, dim=1).float()

    def test_caches(self):
        model, ids = make("llama"), tokens(2, 78)
        with torch.no_grad():
            expected = model(ids).logits.float()
            pisa.transformers.attach(model, self.pack)
            for prompt in (50, 1):
                grows = transformers.DynamicCache(config=model.config)
                self.assertLess(error(self.decode_all(model, ids, grows, prompt), expected), 1e-2)
                static = transformers.StaticCache(config=model.config, max_cache_len=96)
                self.assertLess(error(self.decode_all(model, ids, static, prompt), expected), 1e-2)

    def test_decode_goes_on_from_the_prompt(self):
        """Beyond what a list holds: decoding with pyramids selects as a whole prompt does."""
        model, ids = make("llama"), tokens(1, 200)
        with torch.no_grad():
            pisa.transformers.attach(model, self.pack)
            expected = model(ids).logits.float()
            static = transformers.StaticCache(config=model.config, max_cache_len=256)
            self.assertLess(error(self.decode_all(model, ids, static, 180), expected), 2e-2)
            self.assertIsNotNone(model.model.layers[0].self_attn.pisa.pyramid)

    def test_generate(self):
        model, ids = make("qwen2"), tokens(2, 40)
        options = dict(
            max_new_tokens=8, do_sample=False, attention_mask=torch.ones_like(ids), pad_token_id=0, disable_compile=True
        )
        expected = model.generate(ids, **options)
        pisa.transformers.attach(model, self.pack)
        for cache in (None, "static"):
            found = model.generate(ids, cache_implementation=cache, **options)
            self.assertEqual(found.shape, expected.shape)
            self.assertGreater((found == expected).float().mean(), 0.9)  # a near tie may fall the other way

    def test_errors(self):
        model = make("llama")
        model.set_attn_implementation("pisa")
        ids = tokens(2, 40)
        with torch.no_grad():
            with self.assertRaisesRegex(pisa.ArgumentError, "the model has no pack"):
                model(ids)
            with self.assertRaisesRegex(pisa.ArgumentError, "has mask none, must be causal"):
                pisa.transformers.attach(model, pisa.load("dense"))
            with self.assertRaisesRegex(pisa.ArgumentError, "head_dim of the model is 32, of sample 64"):
                pisa.transformers.attach(make("llama", head_dim=32), self.pack)
            pisa.transformers.attach(model, self.pack)
            padded = torch.ones_like(ids)
            padded[0, :3] = 0
            with self.assertRaisesRegex(pisa.ArgumentError, "attention_mask has padding"):
                model(ids, attention_mask=padded)
            with self.assertRaisesRegex(pisa.ArgumentError, "which has no attention of the Llama class"):
                pisa.transformers.attach(torch.nn.Linear(1, 1), self.pack)


if __name__ == "__main__":
    main()
