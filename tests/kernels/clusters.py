"""The clustered leaf stage of block selection (compiler/kernels/cluster.h): what walk hands over, made at random; images of
keys (compiler/sm90/key_image.h); launches of cluster, scatter, leaf_score and pick, and what their outputs stand for."""
import numpy as np

from machine import F32, S32, U32
from selection import Selector, ceil_div, log_sum

LOG2_E = 1.4426950408889634
CLUSTER, SINGLE, NEAR = range(3)
NO_SLOT = 1023
SCATTER_ROWS = 128  # of runtime/pyramid.def


def has_singles(plan):
    return plan.g == 2 and plan.previous and plan.current and len(plan.always) == 1 and \
        plan.always[0][0] == 0 and 0 < plan.always[0][1] <= plan.C


class Row:
    """One query and key head: its leaves, and parents kept at random."""

    def __init__(self, case, query, kv_head, scale, pyramids):
        plan, self.query, self.kv_head = case.plan, query, kv_head
        self.s = case.s.of_query(query)
        self.t = self.s.token(query)
        key = self.s.index, kv_head
        if key not in pyramids:
            pyramids[key] = case.pyramid(self.s, kv_head)
        self.selector = Selector(plan, pyramids[key], case.query(query, kv_head), self.t, scale)
        self.own = self.t // plan.C if self.t >= 0 else -1
        self.is_scored = self.own >= plan.K
        parents = self.own // plan.g + 1 if self.t >= 0 else 0
        forced = [p for p in range(parents) if self.selector.forced(2, p)] if self.is_scored else []
        others = np.setdiff1d(np.arange(parents), forced)
        free = min(plan.K, parents) - len(forced)
        self.kept = sorted([*forced, *case.rng.choice(others, free, replace=False)]) if self.is_scored else list(range(min(plan.K, parents)))
        self.leaves = [x for p in self.kept for x in range(p * plan.g, p * plan.g + plan.g) if x <= self.own]

    def forced(self, leaf):
        return self.selector.forced(1, leaf)

    def members(self, plan):
        """(slot of K, parent) of the clusters it is in."""
        for slot, p in enumerate(self.kept if self.is_scored else ()):
            leaves = [x for x in range(p * plan.g, p * plan.g + plan.g) if x <= self.own]
            forced = [self.forced(x) for x in leaves]
            if not all(forced) and not (has_singles(plan) and any(forced)):
                yield slot, p

    def wanted(self, plan):
        """{slot of scores: leaf} that must be written."""
        out = {self.kept.index(x // plan.g) * plan.g + x % plan.g: x for x in self.leaves
               if not self.forced(x)} if self.is_scored else {}
        if self.is_scored and plan.mass:
            out |= {slot: self.own - 1 + i for i, slot in enumerate(self.near_slots(plan))}
        return out

    def near_slots(self, plan):
        """Of the previous and the own leaf, with mass."""
        if not has_singles(plan):
            return [plan.K * plan.g, plan.K * plan.g + 1]
        return [self.kept.index(x // 2) * 2 + x % 2 for x in (self.own - 1, self.own)]

    def score(self, leaf):
        """[G], log2."""
        x = self.selector.children_logits(1, leaf)[0]
        return np.array([log_sum(row) for row in x]) * LOG2_E


class Stage:
    def __init__(self, case, memory, chunk, scale):
        self.case, self.plan, self.s, self.memory, self.chunk, self.scale = case, case.plan, case.s, memory, chunk, scale
        s, plan, pyramids = self.s, self.plan, {}
        self.NSEG = ceil_div(s.T, chunk) * s.kv_heads
        self.rows = [Row(case, query, kv_head, scale, pyramids) for kv_head in range(s.kv_heads) for query in range(s.T)]
        self.slots = plan.K * plan.g + (2 if plan.mass and not has_singles(plan) else 0)
        self.item_room = s.NP + plan.K * chunk // 16 + 2 * (chunk // 8 + 2 * s.NP + 2)
        self.make_walk()
        self.common = case.sequence_arguments(memory)
        self.at = {name: memory.array(getattr(self, name)) for name in ("kept", "positions", "counts", "forced")}
        self.shapes = dict(offsets=(self.NSEG, s.NP), items=(self.NSEG, self.item_room, 4), n_items=(self.NSEG,),
                           entries=(self.NSEG, plan.K * chunk), scores=(s.R, self.slots, plan.G) if plan.mass else (s.R, self.slots),
                           ids=(s.R, plan.K), worth=(s.R, plan.K))
        self.types = dict(entries=U32, scores=F32, worth=F32)
        self.at |= {name: memory.empty(shape, self.types.get(name, S32)) for name, shape in self.shapes.items()}

    def segment(self, row):
        return row.query // self.chunk * self.s.kv_heads + row.kv_head

    def parent(self, row, p):
        return self.s.first_parent(row.s) + p

    def make_walk(self):
        s, plan = self.s, self.plan
        self.kept, self.positions = (np.full((s.R, plan.K), -1, S32) for _ in range(2))
        self.counts = np.zeros((self.NSEG, s.NP), S32)
        self.forced = np.full((s.R, plan.G), -np.inf, F32)
        self.clusters = {}  # (segment, parent): {entry}
        for i in self.case.rng.permutation(s.R):
            row = self.rows[i]
            self.kept[i, :len(row.kept)] = row.kept
            for slot, p in row.members(plan):
                key = self.segment(row), self.parent(row, p)
                self.positions[i, slot] = self.counts[key]
                self.counts[key] += 1
                self.clusters.setdefault(key, set()).add(row.query % self.chunk | slot << 24)
            sinks = [x for x in row.leaves if row.forced(x) and x < row.own - 1] if row.is_scored and plan.mass else []
            if sinks:
                x = np.stack([row.selector.node_score(1, x) for x in sinks], 1)
                self.forced[i] = [log_sum(y) * LOG2_E for y in x]

    def read(self, name):
        return self.memory.read(self.at[name], self.shapes[name], self.types.get(name, S32))

    # ---- launches

    def run_cluster(self):
        self.plan.kernel("cluster").launch(self.NSEG, 1024, self.memory, [
            *self.common, *(self.at[x] for x in ("counts", "offsets", "items", "n_items")), self.chunk, self.s.NP, self.item_room])

    def run_scatter(self):
        grid = ceil_div(self.s.T, SCATTER_ROWS) * self.s.kv_heads
        self.plan.kernel("scatter").launch(grid, 0, self.memory, [
            *self.common, *(self.at[x] for x in ("kept", "positions", "offsets", "entries")), self.chunk, self.s.NP])

    def run_leaf_score(self, grid):
        kernel = self.plan.kernel("leaf_score")
        images = self.memory.array(self.images())
        kernel.launch(grid, kernel.shared, self.memory, [
            *self.common, *self.case.array_arguments(self.memory, self.case.q), images,
            *(self.at[x] for x in ("items", "n_items", "entries", "scores")), self.NSEG, self.chunk, self.item_room, self.s.NL,
            float(self.scale)])

    def run_pick(self, worth=True):
        kernel = self.plan.kernel("pick")
        rows = 128 if not self.plan.mass and self.plan.K * self.plan.g <= 32 else 32
        kernel.launch(ceil_div(self.s.T, rows) * self.s.kv_heads, kernel.shared, self.memory, [
            *self.common, *(self.at[x] for x in ("kept", "scores", "forced", "ids")), self.at["worth"] if worth else 0])

    def images(self):
        """[Hk, NL, C, D] bits; rows of no key hold nan, leaves of no sequence too."""
        s, plan, case = self.s, self.plan, self.case
        C, D = plan.C, plan.D
        keys = np.full((s.kv_heads, s.NL, C, D), plan.to_bits(np.nan), np.uint16)
        for x in s.each:
            for h in range(s.kv_heads if x.keys else 0):
                rows = case.rows(case.k, x, h)
                flat = keys[h, s.first_leaf(x):].reshape(-1, D)
                flat[:len(rows)] = rows
        words = keys.reshape(s.kv_heads, s.NL, C, D // 32, 4, 4, 2)       # of 32 columns: chunk, word, half
        chunks = words.swapaxes(4, 5).reshape(s.kv_heads, s.NL, C // 8, 8, D // 64, 8, 8)
        row, unit = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
        out = np.empty((s.kv_heads, s.NL, C // 8, D // 64, 8, 8, 8), np.uint16)
        for panel in range(D // 64):
            out[:, :, :, panel, row, unit ^ row] = chunks[:, :, :, row, panel, unit]
        return out

    # ---- what the definitions want

    def lists(self, row):
        """ids [K], worth [K] of a row given its kept parents."""
        kept, worth = row.selector.keep(1, np.array(row.leaves, int))
        n, K = len(kept), self.plan.K
        return np.append(kept, np.full(K - n, -1)).astype(int), np.append(worth, np.full(K - n, -np.inf))
