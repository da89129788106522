"""Reader of GGUF: metadata, and tensors as float32.

A file is, little-endian: "GGUF", version (2 or 3), the numbers of tensors and of metadata entries, the entries (key,
type, value), the tensors' descriptions (name, shape with the fastest dimension first, type, offset), padding to
general.alignment, the data.
"""
import struct

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
PER_BLOCK, BLOCK_BYTES = {F32: 1, F16: 1, Q4_1: 32, Q8_0: 32}, {F32: 4, F16: 2, Q4_1: 20, Q8_0: 34}


def decode(kind, data):
    """The values of blocks of |kind| as float32, in order."""
    if kind in (F32, F16):
        return np.frombuffer(data, "<f4" if kind == F32 else "<f2").astype(np.float32)
    blocks = np.frombuffer(data, np.uint8).reshape(-1, BLOCK_BYTES[kind])
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    if kind == Q8_0:  # scale, 32 signed bytes
        return (blocks[:, 2:].view(np.int8) * scale).reshape(-1)
    least = blocks[:, 2:4].copy().view("<f2").astype(np.float32)  # scale, least, 16 bytes: low halves are the first 16
    codes = blocks[:, 4:]
    return (np.concatenate([codes & 15, codes >> 4], 1) * scale + least).reshape(-1)


class File:
    def __init__(self, data):
        """|data|: the whole file as bytes."""
        self.data, self.at = memoryview(data), 0
        try:
            self._read()
        except struct.error:
            raise ValueError("the GGUF file is truncated") from None

    def _read(self):
        magic, version = bytes(self.data[:4]), struct.unpack_from("<I", self.data, 4)[0]
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"not a GGUF file of version 2 or 3: it starts with {magic!r}, {version}")
        self.at = 8
        n_tensors, n_entries = self._scalar("Q"), self._scalar("Q")
        self.metadata = {}
        for _ in range(n_entries):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        self.tensors = {}  # name -> shape with the slowest dimension first, type, offset
        for _ in range(n_tensors):
            name = self._string()
            shape = [self._scalar("Q") for _ in range(self._scalar("I"))][::-1]
            self.tensors[name] = tuple(shape), self._scalar("I"), self._scalar("Q")
        alignment = self.metadata.get("general.alignment", 32)
        self.start = -(-self.at // alignment) * alignment

    def _scalar(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def _string(self):
        length = self._scalar("Q")
        self.at += length
        return bytes(self.data[self.at - length:self.at]).decode("utf-8")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            kind, length = self._scalar("I"), self._scalar("Q")
            return [self._value(kind) for _ in range(length)]
        if kind not in SCALARS:
            raise ValueError(f"metadata of an unknown type {kind}")
        return self._scalar(SCALARS[kind])

    def tensor(self, name):
        """The tensor as float32, the slowest dimension first: a matrix is [outputs, inputs]."""
        shape, kind, offset = self.tensors[name]
        if kind not in PER_BLOCK:
            raise ValueError(f"{name} has type {kind}; known are F32, F16, Q4_1 and Q8_0")
        bytes_ = int(np.prod(shape)) // PER_BLOCK[kind] * BLOCK_BYTES[kind]
        begin = self.start + offset
        if begin + bytes_ > len(self.data):
            raise ValueError(f"the GGUF file is truncated: {name} ends behind its {len(self.data)} bytes")
        return decode(kind, self.data[begin:begin + bytes_]).reshape(shape)
