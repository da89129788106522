"""Matrix units, barriers and the copy engine: instructions of whole warps, warpgroups and boxes."""
import re

import numpy as np

from machine import BLOCKED, F32, LANES, MAP_BASE, S32, SHARED_BASE, U32, U64, Barrier, Fault, half_to_f32, swizzled


def split_operands(text):
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[") - (c in "}]")
        if c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    if text[start:].strip():
        out.append(text[start:].strip())
    return out


def names(text):
    return [x.strip() for x in text.strip("{}").split(",")]


class Units:
    def op_mma(self, op, o):
        d, a, b, c = names(o[0]), names(o[1]), names(o[2]), names(o[3])
        is_bf16 = ".bf16." in op
        c = [self.get(x, F32) for x in c]
        row, col = np.arange(LANES) // 4, 2 * (np.arange(LANES) % 4)

        def run(w):
            left, right, acc = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
            for i in range(4):
                x = w.reg(a[i])
                for q in range(2):
                    left[row + 8 * (i & 1), col + 8 * (i >> 1) + q] = half_to_f32(x >> U32(16 * q), is_bf16)
            for i in range(2):
                for q in range(2):
                    right[col + 8 * i + q, row] = half_to_f32(w.reg(b[i]) >> U32(16 * q), is_bf16)
            for i in range(4):
                acc[row + 8 * (i >> 1), col + (i & 1)] = c[i](w)
            with np.errstate(all="ignore"):
                acc = (left @ right + acc).astype(F32)
            for i in range(4):
                w.set(d[i], acc[row + 8 * (i >> 1), col + (i & 1)].view(U32))
        return run, True

    def op_ldmatrix(self, op, o):
        d, address = names(o[0]), self.address(o[1])
        row, pair = np.arange(LANES) // 4, np.arange(LANES) % 4

        def run(w):
            where = address(w)
            for z, r in enumerate(d):
                index = w.cta.shared.index(where[8 * z + row], 16, 16) // 4 + pair
                w.set(r, w.cta.shared.views[4][index])

        def run_transposed(w):
            where = address(w)
            for z, r in enumerate(d):
                lo, hi = (w.cta.shared.views[2][w.cta.shared.index(where[8 * z + 2 * pair + q], 16, 16) // 2 + row]
                          for q in range(2))
                w.set(r, lo.astype(U32) | (hi.astype(U32) << U32(16)))
        return (run_transposed if ".trans" in op else run), True

    def op_stmatrix(self, op, o):
        s, address = names(o[1]), self.address(o[0])
        row, pair = np.arange(LANES) // 4, np.arange(LANES) % 4

        def run(w):
            where = address(w)
            for z, r in enumerate(s):
                index = w.cta.shared.index(where[8 * z + row], 16, 16) // 4 + pair
                w.cta.shared.views[4][index] = w.reg(r)
        return run, True

    # ---- barriers

    def op_bar(self, op, o):
        if op == "bar.warp.sync":
            return (lambda w: None), True
        number = self.get(o[0], U32)
        count = self.get(o[1], U32) if len(o) > 1 else None

        def run(w):
            key = int(number(w)[0])
            threads = int(count(w)[0]) if count else w.cta.threads
            if w.waiting is not None:
                if not w.waiting["open"]:
                    return BLOCKED
                w.waiting = None
                return None
            state = w.cta.named.setdefault(key, {"count": 0, "open": False})
            state["count"] += LANES
            if state["count"] > threads:
                raise Fault(f"named barrier {key}: more than {threads} threads")
            if state["count"] == threads:
                state["open"] = True
                del w.cta.named[key]
                return None
            if op == "bar.arrive":
                return None
            w.waiting = state
            return BLOCKED
        return run, True

    def op_barrier(self, op, o):
        """barrier.cluster: of all warps of all CTAs."""
        assert op.startswith("barrier.cluster.") and op.endswith(".aligned"), op

        def arrive(w):
            if w.cluster_phase is not None:
                raise Fault("a second arrival at the cluster barrier without a wait")
            w.cluster_phase = w.cta.cluster.phase
            w.cta.cluster.arrive()

        def wait(w):
            if w.cluster_phase is None:
                raise Fault("a wait for the cluster barrier without an arrival")
            if w.cta.cluster.phase == w.cluster_phase:
                return BLOCKED
            w.cluster_phase = None
            return None
        return (arrive if ".arrive" in op else wait), True

    def op_mbarrier(self, op, o):
        address = self.address(o[1] if "try_wait" in op else o[0] if "init" in op else o[1])
        if op.startswith("mbarrier.init"):
            count = self.get(o[1], U32)

            def run(w):
                for lane in np.flatnonzero(w.mask):
                    w.cta.mbarriers[int(address(w)[lane])] = Barrier(int(count(w)[lane]))
        elif op.startswith("mbarrier.try_wait"):
            parity = self.get(o[2], U32)

            def run(w):
                lanes = np.flatnonzero(w.mask)
                done = all(w.cta.mbarriers[int(address(w)[x])].phase != int(parity(w)[x]) & 1 for x in lanes)
                if not done:
                    return BLOCKED
                w.set(o[0], True)
                return None
        elif ".expect_tx" in op:
            count = self.get(o[2], U32)

            def run(w):
                for lane in np.flatnonzero(w.mask):
                    barrier = w.cta.mbarriers[int(address(w)[lane])]
                    barrier.bytes += int(count(w)[lane])
                    barrier.arrive()
        else:
            count = self.get(o[2] if len(o) > 2 else "1", U32)

            def run(w):
                for lane in np.flatnonzero(w.mask):
                    w.cta.mbarriers[int(address(w)[lane])].arrive(int(count(w)[lane]))
        return run

    @staticmethod
    def op_griddepcontrol(op, o):
        def wait(w):
            w.waited = True
        return wait if op.endswith(".wait") else lambda w: None

    @staticmethod
    def nothing(op, o):
        return lambda w: None

    op_fence = op_setmaxnreg = op_prefetch = op_nanosleep = nothing

    # ---- copies

    def op_cp(self, op, o):
        if "commit_group" in op or "wait_group" in op:
            return lambda w: None
        if ".prefetch" in op:
            return self.ask(o)
        if ".tensor" not in op:
            return self.bulk(o)
        storing = ".global.shared" in op
        tensor, shared = (o[0], o[1]) if storing else (o[1], o[0])
        map_of, coordinates = self.box_of(tensor)
        where = self.address(shared)
        full = None if storing else self.address(o[2])
        r, c = np.meshgrid(np.arange(64), np.arange(64), indexing="ij")

        def run(w):
            for lane in np.flatnonzero(w.mask):
                tensor_map = w.cta.maps[int(map_of(w)[lane]) - MAP_BASE]
                index, inside = tensor_map.box(*(int(x(w)[lane]) for x in coordinates))
                base = int(where(w)[lane])
                if base % 1024:
                    raise Fault("box not aligned to the swizzle atom")
                place = (swizzled(base + 128 * r + 2 * c) - SHARED_BASE) // 2
                outside, memory = w.cta.shared.views[2], tensor_map.memory.views[2]
                if storing:
                    memory[index[inside]] = outside[place[inside]]
                else:
                    outside[place] = np.where(inside, memory[index], 0)
                    barrier = w.cta.mbarriers[int(full(w)[lane])]
                    barrier.bytes -= 8192
                    barrier.settle()
        return run

    def box_of(self, tensor):
        m = re.fullmatch(r"\[([^,]+),\s*\{(.*)\}\]", tensor)
        return self.get(m.group(1), U64), [self.get(x, S32) for x in names(m.group(2))]

    def ask(self, o):
        """A box into L2: it must lie in a map, and nothing else is seen of it."""
        map_of, coordinates = self.box_of(o[0])

        def run(w):
            for lane in np.flatnonzero(w.mask):
                w.cta.maps[int(map_of(w)[lane]) - MAP_BASE].box(*(int(x(w)[lane]) for x in coordinates))
        return run

    def bulk(self, o):
        to, source, size, full = self.address(o[0]), self.address(o[1]), self.get(o[2], U32), self.address(o[3])

        def run(w):
            for lane in np.flatnonzero(w.mask):
                n = int(size(w)[lane])
                if n % 16:
                    raise Fault("bulk copy of bytes that are no multiple of 16")
                here = w.cta.shared.index(to(w)[lane:lane + 1], n, 16)[0]
                there = w.cta.memory.index(source(w)[lane:lane + 1], n, 16)[0]
                w.cta.shared.bytes[here:here + n] = w.cta.memory.bytes[there:there + n]
                barrier = w.cta.mbarriers[int(full(w)[lane])]
                barrier.bytes -= n
                barrier.settle()
        return run

    # ---- warpgroup products

    def op_wgmma(self, op, o):
        if op.startswith("wgmma.mma_async"):
            return self.product(op, o), True
        if op.startswith("wgmma.wait_group"):
            allowed = int(o[0])

            def run(w):
                groups = w.regs.setdefault("groups", [])
                while len(groups) > allowed:
                    for name, value in groups.pop(0).items():
                        if w.flying.get(name) is value:
                            w.reg(name)[:] = value
                            del w.flying[name]
            return run, True
        if op.startswith("wgmma.commit_group"):
            def commit(w):
                w.regs.setdefault("groups", []).append(dict(w.flying))
            return commit, True
        return (lambda w: None), True

    def matrix(self, w, descriptor, extent, transposed, is_bf16):
        """extent x 16 elements of an operand, by its descriptor."""
        start, leading, stride = ((descriptor >> s & 0x3FFF) << 4 for s in (0, 16, 32))
        if descriptor >> 62 != 1:
            raise Fault("descriptor without 128-byte swizzle")
        mn, kk = np.meshgrid(np.arange(extent), np.arange(16), indexing="ij")
        if transposed:
            address = start + mn // 64 * leading + kk // 8 * stride + kk % 8 * 128 + mn % 64 * 2
        else:
            address = start + mn // 8 * stride + mn % 8 * 128 + kk * 2
        index = w.cta.shared.index(swizzled(address), 2, 2) // 2
        return half_to_f32(w.cta.shared.views[2][index], is_bf16).astype(np.float64)

    def product(self, op, o):
        is_bf16 = ".bf16" in op
        n = int(re.search(r"\.m64n(\d+)k16", op).group(1))
        d = names(o[0])
        from_registers = o[1].startswith("{")
        a = [self.get(x, U32) for x in names(o[1])] if from_registers else self.get(o[1], U64)
        b, p = self.get(o[2], U64), o[3]
        a_transposed, b_transposed = (False, o[6] == "1") if from_registers else (o[6] == "1", o[7] == "1")
        row, col = np.arange(LANES) // 4, 2 * (np.arange(LANES) % 4)
        registers = [(i, row + 8 * (i >> 1 & 1), col + 8 * (i >> 2) + (i & 1)) for i in range(n // 2)]

        def part_of(w):  # what this warp brings
            left = np.zeros((16, 16))
            if from_registers:
                for i in range(4):
                    for q in range(2):
                        bits = a[i](w) >> U32(16 * q)
                        left[row + 8 * (i & 1), col + 8 * (i >> 1) + q] = half_to_f32(bits, is_bf16)
            acc = np.zeros((16, n))
            if w.reg(p)[0]:
                for i, r, c in registers:
                    value = w.flying.get(d[i])
                    acc[r, c] = (w.reg(d[i]) if value is None else value).view(F32)
            return left, acc

        def run(w):
            group = w.index // 4
            state = w.waiting
            if state is None:
                key = ("wgmma", group)
                state = w.cta.named.setdefault(key, {"warps": 0, "pc": w.pc, "open": False})
                if state["pc"] != w.pc:
                    raise Fault("warps of a warpgroup meet at different wgmma")
                state["warps"] += 1
                w.waiting = state
                if state["warps"] == 4:
                    state["open"] = True
                    del w.cta.named[key]
            if not state["open"]:
                return BLOCKED
            w.waiting = None
            left, acc = part_of(w)
            if not from_registers:
                rows = slice(16 * (w.index % 4), 16 * (w.index % 4) + 16)
                left = self.matrix(w, int(a(w)[0]), 64, a_transposed, is_bf16)[rows]
            right = self.matrix(w, int(b(w)[0]), n, b_transposed, is_bf16)
            with np.errstate(all="ignore"):
                acc = (left @ right.T + acc).astype(F32)
            for i, r, c in registers:
                w.flying[d[i]] = acc[r, c].view(U32).copy()
                w.reg(d[i])[:] = 0x7FC00000
            return None
        return run
