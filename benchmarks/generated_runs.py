"""Recordings of generated models with any number of ops, for what is measured of large graphs.

A model is a chain of equal transformer blocks, each in its own module scope; with ``long`` edges a
mask and a table of rotations are read by every block, and every block's output by the last op.
Recorded are the passes that all targets share: no kernels, which would take longer than the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from core_compiler.driver import compilation
from core_compiler.ir import Block, Function, Module, Value, WeightStore, tensor
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.ops.builder import Builder
from core_compiler.record import Recorder

TOKENS, WIDTH = 8, 16
FILE = "generated/transformer.py"
#: Blocks whose outputs one op adds up, where edges are long.
GATHERED = 64


class _Walk:
    """Ops of one module scope after another; ``lines`` are of an imagined source file."""

    def __init__(self, weights: WeightStore) -> None:
        self.b = Builder(weights)
        self.count = 0

    def at(self, scope: str, line: int) -> Builder:
        self.count += 1
        stack = ((FILE, line, "forward", ""),)
        node = FrontendNode(f"node_{self.count}", "call", FILE, line, scope, stack)
        self.b.origin = Origin.root(node)
        return self.b


def module(ops: int, long: bool) -> Module:
    """A module of about ``ops`` ops (at least one block's)."""
    weights = WeightStore()
    x, mask, table = (
        Value(tensor(shape, "f32"), name)
        for name, shape in (
            ("x", (TOKENS, WIDTH)),
            ("mask", (TOKENS, TOKENS)),
            ("table", (TOKENS, WIDTH)),
        )
    )
    walk = _Walk(weights)
    made, number, h, begun = [], 0, x, False
    while not begun or len(walk.b.ops) < ops:
        near = () if long else _own(walk, number)
        h = _block(walk, f"layers.{number}", h, near or (mask, table))
        made.append(h)
        number, begun = number + 1, True
    outputs = [h]
    if long:
        total = h
        for value in made[-GATHERED:-1]:
            total = walk.at("head", 90).add(total, value)
        outputs.append(total)
    else:
        outputs.append(walk.at("head", 90).add(mask, mask))
        outputs.append(walk.at("head", 91).add(table, table))
    block = Block((x, mask, table), tuple(walk.b.ops), tuple(outputs))
    return Module({"main": Function("main", block)}, weights)


def _own(walk: _Walk, number: int) -> tuple[Value, Value]:
    """A mask and a table of a block's own."""
    b = walk.at(f"layers.{number}", 10)
    made = [
        b.constant(np.full(s, 1 + number, np.float32)) for s in ((TOKENS, TOKENS), (TOKENS, WIDTH))
    ]
    return made[0], made[1]


def _block(walk: _Walk, scope: str, h: Value, near: tuple[Value, Value]) -> Value:
    mask, table = near
    x = _norm(walk, f"{scope}/norm_1", h)
    attention = f"{scope}/attention"
    q, k, v = (_linear(walk, f"{attention}/{name}", x, WIDTH) for name in ("query", "key", "value"))
    q, k = (walk.at(attention, 31 + i).mul(y, table) for i, y in enumerate((q, k)))
    b = walk.at(attention, 34)
    scores = b.matmul(q, b.transpose(k, permutation=(1, 0)))
    b = walk.at(attention, 35)
    scores = b.add(scores, mask)
    b = walk.at(attention, 36)
    raised = b.exp(b.sub(scores, _spread(b, b.reduce_max(scores, axes=(1,)), TOKENS)))
    weights = b.div(raised, _spread(b, b.reduce_sum(raised, axes=(1,)), TOKENS))
    b = walk.at(attention, 37)
    h = b.add(h, _linear(walk, f"{attention}/out", b.matmul(weights, v), WIDTH))
    x = _norm(walk, f"{scope}/norm_2", h)
    feed = f"{scope}/feed_forward"
    up, gate = (_linear(walk, f"{feed}/{name}", x, 4 * WIDTH) for name in ("up", "gate"))
    b = walk.at(feed, 52)
    x = b.mul(up, b.div(gate, b.add(b.exp(b.neg(gate)), b.scalar_like(1, gate))))
    x = _linear(walk, f"{feed}/down", x, WIDTH)
    return walk.at(scope, 60).add(h, x)


def _linear(walk: _Walk, scope: str, x: Value, columns: int) -> Value:
    """A product with a weight of its own (its number in every place)."""
    b = walk.at(scope, 21)
    shape = (x.type.shape[-1], columns)
    return b.matmul(x, b.constant(np.full(shape, walk.count, np.float32)))


def _norm(walk: _Walk, scope: str, x: Value) -> Value:
    b = walk.at(scope, 12)
    mean = b.div(total := b.reduce_sum(b.mul(x, x), axes=(1,)), b.scalar_like(WIDTH, total))
    b = walk.at(scope, 13)
    scale = b.rsqrt(b.add(mean, b.scalar_like(1e-5, mean)))
    return b.mul(x, _spread(b, scale, WIDTH))


def _spread(b: Builder, x: Value, columns: int) -> Value:
    """``x [rows]`` as ``[rows, columns]``."""
    return b.broadcast(x, shape=(*x.type.shape, columns), dims=(0,))


def record(path: Path, ops: int, long: bool = False) -> None:
    """Compile such a model as far as all targets share and record it at ``path``."""
    made = compilation.start(module(ops, long))
    with Recorder(path) as recorder:
        made.report(recorder, model=f"generated-{ops}{'-long' if long else ''}")
        made.observer = recorder
        while made.next is not None and made.next.half == "meaning":
            made.step()


if __name__ == "__main__":  # FILE OPS sizes|long
    record(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "long")
