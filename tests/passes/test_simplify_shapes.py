"""Simplify shapes, rule by rule, and random chains of movements."""
# ruff: noqa: E501  (tables of programs)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from core_compiler.passes.rules import explain
from core_compiler.passes.simplify_shapes import RULES, SimplifyShapes
from tests.passes import specs
from tests.passes.programs import _Grower, program, programs

X = "2x3x4xf32"


def slices(x, starts, limits, strides=None):
    return {"starts": starts, "limits": limits, "strides": strides or (1,) * len(starts)}


def padding(low, high, interior=None):
    return {"low": low, "high": high, "interior": interior or (0,) * len(low)}


def places(b, numbers):
    return b.constant(np.array(numbers, np.int64))


#: rule, program, what it becomes, a program it refuses (at its last op), the reason, types.
CASES = (
    ("reshape to the same shape => x",
     lambda b, x: b.reshape(x, shape=(2, 3, 4)), lambda b, x: x,
     lambda b, x: b.reshape(x, shape=(6, 4)), "the attributes or types of this core.reshape", (X,)),
    ("broadcast to the same shape => x",
     lambda b, x: b.broadcast(x, shape=(2, 3, 4), dims=(0, 1, 2)), lambda b, x: x,
     lambda b, x: b.broadcast(x, shape=(5, 2, 3, 4), dims=(1, 2, 3)), "core.broadcast do not fit", (X,)),
    ("transpose by the identity => x",
     lambda b, x: b.transpose(x, permutation=(0, 1, 2)), lambda b, x: x,
     lambda b, x: b.transpose(x, permutation=(0, 2, 1)), "core.transpose do not fit", (X,)),
    ("slice of everything => x",
     lambda b, x: b.slice(x, **slices(x, (0, 0, 0), (2, 3, 4))), lambda b, x: x,
     lambda b, x: b.slice(x, **slices(x, (0, 1, 0), (2, 3, 4))), "core.slice do not fit", (X,)),
    ("slice of everything => x",
     lambda b, x: b.slice(x, **slices(x, (0, 0, 0), (2, 3, 4))), lambda b, x: x,
     lambda b, x: b.slice(x, **slices(x, (0, 0, 0), (2, 3, 4), (1, 1, 2))), "core.slice do not fit", (X,)),
    ("pad by nothing => x",
     lambda b, x, v: b.pad(x, v, low=(0, 0, 0), high=(0, 0, 0), interior=(0, 0, 0)), lambda b, x, v: x,
     lambda b, x, v: b.pad(x, v, low=(0, 1, 0), high=(0, -1, 0), interior=(0, 0, 0)),
     "core.pad do not fit", (X, "f32")),
    ("reshape(reshape(x)) => reshape(x)",
     lambda b, x: b.reshape(b.reshape(x, shape=(24,)), shape=(4, 6)), lambda b, x: b.reshape(x, shape=(4, 6)),
     lambda b, x: b.reshape(b.transpose(x, permutation=(2, 0, 1)), shape=(24,)), "found core.transpose", (X,)),
    ("transpose(transpose(x)) => transpose(x)",
     lambda b, x: b.transpose(b.transpose(x, permutation=(2, 0, 1)), permutation=(0, 2, 1)),
     lambda b, x: b.transpose(x, permutation=(2, 1, 0)),
     lambda b, x: b.transpose(b.reshape(x, shape=(4, 6)), permutation=(1, 0)), "found core.reshape", (X,)),
    ("transpose of axes of size 1 => reshape",
     lambda b, x: b.transpose(x, permutation=(1, 0, 3, 2)), lambda b, x: b.reshape(x, shape=(3, 1, 4, 1)),
     lambda b, x: b.transpose(x, permutation=(3, 1, 0, 2)), "core.transpose do not fit", ("1x3x1x4xf32",)),
    ("reshape(reshapes and transposes) => fewer of them",
     lambda b, x: b.reshape(b.transpose(b.reshape(x, shape=(6, 4)), permutation=(1, 0)), shape=(4, 2, 3)),
     lambda b, x: b.transpose(x, permutation=(2, 0, 1)),
     lambda b, x: b.reshape(b.transpose(x, permutation=(2, 0, 1)), shape=(8, 3)),
     "2 ops are already the minimum", (X,)),
    ("transpose(reshapes and transposes) => fewer of them",
     lambda b, x: b.transpose(b.reshape(b.transpose(x, permutation=(0, 2, 1)), shape=(2, 4, 1, 3)),
                              permutation=(0, 3, 2, 1)),
     lambda b, x: b.reshape(x, shape=(2, 3, 1, 4)),
     lambda b, x: b.transpose(b.reshape(x, shape=(3, 8)), permutation=(1, 0)),
     "a reshape splits axes in a way that no transpose expresses", (X,)),
    ("broadcast(broadcast(x)) => broadcast(x)",
     lambda b, x: b.broadcast(b.broadcast(x, shape=(2, 3, 4, 1), dims=(0, 1, 2)), shape=(2, 5, 3, 4, 6),
                              dims=(0, 2, 3, 4)),
     lambda b, x: b.broadcast(x, shape=(2, 5, 3, 4, 6), dims=(0, 2, 3)),
     lambda b, x: b.broadcast(b.neg(x), shape=(5, 2, 3, 4), dims=(1, 2, 3)), "found core.neg", (X,)),
    ("broadcast(reshape(x)) => broadcast(x)",
     lambda b, x: b.broadcast(b.reshape(x, shape=(2, 1, 3, 4)), shape=(2, 5, 3, 4), dims=(0, 1, 2, 3)),
     lambda b, x: b.broadcast(x, shape=(2, 5, 3, 4), dims=(0, 2, 3)),
     lambda b, x: b.broadcast(b.reshape(x, shape=(6, 1, 4)), shape=(6, 5, 4), dims=(0, 1, 2)),
     "the reshape does more than insert or drop axes of size 1", (X,)),
    ("broadcast(reshape(x)) => broadcast(x)",
     lambda b, x: b.broadcast(b.reshape(x, shape=(3, 1, 4)), shape=(3, 5, 4), dims=(0, 1, 2)),
     lambda b, x: b.broadcast(b.reshape(x, shape=(3, 4)), shape=(3, 5, 4), dims=(0, 2)),
     lambda b, x: b.broadcast(b.reshape(x, shape=(3, 4)), shape=(3, 5, 4), dims=(0, 2)),
     "the reshape already drops only the axes of size 1", ("3x4x1xf32",)),
    ("transpose(cast(x)) of integers => cast(transpose(x))",
     lambda b, x: b.transpose(b.cast(x, dtype="f32"), permutation=(1, 0)),
     lambda b, x: b.cast(b.transpose(x, permutation=(1, 0)), dtype="f32"),
     lambda b, x: b.transpose(b.cast(x, dtype="f8E4M3FN"), permutation=(1, 0)), "core.cast do not fit", ("2x3xi8",)),
    ("reshape(cast(x)) of integers => cast(reshape(x))",
     lambda b, x: b.reshape(b.cast(x, dtype="i32"), shape=(6,)),
     lambda b, x: b.cast(b.reshape(x, shape=(6,)), dtype="i32"),
     lambda b, x: b.reshape(b.cast(x, dtype="ui8"), shape=(6,)), "core.cast do not fit", ("2x3xi8",)),
    ("pad(cast(x)) of integers => cast(pad(x))",
     lambda b, x: b.pad(b.cast(x, dtype="i32"), b.constant(-128, "i32"), **padding((0, 2), (1, 0))),
     lambda b, x: b.cast(b.pad(x, b.constant(-128, "i8"), **padding((0, 2), (1, 0))), dtype="i32"),
     lambda b, x: b.pad(b.cast(x, dtype="i32"), b.constant(128, "i32"), **padding((0, 2), (1, 0))),
     "128 is not a value of i8", ("2x3xi8",)),
    ("pad(cast(x)) of integers => cast(pad(x))",
     lambda b, x: b.pad(b.cast(x, dtype="f32"), b.constant(3.0, "f32"), **padding((0, 2), (1, 0))),
     lambda b, x: b.cast(b.pad(x, b.constant(3, "i8"), **padding((0, 2), (1, 0))), dtype="f32"),
     lambda b, x: b.pad(b.cast(x, dtype="f32"), b.constant(np.float32(-0.0)), **padding((0, 2), (1, 0))),
     "-0.0 is not a value of i8", ("2x3xi8",)),
    ("transpose(pad(x)) => pad(transpose(x))",
     lambda b, x, v: b.transpose(b.pad(x, v, **padding((0, 1, 2), (3, 0, -1), (0, 0, 1))), permutation=(2, 0, 1)),
     lambda b, x, v: b.pad(b.transpose(x, permutation=(2, 0, 1)), v, **padding((2, 0, 1), (-1, 3, 0), (1, 0, 0))),
     lambda b, x, v: b.transpose(b.neg(x), permutation=(2, 0, 1)), "found core.neg", (X, "f32")),
    ("reshape(pad(x)) => pad(reshape(x))",
     lambda b, x, v: b.reshape(b.pad(x, v, **padding((0, 1, 0), (2, 2, 0))), shape=(1, 4, 1, 24)),
     lambda b, x, v: b.pad(b.reshape(x, shape=(1, 2, 1, 12)), v, **padding((0, 0, 0, 4), (0, 2, 0, 8))),
     lambda b, x, v: b.reshape(b.pad(x, v, **padding((0, 0, 1), (0, 0, 0))), shape=(2, 15)),
     "an axis that becomes part of another is padded", (X, "f32")),
    ("reshape(pad(x)) => pad(reshape(x))",
     lambda b, x, v: b.reshape(b.pad(x, v, **padding((0, 1, 0), (2, 2, 0))), shape=(4, 6, 4, 1)),
     lambda b, x, v: b.pad(b.reshape(x, shape=(2, 3, 4, 1)), v, **padding((0, 1, 0, 0), (2, 2, 0, 0))),
     lambda b, x, v: b.reshape(b.pad(x, v, **padding((0, 1, 0), (0, 0, 0))), shape=(2, 2, 2, 4)),
     "an axis that becomes part of another is padded", (X, "f32")),
    ("slice(slice(x)) => slice(x)",
     lambda b, x: b.slice(b.slice(x, **slices(x, (1, 0, 0), (2, 3, 4), (1, 2, 1))),
                          **slices(x, (0, 1, 1), (1, 2, 4), (1, 1, 2))),
     lambda b, x: b.slice(x, **slices(x, (1, 2, 1), (2, 3, 4), (1, 2, 2))),
     lambda b, x: b.slice(b.neg(x), **slices(x, (1, 0, 0), (2, 3, 4))), "found core.neg", (X,)),
    ("take of places in a row => slice",
     lambda b, x: b.take(x, places(b, 1), axis=1),
     lambda b, x: b.reshape(b.slice(x, **slices(x, (0, 1, 0), (2, 2, 4))), shape=(2, 4)),
     lambda b, x: b.take(x, places(b, 3), axis=1), "some indices are out of range", (X,)),
    ("take of places in a row => slice",
     lambda b, x: b.take(x, places(b, [[0, 2], [4, 6]]), axis=0),
     lambda b, x: b.reshape(b.slice(x, **slices(x, (0, 0), (7, 2), (2, 1))), shape=(2, 2, 2)),
     lambda b, x: b.take(x, places(b, [0, 2, 3]), axis=0), "not ascending and evenly spaced", ("8x2xf32",)),
    ("take of places in a row => slice",
     lambda b, x: b.take(x, places(b, [1, 2]), axis=0),
     lambda b, x: b.slice(x, **slices(x, (1, 0), (3, 2))),
     lambda b, x: b.take(x, b.broadcast(places(b, 1), shape=(3,), dims=()), axis=0), "one repeated number", ("8x2xf32",)),
    ("take of places in a row => slice",
     lambda b, x: b.take(x, places(b, [1, 2]), axis=0),
     lambda b, x: b.slice(x, **slices(x, (1, 0), (3, 2))),
     lambda b, x: b.take(x, places(b, [2, 1]), axis=0), "not ascending and evenly spaced", ("8x2xf32",)),
)  # fmt: skip


def cases(function):
    return pytest.mark.parametrize(
        ("rule", "before", "after", "refused", "reason", "types"), CASES, ids=[c[0] for c in CASES]
    )(function)


def test_every_rule_is_stated_here():
    assert {c[0] for c in CASES} == {rule.name for rule in RULES}


@cases
def test_the_rule_fires_and_gives_the_program(rule, before, after, refused, reason, types):
    given_ = program(before, *types)
    made, rewrites = specs.apply(SimplifyShapes(), given_)
    assert rule in specs.rules_fired(rewrites)
    specs.assert_same_program(made, program(after, *types))
    records = specs.check(given_, made, rewrites, exact=True, special=True)
    assert {r.verdict for r in records} == {"bitwise"}


@cases
def test_the_rule_refuses_with_its_reason(rule, before, after, refused, reason, types):
    given_ = program(refused, *types)
    (answer,) = [a for r, a, _ in explain(RULES, given_, specs.root_of(given_)) if r == rule]
    assert reason in answer


MOVEMENTS = (_Grower.reshape, _Grower.transpose, _Grower.broadcast, _Grower.slice)


@given(programs(MOVEMENTS))
def test_chains_of_movements_keep_their_numbers(module):
    after, rewrites = specs.apply(SimplifyShapes(), module)
    specs.check(module, after, rewrites, exact=True)
    specs.assert_same_results(module, after)


@given(programs(MOVEMENTS))
def test_no_chain_is_left(module):
    after = specs.live(specs.apply(SimplifyShapes(), module)[0])
    makers = after.main.body.producers()
    for op in after.main.body.ops:
        feeder = makers.get(op.operands[0]) if op.operands else None
        assert feeder is None or feeder.kind != op.kind


def test_a_chain_without_elements_stays():
    """torch unfolds an empty batch: its elements lie nowhere."""

    def build(b, x):
        cut = b.reshape(b.transpose(x, permutation=(0, 2, 1, 3)), shape=(0, 8, 3))
        return b.transpose(cut, permutation=(0, 2, 1))

    made, _ = specs.apply(SimplifyShapes(), program(build, "0x2x4x3xf32"))
    assert made.main.outputs[0].type.shape == (0, 3, 8)
