"""The order probe: which tree of additions makes a floating-point sum, seen from outside.

Xie, Gao and Wang, "FPRev: Revealing the Order of Floating-Point Summation in Numerical Software"
(USENIX ATC 2025, arXiv 2411.00442).  Of n summands one is M, another -M, the others are 1, and M
swallows what ones are added to it.  What is added before the two cancel is lost, so the result
counts the ones that are added after that, and n minus the result is the size of the smallest
subtree that holds both: their *meeting*.  All meetings give the tree; starting from one summand and
going on in what joins it (FPRev's refinement) takes n - 1 of them for a chain, n log n for a
balanced tree.  M and -M are one factor of a product, the other is 1, so chains of fma are sums.

What it cannot see: which side of an addition is which (it commutes), +0 that is added, and whether
the sum depends on values.

A tree is the set of its subtrees' leaves, a subtree an integer with a bit for each leaf; leaves
themselves are left out.  ``Expected`` and what follows it are the contract's orders, written from
the text of ``docs/numerics.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

#: It swallows ones of f32 and f64, and its square is no part of anything.
LARGE = 2.0**100
#: Probes of one call.
BLOCK = 256

#: ``(BLOCK, n)`` rows of summands -> their sums, one tree for all of them.
Sums = Callable[[np.ndarray], np.ndarray]
Tree = frozenset[int]


class NoTree(AssertionError):
    """The results are not those of one tree of additions of two."""


def meetings(
    sums: Sums, n: int, pairs: Sequence[tuple[int, int]], kind: str = "float32"
) -> list[int]:
    """For pairs of summands the size of the smallest subtree that holds both."""
    found: list[int] = []
    for first in range(0, len(pairs), BLOCK):
        part = pairs[first : first + BLOCK]
        rows = np.ones((BLOCK, n), kind)
        for row, (i, j) in zip(rows, part, strict=False):
            row[i], row[j] = LARGE, -LARGE
        results = np.asarray(sums(rows), np.float64)[: len(part)]
        after = np.rint(results)
        if np.any(np.abs(results - after) > 1e-3) or np.any((after < 0) | (after > n - 2)):
            raise NoTree(f"the sum of {n} with M and -M is {results}")
        found += [n - int(count) for count in after]
    return found


def reveal(sums: Sums, n: int, kind: str = "float32") -> Tree:
    """The tree by which ``sums`` adds ``n`` summands of a dtype; NoTree where it is none."""
    subtrees: set[int] = set()
    waiting = [list(range(n))]
    while waiting:
        pairs = [(leaves[0], other) for leaves in waiting for other in leaves[1:]]
        sizes = iter(meetings(sums, n, pairs, kind))
        joined: list[list[int]] = []
        for leaves in waiting:
            by_size: dict[int, list[int]] = {}
            for other in leaves[1:]:
                by_size.setdefault(next(sizes), []).append(other)
            made = 1 << leaves[0]
            for size, others in sorted(by_size.items()):
                made |= sum(1 << other for other in others)
                if made.bit_count() != size:
                    raise NoTree(f"{made.bit_count()} summands meet in a sum of {size}")
                subtrees.add(made)
                if len(others) > 1:
                    joined.append(others)
        waiting = joined
    return frozenset(subtrees)


def meeting_in(tree: Tree, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """What ``meetings`` would find of a tree."""
    ascending = sorted(tree, key=int.bit_count)
    both = [(1 << i) | (1 << j) for i, j in pairs]
    return [next(s for s in ascending if s & b == b).bit_count() for b in both]


def told(revealed: Tree, wanted: Tree) -> str:
    """The smallest subtree that one has and the other has not, for a person."""
    if revealed == wanted:
        return ""
    small = min(revealed ^ wanted, key=lambda subtree: (subtree.bit_count(), subtree))
    leaves = [i for i in range(small.bit_length()) if small >> i & 1]
    whose = "only the kernel" if small in revealed else "only the contract"
    return f"{whose} adds up {leaves[:12]}{' ...' if len(leaves) > 12 else ''} by themselves"


# -- the contract's orders -------------------------------------------------------------------------


class Expected:
    """A tree as it is written down: parts are subtrees (0: nothing, +0), the answers too."""

    def __init__(self):
        self.subtrees: set[int] = set()

    def plus(self, a: int, b: int) -> int:
        """One addition; +0 makes no node."""
        if a and b:
            self.subtrees.add(a | b)
        return a | b

    def chain(self, parts: Sequence[int]) -> int:
        """One after another."""
        total = 0
        for part in parts:
            total = self.plus(total, part)
        return total

    def chunks(self, parts: Sequence[int], size: int = 256) -> int:
        """``sequence``, and K of a product: "chunks of 256, each ascending from +0; then the
        chunks' sums in order"."""
        cut = [parts[i : i + size] for i in range(0, len(parts), size)]
        return self.chain([self.chain(chunk) for chunk in cut])

    def lanes(self, parts: Sequence[int]) -> int:
        """``lanes``: "32 lanes; lane l adds x[l], x[l+32], ... ascending from +0; then for w in 16,
        8, 4, 2, 1: lane[l] += lane[l+w] for l < w.  R > 4096: chunks of 4096, then the same rule
        over the chunks' sums, recursively"."""
        if len(parts) > 4096:
            cut = [parts[i : i + 4096] for i in range(0, len(parts), 4096)]
            return self.lanes([self.lanes(chunk) for chunk in cut])
        lane = [self.chain(parts[first::32]) for first in range(32)]
        for w in (16, 8, 4, 2, 1):
            for one in range(w):
                lane[one] = self.plus(lane[one], lane[one + w])
        return lane[0]

    @property
    def tree(self) -> Tree:
        return frozenset(self.subtrees)


def leaves(count: int, first: int = 0) -> list[int]:
    return [1 << i for i in range(first, first + count)]


def lanes(n: int) -> Tree:
    made = Expected()
    made.lanes(leaves(n))
    return made.tree


def sequence(n: int, chunk: int = 256) -> Tree:
    made = Expected()
    made.chunks(leaves(n), chunk)
    return made.tree


def scan(n: int) -> Tree:
    """The last of a running sum: "chunks of 256 along the axis, sequential inside from the first
    element; offsets by a sequential scan of the chunks' totals; y = offset + local"."""
    made = Expected()
    cut = [made.chain(leaves(min(256, n - i), i)) for i in range(0, n, 256)]
    made.plus(made.chain(cut[:-1]), cut[-1])
    return made.tree


def scattered(n: int) -> Tree:
    """Leaf 0 the destination's old value, then its hits: "a destination's old value, then + the
    total of its hits in that order" (ascending, from +0, chunks of 256)."""
    made = Expected()
    made.plus(1, made.chunks(leaves(n - 1, 1)))
    return made.tree


def two_groups(outer: int, inner: int) -> Tree:
    """A sum over the first and the last of three axes, leaf = first * inner + last: "groups are
    reduced one after another, the last group first", in lanes, the other in sequence."""
    made = Expected()
    made.chunks([made.lanes(leaves(inner, first * inner)) for first in range(outer)])
    return made.tree


def convolution(channels: int, height: int, width: int, taps: int | None = None) -> Tree:
    """Leaf = (c, tap) row-major: "order (cb, kh, kw, ci) with c = 32 cb + ci inside the group; a
    chunk is max(1, 8 // (kh kw)) channel blocks".  ``taps`` are as many of the kh kw as hit an
    output position (all: None), in their order: the others "count for chunk borders and do
    nothing"."""
    made, area = Expected(), height * width
    taps = area if taps is None else taps
    blocks = [range(c, min(c + 32, channels)) for c in range(0, channels, 32)]
    many = max(1, 8 // area)
    sums = []
    for first in range(0, len(blocks), many):
        own = blocks[first : first + many]
        order = [c * taps + tap for block in own for tap in range(taps) for c in block]
        sums.append(made.chain([1 << leaf for leaf in order]))
    made.chain(sums)
    return made.tree


def shards(n: int) -> Tree:
    """ "Shard gradients combine by a fixed binary tree over shard ids": neighbours are added, then
    neighbours of those sums; one without a partner goes up as it is."""
    made, parts = Expected(), leaves(n)
    while len(parts) > 1:
        pairs = [made.plus(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[2 * len(pairs) :]
    return made.tree
