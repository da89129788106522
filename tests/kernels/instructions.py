"""What each PTX instruction does to a warp. Instructions.decode turns a statement into a function of the warp which
returns None (go on), a place to jump to, (lanes, place) where lanes part, or BLOCKED (try again later)."""
import re

import numpy as np

from machine import F32, LANES, MAP_BASE, PEER_BYTES, S32, S64, SHARED_BASE, U32, U64, f32_to_bf16
from units import Units, names, split_operands


def constant(text, dtype):
    if text.startswith("0f"):
        return np.full(LANES, int(text[2:], 16), U32)
    return np.full(LANES, int(text, 0) & (2 ** (8 * np.dtype(dtype).itemsize) - 1), dtype)


class Instructions(Units):
    def decode(self, text):
        m = re.match(r"(?:@(!?)(\S+) )?(\S+)\s*(.*)$", text)
        negate, guard, op, rest = m.groups()
        operands = split_operands(rest)
        root = op.split(".")[0]
        if root == "bra":
            return self.branch(guard, negate, operands[0]), False
        if root in ("ret", "exit"):
            return self.end(guard, negate), False
        build = getattr(self, "op_" + root, None)
        if build is None:
            raise NotImplementedError(text)
        made = build(op, operands)
        fn, sync = made if isinstance(made, tuple) else (made, False)
        if guard:
            assert not sync, text
            fn = self.guarded(fn, guard, negate)
        return fn, sync

    @staticmethod
    def guarded(fn, guard, negate):
        def run(w):
            mask, full = w.mask, w.full
            w.mask = (~w.reg(guard) if negate else w.reg(guard)) & mask
            w.full = False
            result = fn(w) if w.mask.any() else None
            w.mask, w.full = mask, full
            return result
        return run

    def branch(self, guard, negate, label):
        labels = self.labels
        if not guard:
            return lambda w: labels[label]

        def fn(w):
            taken = w.reg(guard)
            taken = (~taken if negate else taken) & w.mask
            if not taken.any():
                return None
            if (taken == w.mask).all():
                return labels[label]
            return taken, labels[label]
        return fn

    @staticmethod
    def end(guard, negate):
        assert not guard

        def fn(w):
            w.live = w.live & ~w.mask
            w.converged = False
            return None
        return fn

    def get(self, text, dtype):
        """A function w -> the operand as an array of |dtype|."""
        if text.startswith("%p") or "@" in text:
            return lambda w: w.reg(text)
        if text.startswith("%r"):
            return lambda w: w.reg(text).view(dtype) if w.reg(text).dtype.itemsize == np.dtype(dtype).itemsize \
                else w.reg(text).astype(dtype)
        if text == "%tid.x":
            return lambda w: (np.arange(LANES, dtype=U32) + U32(32 * w.index)).astype(dtype)
        if text == "%ctaid.x":
            return lambda w: np.full(LANES, w.cta.index, dtype)
        if text == "%nctaid.x":
            return lambda w: np.full(LANES, w.cta.count, dtype)
        if text.startswith("pisa_smem"):
            value = np.full(LANES, SHARED_BASE + (int(text[10:]) if len(text) > 9 else 0), dtype)
            return lambda w: value
        if re.fullmatch(self.entry + r"_param_\d+", text):
            value = np.full(LANES, MAP_BASE + int(text.split("_")[-1]), dtype)
            return lambda w: value
        if text in ("true", "false"):
            return lambda w: np.full(LANES, text == "true")
        value = constant(text, U64 if np.dtype(dtype).itemsize == 8 else U32 if np.dtype(dtype).itemsize == 4
                         else np.dtype(dtype))
        return lambda w: value.view(dtype) if value.dtype.itemsize == np.dtype(dtype).itemsize else value.astype(dtype)

    @staticmethod
    def type_of(op):
        suffix = op.split(".")[-1]
        return {"s32": S32, "u32": U32, "b32": U32, "f32": F32, "s64": S64, "u64": U64, "b64": U64, "pred": bool,
                "b16": np.uint16, "u16": np.uint16, "s16": np.int16}[suffix]

    def binary(self, op, operands, fn, dtype=None):
        t = dtype or self.type_of(op)
        a, b, d = self.get(operands[1], t), self.get(operands[2], t), operands[0]
        store = {S32: U32, F32: U32, S64: U64, np.int16: np.uint16}.get(t)

        def run(w):
            r = fn(a(w), b(w))
            w.set(d, r.view(store) if store else r)
        return run

    def unary(self, op, operands, fn, source=None, result=None):
        t = source or self.type_of(op)
        a, d = self.get(operands[1], t), operands[0]

        def run(w):
            r = fn(a(w))
            w.set(d, r.view(result) if result else r)
        return run

    def op_add(self, op, o):
        return self.binary(op, o, np.add)

    def op_sub(self, op, o):
        return self.binary(op, o, np.subtract)

    def op_mul(self, op, o):
        if ".wide." in op:
            t = self.type_of(op)
            a, b, d = self.get(o[1], t), self.get(o[2], t), o[0]
            wide = {S32: S64, U32: U64, np.uint16: U32}[t]
            return lambda w: w.set(d, (a(w).astype(wide) * b(w).astype(wide)).view(U32 if wide == U32 else U64))
        if ".hi." in op:
            t = self.type_of(op)
            wide, store = {S32: (S64, U32), U32: (U64, U32)}[t]
            a, b, d = self.get(o[1], t), self.get(o[2], t), o[0]
            return lambda w: w.set(d, (a(w).astype(wide) * b(w).astype(wide) >> wide(32)).astype(store))
        assert ".lo." in op or op.endswith("f32"), op
        return self.binary(op, o, np.multiply)

    def op_mad(self, op, o):
        assert ".hi." not in op, op
        t = self.type_of(op)
        a, b, c, d = self.get(o[1], t), self.get(o[2], t), self.get(o[3], t), o[0]
        if ".wide." in op:
            wide = {S32: S64, U32: U64}[t]
            c = self.get(o[3], wide)
            return lambda w: w.set(d, (a(w).astype(wide) * b(w).astype(wide) + c(w)).view(U64))
        store = U64 if np.dtype(t).itemsize == 8 else U32
        return lambda w: w.set(d, (a(w) * b(w) + c(w)).view(store))

    def op_fma(self, op, o):
        a, b, c = (self.get(x, F32) for x in o[1:])
        down, saturated = ".rm." in op, ".sat." in op

        def run(w):
            exact = a(w).astype(np.float64) * b(w) + c(w)
            r = exact.astype(F32)
            if down:
                r = np.where(r > exact, np.nextafter(r, F32(-np.inf)), r)
            if saturated:
                r = np.where(np.isnan(r), F32(0), np.clip(r, F32(0), F32(1)))
            w.set(o[0], r.view(U32))
        return run

    def op_div(self, op, o):
        return self.binary(op, o, lambda a, b: a // np.where(b == 0, 1, b).astype(a.dtype))

    def op_rem(self, op, o):
        return self.binary(op, o, lambda a, b: a % np.where(b == 0, 1, b).astype(a.dtype))

    def op_and(self, op, o):
        return self.binary(op, o, np.bitwise_and)

    def op_or(self, op, o):
        return self.binary(op, o, np.bitwise_or)

    def op_xor(self, op, o):
        return self.binary(op, o, np.bitwise_xor)

    def op_not(self, op, o):
        return self.unary(op, o, np.invert)

    def op_neg(self, op, o):
        t = self.type_of(op)
        return self.unary(op, o, np.negative, result=U32 if t in (S32, F32) else None)

    def op_abs(self, op, o):
        return self.unary(op, o, np.abs, result=U32)

    def op_shl(self, op, o):
        t = self.type_of(op)
        a, b, bits = self.get(o[1], t), self.get(o[2], U32), 8 * np.dtype(t).itemsize
        return lambda w: w.set(o[0], np.where(b(w) < bits, a(w) << (b(w) & U32(bits - 1)).astype(t), t(0)))

    def op_shr(self, op, o):
        t = self.type_of(op)
        a, b, bits = self.get(o[1], t), self.get(o[2], U32), 8 * np.dtype(t).itemsize
        store = {S32: U32, S64: U64}.get(t)

        def run(w):
            r = a(w) >> np.minimum(b(w), bits - 1).astype(t)
            if not store:
                r = np.where(b(w) < bits, r, t(0))
            w.set(o[0], r.view(store) if store else r)
        return run

    def op_bfe(self, op, o):
        """Signed: the field's highest bit fills what is above."""
        a, p, n = self.get(o[1], U32), self.get(o[2], U32), self.get(o[3], U32)
        signed = op.endswith("s32")

        def run(w):
            width = np.minimum(n(w), U32(31))
            field = (a(w) >> np.minimum(p(w), U32(31))) & ((U32(1) << width) - U32(1))
            if signed:
                top = U32(1) << (np.maximum(width, U32(1)) - U32(1))
                field = (field ^ top) - top
            w.set(o[0], field)
        return run

    def op_prmt(self, op, o):
        assert op == "prmt.b32" and o[3].startswith("0x"), op
        a, b, selector = self.get(o[1], U32), self.get(o[2], U32), int(o[3].rstrip("U"), 0)

        def run(w):
            pool = np.concatenate([a(w).view(np.uint8).reshape(LANES, 4), b(w).view(np.uint8).reshape(LANES, 4)], 1)
            chosen = pool[:, [selector >> 4 * i & 7 for i in range(4)]]
            w.set(o[0], np.ascontiguousarray(chosen).view(U32).reshape(LANES))
        return run

    def op_min(self, op, o):
        return self.binary(op, o, np.fmin)

    def op_max(self, op, o):
        return self.binary(op, o, np.fmax)

    def op_popc(self, op, o):
        return self.unary(op, o, lambda a: np.array([bin(int(x)).count("1") for x in a], U32))

    def op_clz(self, op, o):
        return self.unary(op, o, lambda a: np.array([32 - int(x).bit_length() for x in a], U32))

    def op_setp(self, op, o):
        _, compare, kind = op.split(".")[:3]
        t = self.type_of(op)
        fn = {"eq": np.equal, "ne": lambda a, b: (a < b) | (a > b), "lt": np.less, "le": np.less_equal, "gt": np.greater,
              "ge": np.greater_equal, "neu": np.not_equal,
              "geu": lambda a, b: ~(a < b), "gtu": lambda a, b: ~(a <= b), "leu": lambda a, b: ~(a > b),
              "ltu": lambda a, b: ~(a >= b),
              "num": lambda a, b: (a == a) & (b == b), "nan": lambda a, b: (a != a) | (b != b)}[compare]
        if compare == "ne" and t == F32:  # false where one is nan; neu is true
            fn = lambda a, b: (a < b) | (a > b)
        a, b = self.get(o[1], t), self.get(o[2], t)
        return lambda w: w.set(o[0], fn(a(w), b(w)))

    def op_selp(self, op, o):
        t = {"f32": U32, "b32": U32, "b64": U64, "b16": np.uint16}[op.split(".")[-1]]
        a, b, p = self.get(o[1], t), self.get(o[2], t), o[3]
        return lambda w: w.set(o[0], np.where(w.reg(p), a(w), b(w)))

    def op_mov(self, op, o):
        if o[0].startswith("{"):
            lo, hi = names(o[0])
            whole, part = (U64, U32) if op.endswith("64") else (U32, np.uint16)
            a, bits = self.get(o[1], whole), whole(8 * np.dtype(part).itemsize)

            def unpack(w):
                x = a(w)
                if lo != "_":
                    w.set(lo, x.astype(part))
                if hi != "_":
                    w.set(hi, (x >> bits).astype(part))
            return unpack
        if o[1].startswith("{"):
            whole, part = (U64, U32) if op.endswith("64") else (U32, np.uint16)
            a, b = (self.get(x, part) for x in names(o[1]))
            bits = whole(8 * np.dtype(part).itemsize)
            return lambda w: w.set(o[0], a(w).astype(whole) | (b(w).astype(whole) << bits))
        t = U64 if o[0].startswith("%rd") else np.uint16 if o[0].startswith("%rs") else U32
        if op.endswith("pred"):
            t = bool
        a = self.get(o[1], t)
        return lambda w: w.set(o[0], a(w))

    def op_cvt(self, op, o):
        half = f32_to_bf16 if "bf16" in op else lambda x: x.astype(np.float16).view(np.uint16)
        if op in ("cvt.rn.bf16x2.f32", "cvt.rn.f16x2.f32"):
            hi, lo = self.get(o[1], F32), self.get(o[2], F32)
            return lambda w: w.set(o[0], half(lo(w)).astype(U32) | (half(hi(w)).astype(U32) << U32(16)))
        if op in ("cvt.rn.bf16.f32", "cvt.rn.f16.f32"):
            a = self.get(o[1], F32)
            return lambda w: w.set(o[0], half(a(w)))
        if op == "cvt.f32.f16":
            a = self.get(o[1], np.uint16)
            return lambda w: w.set(o[0], a(w).view(np.float16).astype(F32).view(U32))
        parts = op.split(".")
        to, source = {"f32": F32}.get(parts[-2]) or self.type_of(parts[-2]), self.type_of(parts[-1])
        a = self.get(o[1], source)
        store = {F32: U32, S64: U64, S32: U32}.get(to, to)
        return lambda w: w.set(o[0], a(w).astype(to).view(store))

    def op_cvta(self, op, o):
        a = self.get(o[1], U64)
        return lambda w: w.set(o[0], a(w))

    def approximate(self, fn):
        def build(op, o):
            a = self.get(o[1], F32)

            def run(w):
                with np.errstate(all="ignore"):
                    w.set(o[0], fn(a(w).astype(np.float64)).astype(F32).view(U32))
            return run
        return build

    def op_rcp(self, op, o):
        return self.approximate(lambda x: 1 / x)(op, o)

    def op_sqrt(self, op, o):
        return self.approximate(np.sqrt)(op, o)

    def op_lg2(self, op, o):
        return self.approximate(np.log2)(op, o)

    def op_ex2(self, op, o):
        return self.approximate(np.exp2)(op, o)

    # ---- memory

    def address(self, text):
        m = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", text)
        base = self.get(m.group(1).strip(), U64)
        offset = U64(int(m.group(2) or 0) & (2 ** 64 - 1))
        return lambda w: base(w) + offset

    def op_ld(self, op, o):
        parts = op.split(".")
        if parts[1] == "param":
            index = int(re.search(r"_param_(\d+)", o[1]).group(1))
            return lambda w: w.set(o[0], self.values[index])
        return self.access(parts, names(o[0]), o[1], False)

    def op_st(self, op, o):
        return self.access(op.split("."), names(o[1]), o[0], True, self.address(o[2]) if ".async." in op else None)

    @staticmethod
    def complete(cta, full, n):
        """|n| bytes that an mbarrier of |cta| expects, at |full| as its peers see it."""
        barrier = cta.mbarriers[full - PEER_BYTES * (cta.rank + 1)]
        barrier.bytes -= n
        barrier.settle()

    def access(self, parts, registers, place, storing, arrived=None):
        shared, peer, size = parts[1] == "shared", "shared::cluster" in parts, np.dtype(self.type_of(parts[-1])).itemsize
        t = {2: np.uint16, 4: U32, 8: U64}[size]
        address = self.address(place)
        total = size * len(registers)
        values = [self.get(r, t) for r in registers] if storing else None

        def run(w):
            memory = w.cta.shared if shared else w.cta.memory
            lanes = slice(None) if w.full else w.mask
            place = address(w)[lanes]
            if peer:
                for peer_cta, some, here in w.cta.cluster.peers_of(place):
                    index = peer_cta.shared.index(here, total, total) // size
                    for i, value in enumerate(values):
                        peer_cta.shared.views[size][index + i] = value(w)[lanes][some]
                    for full in arrived(w)[lanes][some] if arrived else ():
                        self.complete(peer_cta, int(full), total)
                return
            index = memory.index(place, total, total) // size
            if not shared and not w.waited:
                memory.check_early(place)
            view = memory.views[size]
            for i, r in enumerate(registers):
                if storing:
                    view[index + i] = values[i](w)[lanes]
                else:
                    w.reg(r)[lanes] = view[index + i]
        return run

    def op_mapa(self, op, o):
        """What peers have where this CTA has it."""
        assert op == "mapa.shared::cluster.u32", op
        address, rank = self.get(o[1], U32), self.get(o[2], U32)
        return lambda w: w.set(o[0], address(w) + (rank(w) + U32(1)) * U32(PEER_BYTES))

    def op_atom(self, op, o):
        """Additions to global memory, of the lanes in turn."""
        assert ".global." in op and op.endswith("add.u32"), op
        address, value = self.address(o[1]), self.get(o[2], U32)

        def run(w):
            lanes = np.flatnonzero(w.mask)
            index = w.cta.memory.index(address(w)[lanes], 4, 4) // 4
            view, r, v = w.cta.memory.views[4], w.reg(o[0]), value(w)
            for lane, at in zip(lanes, index):
                r[lane] = view[at]
                view[at] += v[lane]
        return run

    def op_red(self, op, o):
        """The same of shared memory, additions or bits, with no answer."""
        assert op in ("red.shared.relaxed.cta.add.u32", "red.shared.relaxed.cta.or.b32"), op
        address, value, join = self.address(o[0]), self.get(o[1], U32), np.add if ".add." in op else np.bitwise_or

        def run(w):
            lanes = np.flatnonzero(w.mask)
            index = w.cta.shared.index(address(w)[lanes], 4, 4) // 4
            join.at(w.cta.shared.views[4], index, value(w)[lanes])
        return run

    # ---- warp

    def op_shfl(self, op, o):
        d = o[0].split("|")[0]
        a, b = self.get(o[1], U32), self.get(o[2], U32)
        lane = np.arange(LANES)
        if ".bfly." in op:
            return (lambda w: w.set(d, a(w)[lane ^ b(w)])), True
        c = self.get(o[3], U32)

        def read(w):
            stays = lane & (c(w) >> U32(8) & U32(31))
            w.set(d, a(w)[stays | (b(w) & U32(31) & ~(c(w) >> U32(8)))])
        return read, True

    def op_vote(self, op, o):
        p = self.get(o[1], bool)
        weights = U32(1) << np.arange(LANES, dtype=U32)
        return (lambda w: w.set(o[0], U32(int((weights * (p(w) & w.mask)).sum())))), True

    def op_redux(self, op, o):
        a = self.get(o[1], U32)
        fn = {"add": np.sum, "max": np.max, "min": np.min}[op.split(".")[2]]
        return (lambda w: w.set(o[0], U32(int(fn(a(w).astype(U64))) & 0xFFFFFFFF))), True

    def op_elect(self, op, o):
        d, p = o[0].split("|")

        def run(w):
            first = int(np.flatnonzero(w.mask)[0])
            w.set(d, U32(first))
            w.set(p, np.arange(LANES) == first)
        return run, True
