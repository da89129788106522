"""A small Hopper in numpy: runs the PTX that pisac emits, so that kernels are tested where there is no GPU.

It executes whole CTAs: 32 lanes of a warp at a time, divergent lanes by their own program counters, warps in turn
until each blocks. What it knows is what our kernels use: integer and float arithmetic, warp shuffles, votes and
reductions, mma.sync, mbarriers, named barriers, clusters and stores to the shared memory of peers, tensor-map copies with the 128-byte swizzle, ldmatrix, stmatrix,
and wgmma with its descriptors. Checked on the way: every address lies in an array and is aligned, warp-wide
instructions meet all their lanes, accumulators are not read before wgmma.wait_group (they hold nan until then),
barriers do not deadlock. Not modelled: timing, caches, memory ordering, rounding of the approximate functions.
"""

import numpy as np

LANES = 32
SHARED_BASE = 0x400  # of dynamic shared memory; a multiple of 1024, not 0
GLOBAL_BASE = 0x10000
MAP_BASE = 0x7000_0000_0000
PEER_BYTES = 1 << 24  # a CTA's shared memory as its peers see it: of rank r behind (r + 1) times that
GUARD = 256
U32, U64, F32, S32, S64 = np.uint32, np.uint64, np.float32, np.int32, np.int64
EVERY = np.ones(LANES, bool)
BLOCKED = object()


class Fault(Exception):
    pass


def bf16_to_f32(bits):
    return (np.asarray(bits, U32) << U32(16)).view(F32)


def f32_to_bf16(x):
    """To nearest even; nan stays nan."""
    u = np.ascontiguousarray(x, F32).view(U32)
    rounded = (u + U32(0x7FFF) + ((u >> U32(16)) & U32(1))) >> U32(16)
    return np.where(np.isnan(x), U32(0x7FFF), rounded).astype(np.uint16)


def half_to_f32(bits, is_bf16):
    """The low 16 bits of each word."""
    low = np.asarray(bits).astype(np.uint16)
    return bf16_to_f32(low) if is_bf16 else low.view(np.float16).astype(F32)


class Memory:
    """Bytes with typed views."""

    def __init__(self, base, size, fill):
        self.base = base
        self.bytes = np.full((size + 15) // 16 * 16, fill, np.uint8)
        self.views = {n: self.bytes.view(t) for n, t in ((1, np.uint8), (2, np.uint16), (4, U32), (8, U64))}

    def index(self, address, size, align):
        offset = address.astype(S64) - self.base
        if (offset < 0).any() or (offset + size > len(self.bytes)).any():
            raise Fault(f"address {address[0]:#x} outside of memory")
        if (offset % align).any():
            raise Fault(f"address {address[0]:#x} not aligned to {align}")
        return offset


class Global(Memory):
    def __init__(self, size):
        super().__init__(GLOBAL_BASE, size, 0xA5)
        self.end = GUARD
        self.valid = np.zeros(len(self.bytes), bool)
        self.late = np.zeros(len(self.bytes), bool)  # what the launch before may write still

    def array(self, data):
        """Copies |data| in, between guards; returns its address."""
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        start = self.end
        self.bytes[start:start + len(raw)] = raw
        self.valid[start:start + len(raw)] = True
        self.end = (start + len(raw) + GUARD + 255) // 256 * 256
        if self.end > len(self.bytes):
            raise MemoryError("global memory is too small for this test")
        return GLOBAL_BASE + start

    def empty(self, shape, dtype):
        """An output, poisoned with 0xFF bytes."""
        return self.array(np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0xFF, np.uint8))

    def keep_until_wait(self, address, late):
        """Bytes from |address| on, those that |late| names: warps touch them when they have waited for the launch before."""
        start = address - GLOBAL_BASE
        self.late[start:start + len(late)] = late

    def check_early(self, address):
        if self.late[address.astype(S64) - GLOBAL_BASE].any():
            raise Fault(f"address {address[0]:#x} before griddepcontrol.wait")

    def read(self, address, shape, dtype):
        n = int(np.prod(shape)) * np.dtype(dtype).itemsize
        start = address - GLOBAL_BASE
        return self.bytes[start:start + n].view(dtype).reshape(shape).copy()

    def index(self, address, size, align):
        offset = super().index(address, size, align)
        if not (self.valid[offset].all() and self.valid[offset + size - 1].all()):
            raise Fault(f"address {address[0]:#x} outside of every array")
        return offset


class TensorMap:
    """{D, rows, heads, batch} of bf16 at |address|, strides in elements, boxes of 64 x 64, zero fill outside."""

    def __init__(self, memory, address, shape, strides=None):
        self.memory, self.address, self.shape = memory, address, shape  # shape = (batch, heads, rows, D)
        batch, heads, rows, d = shape
        self.strides = strides or (heads * rows * d, rows * d, d)

    def box(self, x, row, head, batch):
        """Indices of the box's elements in 16-bit units, and which of them exist."""
        r, c = np.meshgrid(np.arange(64) + row, np.arange(64) + x, indexing="ij")
        inside = (r >= 0) & (r < self.shape[2]) & (c >= 0) & (c < self.shape[3])
        inside &= (0 <= head < self.shape[1]) and (0 <= batch < self.shape[0])
        element = batch * self.strides[0] + head * self.strides[1] + r * self.strides[2] + c
        return (self.address - self.memory.base) // 2 + np.where(inside, element, 0), inside


def swizzled(address):
    return address ^ ((address >> 3) & 0x70)


class Barrier:
    def __init__(self, count):
        self.count = self.pending = count
        self.bytes = self.phase = 0

    def settle(self):
        if self.pending == 0 and self.bytes == 0:
            self.phase ^= 1
            self.pending = self.count

    def arrive(self, n=1):
        if self.pending < n:
            raise Fault("more arrivals on an mbarrier than it expects")
        self.pending -= n
        self.settle()


class Warp:
    def __init__(self, cta, index):
        self.cta, self.index = cta, index
        self.regs = {}
        self.pc = 0
        self.pcs = np.zeros(LANES, S64)
        self.live = EVERY.copy()
        self.mask = EVERY
        self.full = True
        self.converged = True
        self.waiting = None  # a rendezvous this warp has joined
        self.waited = False  # for the launch before
        self.cluster_phase = None  # of a cluster barrier that this warp has arrived at
        self.flying = {}  # accumulator registers of products in flight -> their values

    def reg(self, name):
        r = self.regs.get(name)
        if r is None:
            kind = (U64 if name.startswith("%rd") else np.uint16 if name.startswith("%rs")
                    else U32 if name.startswith("%r") else bool)
            r = self.regs[name] = np.zeros(LANES, kind)
        return r

    def set(self, name, value):
        r = self.reg(name)
        if self.full:
            r[:] = value
        else:
            np.copyto(r, value, where=self.mask, casting="unsafe")


class Cluster:
    """CTAs that run together, and the barrier of all their warps."""

    def __init__(self, ctas):
        self.ctas = ctas
        self.arrived = self.phase = 0
        for rank, cta in enumerate(ctas):
            cta.cluster, cta.rank = self, rank

    def arrive(self):
        self.arrived += 1
        if self.arrived == sum(len(cta.warps) for cta in self.ctas):
            self.arrived, self.phase = 0, self.phase + 1

    def peers_of(self, address):
        """Peers in whose windows |address| lies, with the lanes, and where in its shared memory."""
        ranks = address // U64(PEER_BYTES)
        for window in np.unique(ranks):
            rank = int(window) - 1
            if not 0 <= rank < len(self.ctas):
                raise Fault(f"address {address[ranks == window][0]:#x} is of no peer")
            peer = self.ctas[rank]
            if not self.phase or not any(w.live.any() for w in peer.warps):
                raise Fault("a peer that may not have begun, or that has ended")
            lanes = ranks == window
            yield peer, lanes, address[lanes] - U64(PEER_BYTES * (rank + 1))

    def run(self):
        running = [w for cta in self.ctas for w in cta.warps]
        while running:
            progress = False
            for w in running:
                progress |= w.cta.kernel.run(w)
            running = [w for w in running if w.live.any()]
            if running and not progress:
                where = {(w.cta.rank, w.index):
                         w.cta.kernel.source[w.pc if w.converged else int(w.pcs[w.live].min())] for w in running}
                raise Fault(f"deadlock: {where}")


class Cta:
    def __init__(self, kernel, index, count, threads, shared_bytes, memory, maps):
        self.kernel, self.index, self.count, self.memory, self.maps = kernel, index, count, memory, maps
        self.threads = threads
        self.shared = Memory(SHARED_BASE, shared_bytes, 0xFF)
        self.mbarriers, self.named = {}, {}
        self.warps = [Warp(self, i) for i in range(threads // LANES)]
