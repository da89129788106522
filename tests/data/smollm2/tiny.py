"""A tiny random Llama as a GGUF file, and what it computes, one position at a time in double.

The statement turns neighbouring elements (2i, 2i + 1), as the weights in a GGUF file are meant."""
import struct

import numpy as np

import gguf
from tokenizer import alphabet

LAYERS, HEADS, GROUPS, D, INNER, CONTEXT, BASE, EPSILON = 2, 4, 2, 8, 64, 1024, 1000.0, 1e-5
WIDTH = HEADS * D
MERGES = ["h e", "l l", "he ll", "Ġ w", "o r", "Ġw or"]
TOKENS = ["<|endoftext|>", *alphabet().values(), *(pair.replace(" ", "") for pair in MERGES)]
METADATA = {
    "general.architecture": "llama", "general.name": "tiny", "llama.block_count": LAYERS,
    "llama.context_length": CONTEXT, "llama.embedding_length": WIDTH, "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": GROUPS, "llama.attention.layer_norm_rms_epsilon": EPSILON,
    "llama.rope.freq_base": BASE, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": MERGES}


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def entry(key, value):
    if isinstance(value, list):
        return string(key) + struct.pack("<IIQ", gguf.ARRAY, gguf.STRING, len(value)) + b"".join(map(string, value))
    if isinstance(value, str):
        return string(key) + struct.pack("<I", gguf.STRING) + string(value)
    code = {bool: "?", int: "I", float: "f"}[type(value)]
    return string(key) + struct.pack("<I" + code, {"?": 7, "I": 4, "f": 6}[code], value)


def quantised(rng, kind, shape):
    """Random bytes of a type, and the values they stand for, element by element."""
    size, data, values = int(np.prod(shape)), b"", []
    if kind in (gguf.F32, gguf.F16):
        x = (rng.standard_normal(size) * 0.5 + (len(shape) == 1)).astype("<f4" if kind == gguf.F32 else "<f2")
        return x.tobytes(), x.astype(float).reshape(shape)
    for _ in range(size // 32):
        scale, least = np.float16(rng.uniform(0.01, 0.08)), np.float16(rng.uniform(-0.6, 0))
        if kind == gguf.Q4_1:
            codes = rng.integers(0, 16, 32)
            data += struct.pack("<ee16B", scale, least, *(int(a) | int(b) << 4 for a, b in zip(codes[:16], codes[16:])))
            values += [float(scale) * int(c) + float(least) for c in codes]
        else:
            codes = rng.integers(-10, 11, 32)
            data += struct.pack("<e32b", scale, *map(int, codes))
            values += [float(scale) * int(c) for c in codes]
    return data, np.array(values).reshape(shape)


def shapes():
    yield "token_embd.weight", gguf.Q8_0, (len(TOKENS), WIDTH)
    yield "output_norm.weight", gguf.F32, (WIDTH,)
    for layer in range(LAYERS):
        for name, shape in (("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (GROUPS * D, WIDTH)),
                            ("attn_v", (GROUPS * D, WIDTH)), ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)),
                            ("ffn_gate", (INNER, WIDTH)), ("ffn_up", (INNER, WIDTH)), ("ffn_down", (WIDTH, INNER))):
            kind = gguf.F32 if len(shape) == 1 else gguf.F16 if name == "ffn_up" else gguf.Q4_1
            yield f"blk.{layer}.{name}.weight", kind, shape


def make():
    """The file's bytes, and its tensors in double."""
    rng, data, weights, described = np.random.default_rng(1), b"", {}, b""
    for name, kind, shape in shapes():
        data += b"\0" * (-len(data) % 32)
        described += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        bytes_, weights[name] = quantised(rng, kind, shape)
        data += bytes_
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(METADATA))
    head += b"".join(entry(key, value) for key, value in METADATA.items()) + described
    return head + b"\0" * (-len(head) % 32) + data, weights


def norm(x, weight):
    return x / np.sqrt((x * x).mean() + EPSILON) * weight


def turn(head, position):
    out = head.copy()
    for i in range(D // 2):
        angle = position * BASE ** (-2 * i / D)
        a, b = head[2 * i], head[2 * i + 1]
        out[2 * i], out[2 * i + 1] = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
    return out


def run(weights, ids):
    """The normed output [N, WIDTH], and for each layer q [N, HEADS, D], k and v [N, GROUPS, D]."""
    x, seen = weights["token_embd.weight"][ids], []
    for layer in range(LAYERS):
        w = {name.split(".")[2]: value for name, value in weights.items() if name.startswith(f"blk.{layer}.")}
        q, k, v = [], [], []
        for p, row in enumerate(x):
            normed = norm(row, w["attn_norm"])
            q.append([turn(head, p) for head in (w["attn_q"] @ normed).reshape(HEADS, D)])
            k.append([turn(head, p) for head in (w["attn_k"] @ normed).reshape(GROUPS, D)])
            v.append((w["attn_v"] @ normed).reshape(GROUPS, D))
        q, k, v = np.array(q), np.array(k), np.array(v)
        seen.append((q, k, v))
        for p in range(len(x)):
            heads = []
            for h in range(HEADS):
                g = h // (HEADS // GROUPS)
                weight = np.exp(k[:p + 1, g] @ q[p, h] / np.sqrt(D))
                heads.append(weight @ v[:p + 1, g] / weight.sum())
            x[p] += w["attn_output"] @ np.concatenate(heads)
            normed = norm(x[p], w["ffn_norm"])
            gate = w["ffn_gate"] @ normed
            x[p] += w["ffn_down"] @ (gate / (1 + np.exp(-gate)) * (w["ffn_up"] @ normed))
    return np.array([norm(row, weights["output_norm.weight"]) for row in x]), seen
