"""From a photograph to the q, k, v of one attention layer with FLUX.1's shapes, without a trained model.

In: pixels [512, 512, 3]. Out: q, k, v as float32 [H, 4608, 128], values exact in bfloat16: 512 text tokens, then
4096 image tokens, one per 8 x 8 pixels, in 8 x 8 tiles, so that a block of 64 tokens is a square of the photograph.
What a trained model learns is replaced by fixed, seeded weights; all else is what the model does: features of the
patch, a linear projection per head, QK-norm, rotary position embedding with FLUX.1's axes (0, row, column).
"""

import numpy as np

HEAD_DIM = 128
TEXT = 512
PATCH = 8
TILE = 8
AXES = (16, 56, 56)  # rotary dimensions of (text or image, row, column): FLUX.1
THETA = 10000.0
WIDTH = 64  # features per token
HEADS = 24
SEED = 1969
MATTERS = (1.0, 1.5, 0.4, 0.6)  # weight of place, colour, slopes, contrast
DETAIL = 0.6  # weight of the pixels' rest
GAIN = 0.6  # of the QK-norm; sets how far the logits spread: about 0.6 inside a block, 0.9 between blocks


def tile_order(side):
    """Raster index of each token in tile order: tiles in raster order, tokens in raster order in a tile."""
    rows, columns = np.divmod(np.arange(side * side), side)
    return np.lexsort((columns, rows, columns // TILE, rows // TILE))


def make(pixels, heads):
    """q, k, v [heads, TEXT + patches, HEAD_DIM]; the first |heads| of the 24, whatever |heads| is."""
    x, ids = _tokens(pixels)
    q = np.empty((heads, len(x), HEAD_DIM), np.float32)
    k, v = np.empty_like(q), np.empty_like(q)
    turn = _rotation(ids)
    for h in range(heads):
        wq, wk, wv = _weights(h)
        q[h] = _rotate(GAIN * _norm(x @ wq), turn)
        k[h] = _rotate(_norm(x @ wk), turn)
        v[h] = x @ wv
    return round_bf16(q), round_bf16(k), round_bf16(v)


def _tokens(pixels):
    """Features [N, WIDTH] of unit variance and position ids [N, 3] of all tokens."""
    image, ids = _patches(pixels)
    rng = np.random.default_rng((SEED, 0))
    topics = rng.standard_normal((16, WIDTH))  # a prompt says few things in many words
    text = topics[np.arange(TEXT) * 16 // TEXT] + DETAIL * rng.standard_normal((TEXT, WIDTH))
    x = np.concatenate([text / text.std(), image])
    return x.astype(np.float32), np.concatenate([np.zeros((TEXT, 3)), ids])


def _patches(pixels):
    """Features [patches, WIDTH] and ids [patches, 3] in tile order: what the patch shows, where it is, its detail."""
    side = pixels.shape[0] // PATCH
    rgb = pixels.astype(np.float64) / 255
    luma = rgb @ np.array([0.299, 0.587, 0.114])
    planes = np.stack([luma, rgb[..., 0] - luma, rgb[..., 2] - luma], axis=-1)
    cut = planes.reshape(side, PATCH, side, PATCH, 3).swapaxes(1, 2)  # [row, column, y, x, plane]
    mean = cut.mean(axis=(2, 3))
    detail = (cut - mean[:, :, None, None]).reshape(side * side, -1)
    shown = _normal(np.concatenate([_place(side), _look(cut, mean)], axis=-1))
    shown = _mix(np.tanh(shown) * np.repeat(MATTERS, [12, 3, 6, 3]), 1)
    detail = _mix(detail, 2)
    detail /= detail.std(axis=-1, keepdims=True) + 0.01 * detail.std()
    x = shown / shown.std() + DETAIL * detail
    rows, columns = np.divmod(np.arange(side * side), side)
    ids = np.stack([np.zeros(side * side), rows, columns], axis=-1)
    order = tile_order(side)
    return (x / x.std())[order], ids[order]


def _place(side):
    """Smooth position [patches, 12]: sines and cosines of the row and the column."""
    rows, columns = np.divmod(np.arange(side * side), side)
    turns = [np.pi * c * p / side for c in (1, 2, 4) for p in (rows, columns)]
    return np.stack([f(t) for t in turns for f in (np.sin, np.cos)], axis=-1)


def _look(cut, mean):
    """Colour, slopes and contrast [patches, 12] of each patch."""
    ramp = np.linspace(-1, 1, PATCH)
    right = np.einsum("rcyxk,x->rck", cut, ramp)
    down = np.einsum("rcyxk,y->rck", cut, ramp)
    contrast = np.log(cut.std(axis=(2, 3)) + 0.01)
    return np.concatenate([mean, right, down, contrast], axis=-1).reshape(-1, 12)


def _normal(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def _mix(x, stream):
    """A seeded projection to WIDTH features."""
    return x @ np.random.default_rng((SEED, stream)).standard_normal((x.shape[1], WIDTH))


def _weights(head):
    """Projections of one head. Queries and keys share part of theirs, so like attends to like."""
    rng = np.random.default_rng((SEED, 3, head))
    w = rng.standard_normal((4, WIDTH, HEAD_DIM)) / np.sqrt(WIDTH)
    likeness = rng.uniform(0.5, 0.9)
    other = np.sqrt(1 - likeness**2)
    return w[0], likeness * w[0] + other * w[1], w[2]


def _norm(x):
    """RMS norm over the head dimension (QK-norm)."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def _rotation(ids):
    """cos and sin [N, HEAD_DIM / 2] of the rotary embedding."""
    angles = []
    for axis, dim in enumerate(AXES):
        rate = THETA ** (-np.arange(0, dim, 2) / dim)
        angles.append(ids[:, axis : axis + 1] * rate)
    angles = np.concatenate(angles, axis=-1)
    return np.cos(angles), np.sin(angles)


def _rotate(x, turn):
    """Turns neighbouring pairs of dimensions."""
    cos, sin = turn
    out = np.empty_like(x)
    out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
    out[:, 1::2] = x[:, 1::2] * cos + x[:, 0::2] * sin
    return out


def round_bf16(x):
    """Nearest bfloat16 (ties to even), still as float32."""
    return from_bf16(to_bf16(x))


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)
