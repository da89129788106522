"""A Llama in numpy, float32: RMSNorm, attention with rotary positions and shared key heads, SwiGLU.

llama.cpp turns neighbouring elements (2i, 2i + 1) of a head and orders the rows of the weights of q and k for that. Here
rows are put back into the order of the original model, which turns elements i and i + head_dim / 2, so q and k come out
as the original model has them. Dot products are the same either way.
"""
import numpy as np

CHUNK = 512  # rows at a time where a full matrix would be large


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(epsilon)) * weight


def halves(weight, heads):
    """Rows of each head from (0, d/2, 1, d/2 + 1, ...) to (0, 1, ...)."""
    rows, inputs = weight.shape
    return weight.reshape(heads, -1, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def rotation(n, head_dim, base):
    """cos and sin of position * base^(-2i / head_dim), [n, head_dim / 2]."""
    angles = np.arange(n)[:, None] * float(base) ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotate(x, cos, sin):
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v):
    """Causal attention. q [H, N, D], k and v [G, N, D], H a multiple of G; [N, H * D] comes back."""
    (heads, n, d), groups = q.shape, len(k)
    shared = heads // groups
    out = np.empty((n, heads, d), np.float32)
    for g in range(groups):
        for begin in range(0, n, CHUNK):
            end = min(begin + CHUNK, n)
            rows = q[g * shared:(g + 1) * shared, begin:end].reshape(-1, d) * np.float32(d ** -0.5)
            scores = rows @ k[g, :end].T
            later = np.triu(np.ones((end - begin, end - begin), bool), 1)
            scores.reshape(shared, end - begin, end)[:, later.nonzero()[0], begin + later.nonzero()[1]] = -np.inf
            scores -= scores.max(1, keepdims=True)
            np.exp(scores, out=scores)
            rows = scores @ v[g, :end] / scores.sum(1, keepdims=True)
            out[begin:end, g * shared:(g + 1) * shared] = rows.reshape(shared, -1, d).swapaxes(0, 1)
    return out.reshape(n, heads * d)


def feed_forward(x, gate, up, down):
    out = np.empty_like(x)
    for begin in range(0, len(x), CHUNK):
        rows = x[begin:begin + CHUNK]
        open_ = rows @ gate.T
        with np.errstate(over="ignore"):  # exp of a large number is inf, and x / inf the 0 it should be
            open_ /= 1 + np.exp(-open_)
        out[begin:begin + CHUNK] = (open_ * (rows @ up.T)) @ down.T
    return out


class Model:
    def __init__(self, file):
        """|file|: a gguf.File."""
        m = file.metadata
        if m.get("general.architecture") != "llama" or m.get("llama.rope.scaling.type", "none") != "none":
            raise ValueError("the model is no Llama with plain rotary positions")
        self.file, self.layers, self.context = file, m["llama.block_count"], m["llama.context_length"]
        self.heads = m["llama.attention.head_count"]
        self.groups = m.get("llama.attention.head_count_kv", self.heads)
        self.head_dim = m["llama.embedding_length"] // self.heads
        self.base = m.get("llama.rope.freq_base", 10000.0)
        self.epsilon = m["llama.attention.layer_norm_rms_epsilon"]
        if m.get("llama.rope.dimension_count", self.head_dim) != self.head_dim:
            raise ValueError("the model turns only a part of each head")
        self.embedding = file.tensor("token_embd.weight")
        self.output = file.tensor("output.weight") if "output.weight" in file.tensors else self.embedding

    def _qkv(self, x, weight, cos, sin):
        def split(matrix, heads):
            return (x @ matrix.T).reshape(len(x), heads, self.head_dim).swapaxes(0, 1)

        q = split(halves(weight("attn_q"), self.heads), self.heads)
        k = split(halves(weight("attn_k"), self.groups), self.groups)
        return rotate(q, cos, sin), rotate(k, cos, sin), np.ascontiguousarray(split(weight("attn_v"), self.groups))

    def hidden(self, ids, see=None):
        """The last layer's output, normed, [N, embedding]; see(layer, q, k, v) is called for every layer."""
        cos, sin = rotation(len(ids), self.head_dim, self.base)
        x = self.embedding[np.asarray(ids)]
        for layer in range(self.layers):
            def weight(name):
                return self.file.tensor(f"blk.{layer}.{name}.weight")

            q, k, v = self._qkv(rms_norm(x, weight("attn_norm"), self.epsilon), weight, cos, sin)
            if see:
                see(layer, q, k, v)
            x = x + attend(q, k, v) @ weight("attn_output").T
            normed = rms_norm(x, weight("ffn_norm"), self.epsilon)
            x = x + feed_forward(normed, weight("ffn_gate"), weight("ffn_up"), weight("ffn_down"))
        return rms_norm(x, self.file.tensor("output_norm.weight"), self.epsilon)

    def bits(self, hidden, ids):
        """Bits that the model needs for each token but the first, given those before it."""
        ids, bits = np.asarray(ids), []
        for begin in range(0, len(ids) - 1, CHUNK):
            logits = hidden[begin:begin + CHUNK][:len(ids) - 1 - begin] @ self.output.T
            logits -= logits.max(1, keepdims=True)
            chosen = logits[np.arange(len(logits)), ids[begin + 1:begin + 1 + len(logits)]]
            bits.append((np.log(np.exp(logits).sum(1)) - chosen) / np.log(2))
        return np.concatenate(bits)

    def go_on(self, ids, n):
        """|n| more ids, each the likeliest after those before it."""
        ids = list(ids)
        for _ in range(n):
            ids.append(int(np.argmax(self.output @ self.hidden(ids)[-1])))
        return ids
