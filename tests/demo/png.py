"""PNG in and out: 8-bit RGB(A), not interlaced. In: bytes. Out: numpy arrays [height, width, channels], and back."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def read(data):
    """Pixels of a PNG file as uint8 [height, width, 3 or 4]."""
    if data[:8] != SIGNATURE:
        raise ValueError("not a PNG file")
    at, packed, head = 8, b"", None
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    width, height, depth, colour, _, _, interlaced = head
    channels = {2: 3, 6: 4}.get(colour)
    if depth != 8 or channels is None or interlaced:
        raise ValueError("only 8-bit RGB or RGBA without interlacing is read here")
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    pixels = np.zeros((height, width * channels), np.uint8)
    above = np.zeros(width * channels, np.uint8)
    for y in range(height):
        pixels[y] = above = _unfilter(rows[y, 0], rows[y, 1:], above, channels)
    return pixels.reshape(height, width, channels)


def _unfilter(kind, line, above, channels):
    """One line of bytes with its prediction (PNG specification, section 9) added back."""
    if kind == 0:
        return line
    if kind == 2:
        return line + above
    if kind == 1:  # left neighbour: a running sum per channel
        return np.cumsum(line.reshape(-1, channels), axis=0, dtype=np.uint8).reshape(-1)
    out, up = bytearray(line.tobytes()), above.tobytes()
    for i in range(len(out)):
        a = out[i - channels] if i >= channels else 0
        if kind == 3:
            guess = (a + up[i]) // 2
        else:
            c = up[i - channels] if i >= channels else 0
            pa, pb, pc = abs(up[i] - c), abs(a - c), abs(a + up[i] - 2 * c)
            guess = a if pa <= pb and pa <= pc else up[i] if pb <= pc else c
        out[i] = (out[i] + guess) & 255
    return np.frombuffer(bytes(out), np.uint8)


def write(pixels):
    """A PNG file of uint8 [height, width, 3 or 4]."""
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
