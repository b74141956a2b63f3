"""The kernels of a backward pass on bf16 and f16: compiled for the processor, bit for bit the
reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver.compilation import Options, start
from core_compiler.ir import Block, Function, Module, Value, WeightStore, dtype, tensor
from core_compiler.ops import Builder
from core_compiler.training.graph.autodiff import pullback
from tests.slow import slow_but


@dataclass(frozen=True)
class Case:
    """``build(b, *values)`` on narrow values of these shapes (``wide``: the last ones, f32)."""

    build: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    wide: int = 0


_POOL = {"window": (3, 3), "strides": (2, 2), "low": (1, 1), "high": (1, 1)}

#: Sizes that leave ragged tiles, and more than one chunk of K.
CASES = {
    "linear": Case(lambda b, x, w, c: b.linear(x, w, c), ((300, 35), (35, 19), (19,))),
    "matmul": Case(lambda b, x, y: b.matmul(x, y), ((2, 21, 40), (2, 40, 9))),
    "conv": Case(
        lambda b, x, w: b.conv(
            x, w, strides=(2, 1), low=(1, 1), high=(1, 0), dilations=(1, 1), groups=1
        ),
        ((3, 5, 13, 11), (7, 5, 3, 3)),
    ),
    "grouped conv": Case(
        lambda b, x, w: b.conv(
            x, w, strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=2
        ),
        ((2, 6, 9, 9), (8, 3, 3, 3)),
    ),
    "attention": Case(
        lambda b, q, k, v: b.attention(q, k, v, causal=True),
        ((2, 3, 21, 8), (2, 3, 21, 8), (2, 3, 21, 5)),
    ),
    "layer norm": Case(
        lambda b, x, s, c: b.layer_norm(x, s, c, axis=2), ((3, 21, 50), (50,), (50,)), 2
    ),
    "rms norm": Case(lambda b, x, s: b.rms_norm(x, s, axis=1), ((37, 50), (50,)), 1),
    "batch norm": Case(
        lambda b, x, *rest: b.batch_norm(x, *rest[:3], b.exp(rest[3])),
        ((3, 5, 9, 7), (5,), (5,), (5,), (5,)),
        4,
    ),
    "group norm": Case(
        lambda b, x, s, c: b.group_norm(x, s, c, groups=2), ((3, 6, 9, 7), (6,), (6,)), 2
    ),
    "max pool": Case(lambda b, x: b.max_pool(x, dilations=(1, 1), **_POOL), ((2, 5, 13, 11),)),
    "avg pool": Case(
        lambda b, x: b.avg_pool(x, dilations=(1, 1), count_padding=False, **_POOL),
        ((2, 5, 13, 11),),
    ),
    "gelu": Case(lambda b, x: b.gelu(x), ((33, 47),)),
    "table": Case(
        lambda b, x: b.take(x, b.constant(np.arange(60, dtype=np.int64) % 7), axis=0), ((9, 12),)
    ),
}


def _module(case: Case, kind: str) -> Module:
    kinds = [kind] * (len(case.shapes) - case.wide) + ["f32"] * case.wide
    values = tuple(
        Value(tensor(s, dtype(k)), f"x{i}")
        for i, (s, k) in enumerate(zip(case.shapes, kinds, strict=True))
    )
    b = Builder(WeightStore())
    made = case.build(b, *values)
    return pullback(
        Module({"main": Function("main", Block(values, tuple(b.ops), (made,)))}, b.weights)
    )


def _same(name: str, kind: str, threads: int, tiles: str) -> None:
    module = _module(CASES[name], kind)
    random = np.random.default_rng(len(name))
    arrays = [
        random.standard_normal(v.type.shape).astype(v.type.dtype.numpy)
        for v in module.main.arguments
    ]
    wanted = Evaluator(module.weights).block(module.main.body, arrays)
    made = start(module, "cpu", Options(threads=threads, target={"tiles": tiles})).finish()
    found = made.executable(*arrays)
    for ours, reference, value in zip(found, wanted, module.main.outputs, strict=True):
        assert ours.dtype == value.type.dtype.numpy
        assert np.isfinite(ours.astype(np.float32)).all() and ours.astype(np.float32).any()
        assert ours.tobytes() == np.ascontiguousarray(reference).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "threads", "tiles"),
    slow_but((("bf16", 1, "default"),), [("bf16", 1, "default"), ("f16", 2, "small")]),
)
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_gradient_is_the_references(name, kind, threads, tiles):
    _same(name, kind, threads, tiles)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "threads", "tiles"), [("bf16", 2, "small"), ("f16", 1, "default")]
)
@pytest.mark.parametrize("name", CASES)
def test_so_it_is_the_other_way_round(name, kind, threads, tiles):
    _same(name, kind, threads, tiles)
