"""Block selection and attention over its lists in double precision with torch and numpy, one query at a
time, from the definition alone (arXiv 2609.31093; runtime/cpu/select.h says every rule). Independent of
runtime/cpu: a second opinion before anything is timed. Causal, with the own leaf always read.
"""

import numpy
import torch

SMALL = 1e-12


def means_of(k, leaf, children, dtype):
    """k [N, D] in double -> levels from the keys on; means as they are stored."""
    levels, size = [k], leaf
    while True:
        sums = [k[i : i + size].mean(0) for i in range(0, len(k), size)]
        levels.append(torch.stack(sums).to(dtype).double())
        if len(sums) == 1:
            return [level.numpy() for level in levels]
        size *= children


def log_sum(x):
    top = x.max()
    return top + numpy.log(numpy.exp(x - top).sum())


class Walk:
    """The lists of one key head; rules in the words of a manifest."""

    def __init__(self, k, leaf, children, keep, route, always, flat, dtype):
        self.levels = means_of(k, leaf, children, dtype)
        self.leaf, self.children, self.keep, self.flat = leaf, children, keep, flat
        self.route, self.always = route, always

    def size(self, level):
        return self.leaf * self.children ** (level - 1) if level else 1

    def forced(self, level, node, t):
        """Of the ranges only the first tokens are known: enough for the packs that are timed."""
        below, own = self.size(level) // self.leaf, t // self.leaf
        leaves = [own] if "current" in self.always else []
        leaves += [own - 1] if "previous" in self.always and own else []
        for word in self.always:
            if word.startswith("first="):
                leaves += range(min(own, (int(word[6:]) - 1) // self.leaf) + 1)
        return any(leaf // below == node for leaf in leaves)

    def score(self, level, node, q, t, forced):
        """[G]; a node that is ranked is full and in the past."""
        mass, kind = self.route["reduce"].endswith("mass"), self.route["score"]
        if forced and not mass:
            return numpy.zeros(len(q))
        own = t // self.leaf
        if forced and level == 1:
            kind = "lse" if node in (own, own - 1) else "mean"
        per, size = self.leaf if level == 1 else self.children, self.size(level)
        end = min((node + 1) * per, (t + 1) // self.size(level - 1))
        x = q @ self.levels[level - 1][node * per : end].T
        if x.shape[1] == 0:
            return numpy.full(len(q), -numpy.inf)
        count = numpy.log(x.shape[1]) if mass else 0
        if kind == "lse":
            return numpy.array([log_sum(row) for row in x])
        if kind == "mean" and (node + 1) * size <= t + 1:
            return q @ self.levels[level][node] + count
        return x.mean(1) + (x.var(1) / 2 if kind == "half_variance" else 0) + count

    def worth(self, scores):
        """[G, n] -> [n]"""
        reduce = self.route["reduce"]
        if reduce.endswith("mass"):
            scores = numpy.exp(scores - numpy.array([[log_sum(row)] for row in scores]))
        if reduce == "lse":
            return numpy.array([log_sum(column) for column in scores.T])
        return scores.max(0) if reduce in ("max", "max_mass") else scores.sum(0)

    def list_of(self, q, t):
        """Ascending leaves for q [G, D], scaled, at token t; and how near the choice was."""
        start, gap = max(1, int(self.route.get("start", "0"))), numpy.inf
        level = 1
        while not self.flat and t // self.size(level) + 1 > start:
            level += 1
        nodes = list(range(t // self.size(level) + 1))
        while True:
            if len(nodes) > self.keep:
                forced = numpy.array([self.forced(level, node, t) for node in nodes])
                scores = [self.score(level, n, q, t, f) for n, f in zip(nodes, forced)]
                worth = numpy.where(forced, numpy.inf, self.worth(numpy.array(scores).T))
                order = numpy.lexsort((nodes, -worth))
                last, next_one = worth[order[self.keep - 1]], worth[order[self.keep]]
                gap = min(gap, (last - next_one) / (1 if numpy.isinf(last) else abs(last) + SMALL))
                nodes = sorted(nodes[i] for i in order[: self.keep])
            if level == 1:
                return nodes, gap
            level -= 1
            seen = t // self.size(level) + 1
            nodes = [c for n in nodes for c in range(n * self.children, (n + 1) * self.children)]
            nodes = [c for c in nodes if c < seen]


def attention(q, k, v, leaves, leaf, t):
    """o [G, D] and lse [G] of q [G, D], scaled, over the tokens up to t of |leaves|."""
    tokens = [j for b in leaves for j in range(b * leaf, min((b + 1) * leaf, t + 1))]
    x = q @ k[tokens].T
    lse = numpy.array([log_sum(row) for row in x])
    return numpy.exp(x - lse[:, None]) @ v[tokens], lse
