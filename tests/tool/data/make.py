# Makes the fixtures of this folder with numpy: files as others write them, read by array_test.c.
import json
import struct

import numpy as np
from numpy.lib import format as npy

values = (np.arange(24) / 8 - 1).reshape(1, 2, 3, 4)
f4 = values.astype("<f4")
bits = (f4.view("<u4") >> 16).astype("<u2")

np.save("f4.npy", f4)
np.save("f2.npy", values.astype("<f2"))
np.save("u2.npy", bits)
np.save("i4.npy", np.arange(24, dtype="<i4").reshape(2, 3, 4))
for version in ((2, 0), (3, 0)):
    with open(f"f4_v{version[0]}.npy", "wb") as out:
        npy.write_array(out, f4, version=version)
np.save("rank1.npy", f4.reshape(24))
np.save("rank0.npy", np.float32(1.5))
# refused
np.save("fortran.npy", np.asfortranarray(f4))
np.save("f8.npy", values)
np.save("big.npy", values.astype(">f4"))
np.save("bool.npy", values > 0)
np.save("record.npy", np.zeros(2, dtype=[("x", "<f4"), ("y", "<f4")]))
np.save("rank9.npy", np.zeros((1,) * 9, dtype="<f4"))


def safetensors(path, arrays, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, array) in arrays.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


safetensors("three.safetensors",
            {"q": ("F32", f4), "k \"ü\"": ("BF16", bits), "v.weight": ("F16", values.astype("<f2"))},
            {"format": "pt", "note": "a \\ b"})
safetensors("one.safetensors", {"only": ("F32", f4)})
safetensors("f64.safetensors", {"x": ("F64", values)})
