"""A kernel of a PTX text: its statements, decoded once, and how warps run them."""
import re

import numpy as np

from instructions import Instructions
from machine import BLOCKED, GLOBAL_BASE, LANES, F32, U32, U64, Cluster, Cta, Fault, TensorMap


def statements(body):
    """("op", text) and ("label", name) in order; names local to a { } scope get its number."""
    body = re.sub(r"//[^\n]*", "", body)
    local_names = set(re.findall(r"\.reg \.pred\s+(\w+);", body)) | set(re.findall(r"\b([A-Z]\w*):", body))
    local = re.compile(r"(?<![\w.%$])(" + "|".join(sorted(local_names) or ["$^"]) + r")(?![\w.])")
    scopes, n_scopes, text = [], 0, ""

    def renamed(text):
        return local.sub(lambda m: f"{m.group(1)}@{scopes[-1]}", text) if scopes else text

    for c in body:
        at_start = not text.strip()
        if c == "{" and at_start:  # elsewhere it opens an operand list
            n_scopes += 1
            scopes.append(n_scopes)
        elif c == "}" and at_start:
            scopes.pop()
        elif c == ":" and re.fullmatch(r"\s*[\w$]+", text):
            yield "label", renamed(text.strip())
            text = ""
        elif c == ";":
            statement = " ".join(text.split())
            text = ""
            if statement and not statement.startswith("."):
                yield "op", renamed(statement)
        else:
            text += c


class Kernel(Instructions):
    """One .entry of a PTX text, decoded once."""

    def __init__(self, ptx, entry):
        whole = re.search(r"\.entry " + entry + r"\((.*?)\)(.*?)\n\}", ptx, re.S)
        shared = re.search(r"// " + entry + r" shared (\d+)", ptx)  # as emit prints it
        self.shared = int(shared.group(1)) if shared else 0
        bound, threads = re.search(r"\.(reqntid|maxntid) (\d+)", whole.group(2)).groups()
        self.threads, self.exact = int(threads), bound == "reqntid"
        self.entry = entry
        body = whole.group(2)[whole.group(2).index("{") + 1:]
        self.code, self.sync, self.source, self.labels = [], [], [], {}
        self.values = {}
        for kind, text in statements(body):
            if kind == "label":
                self.labels[text] = len(self.source)
            else:
                self.source.append(text)
        for text in self.source:
            fn, sync = self.decode(text)
            self.code.append(fn)
            self.sync.append(sync)

    # ---- running

    def run(self, w):
        """Until |w| blocks or ends; true when it did something."""
        progress = False
        code, sync = self.code, self.sync
        while True:
            if w.converged:
                pc = w.pc
                result = code[pc](w)
                if result is BLOCKED:
                    return progress
                progress = True
                if result is None:
                    w.pc = pc + 1
                elif isinstance(result, int):
                    w.pc = result
                else:  # lanes part: (taken, target)
                    taken, target = result
                    w.pcs[:] = pc + 1
                    w.pcs[taken] = target
                    w.converged = False
                if not w.live.any():
                    return True
                continue
            step = self.diverged_step(w)
            if step is BLOCKED:
                return progress
            progress = True
            if not w.live.any():
                return True

    def diverged_step(self, w):
        """One instruction of the lanes that are least far; of others where those wait."""
        blocked = False
        for pc in np.unique(w.pcs[w.live]):
            mask = w.live & (w.pcs == pc)
            whole = bool((mask == w.live).all())
            if whole:
                w.converged, w.pc, w.mask, w.full = True, int(pc), w.live.copy(), bool(w.live.all())
                return None
            if self.sync[pc]:
                continue
            w.mask, w.full = mask, False
            result = self.code[pc](w)
            if result is BLOCKED:
                blocked = True
                continue
            if result is None:
                w.pcs[mask] = pc + 1
            elif isinstance(result, int):
                w.pcs[mask] = result
            else:
                taken, target = result
                w.pcs[mask] = pc + 1
                w.pcs[taken] = target
            return None
        if blocked:
            return BLOCKED
        raise Fault(f"lanes meet at different warp-wide instructions: "
                    f"{[self.source[p] for p in np.unique(w.pcs[w.live])]}")

    # ---- launching

    def launch(self, grid, shared_bytes, memory, arguments, cluster=1, threads=None):
        """|arguments|: ints (pointers, int32), floats, TensorMaps; in the kernel's order. |cluster|: CTAs of one."""
        threads = threads or self.threads
        assert grid % cluster == 0 and threads % LANES == 0
        assert threads == self.threads or threads < self.threads and not self.exact
        maps = {}
        for i, x in enumerate(arguments):
            if isinstance(x, TensorMap):
                maps[i] = x
            elif isinstance(x, float):
                self.values[i] = np.full(LANES, x, F32).view(U32)
            else:
                self.values[i] = np.full(LANES, x, U64) if x >= GLOBAL_BASE else np.full(LANES, x & 0xFFFFFFFF, U64)
        for first in range(0, grid, cluster):
            Cluster([Cta(self, first + i, grid, threads, shared_bytes, memory, maps) for i in range(cluster)]).run()
