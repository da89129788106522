"""Writer of .safetensors: arrays by name, stored as bfloat16."""
import json
import struct

import numpy as np


def to_bf16(x):
    """float32 -> the nearest bfloat16, as uint16; ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def write(path, arrays, notes):
    """|arrays|: name -> finite float32 array; |notes|: text by text, kept in the header."""
    header, at = {"__metadata__": notes}, 0
    for name, x in arrays.items():
        assert np.isfinite(x).all(), name
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + 2 * x.size]}
        at += 2 * x.size
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in arrays.values():
            file.write(to_bf16(x).astype("<u2").tobytes())
