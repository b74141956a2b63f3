"""Canonicalise, rule by rule: a program that fires it, the program it becomes, one that refuses."""
# ruff: noqa: E501  (tables of programs)

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from core_compiler.ir import Block, dense
from core_compiler.ops import Builder
from core_compiler.passes.canonicalise import RULES, Canonicalise
from core_compiler.passes.rules import explain
from tests.passes import specs
from tests.passes.programs import program

F, INT, P = "3x5xf32", "3x5xi32", "3x5xi1"


def like(number):
    """``number`` as a constant, broadcast to the operand's shape."""
    return lambda b, x: b.scalar_like(number, x)


def plus_zero(b, x):
    return b.add(x, b.scalar_like(0.0, x))


def vector(*numbers):
    return lambda b, x: b.expand(b.constant(np.array(numbers, np.float32)), x.type.shape)


def binary(kind: str, other, swap: bool = False):
    """``kind(x, constant)``."""

    def build(b, x, *_):
        operands = (x, other(b, x))
        return getattr(b, kind)(*(operands[::-1] if swap else operands))

    return build


def same(b, x, *_):
    return x


@dataclass(frozen=True)
class Case:
    """A rule, a program it fires at, what that becomes; one it refuses, and the reason it gives."""

    rule: str
    before: object
    after: object
    refused: object
    reason: str
    types: tuple[str, ...] = (F,)
    refused_types: tuple[str, ...] = ()


CASES = (
    Case("x * 1 => x", binary("mul", like(1)), same, binary("mul", like(2)), "not all ones"),
    Case("x * 1 => x", binary("mul", like(1), swap=True), same,
         lambda b, x: b.mul(x, x), "operand c is not a constant"),
    Case("x * 1 => x", binary("mul", like(1)), same, binary("mul", like(-1)), "not all ones", (INT,)),
    Case("x / 1 => x", binary("div", like(1)), same,
         binary("div", like(1), swap=True), "operand c is not a constant"),
    Case("x - (+0) => x", binary("sub", like(0.0)), same, binary("sub", like(-0.0)), "not all +0"),
    Case("x - (+0) => x", binary("sub", like(0)), same, binary("sub", like(3)), "not all +0", (INT,)),
    Case("x + (-0) => x", binary("add", like(-0.0)), same, binary("add", like(0.0)), "not all -0"),
    Case("x + (-0) => x", binary("add", like(-0.0)), same,
         binary("add", like(0)), "not all -0", (F,), (INT,)),
    Case("x + (+0) => x", binary("add", like(0)), same,
         binary("add", like(0.0)), "-0 + (+0) is +0", (INT,), (F,)),
    Case("x + (+0) => x", lambda b, x: plus_zero(b, b.abs(x)), lambda b, x: b.abs(x),
         lambda b, x: plus_zero(b, b.neg(x)), "-0 + (+0) is +0"),
    Case("x + (+0) => x", lambda b, x: plus_zero(b, b.reduce_sum(x, axes=(0,))),
         lambda b, x: b.reduce_sum(x, axes=(0,)),
         lambda b, x: plus_zero(b, b.reduce_sum(x, axes=())), "-0 + (+0) is +0"),
    Case("x ** 1 => x", binary("pow", like(1)), same, binary("pow", like(2)), "not all ones"),
    Case("x ** 2 => x * x", binary("pow", like(2)), lambda b, x: b.mul(x, x),
         binary("pow", like(2.5)), "not all twos"),
    Case("x / 2**k => x * 2**-k", binary("div", like(8)), binary("mul", like(0.125)),
         binary("div", like(3)), "not powers of two"),
    Case("x / 2**k => x * 2**-k", binary("div", like(-0.25)), binary("mul", like(-4)),
         binary("div", vector(1, 2, 4, 8, 16)), "the divisor is not a single number"),
    Case("x / 2**k => x * 2**-k", binary("div", like(2)), binary("mul", like(0.5)),
         binary("div", like(2)), "not powers of two", (F,), (INT,)),
    Case("-(-x) => x", lambda b, x: b.neg(b.neg(x)), same,
         lambda b, x: b.neg(b.abs(x)), "found core.abs where the rule expects core.neg"),
    Case("a + (-b) => a - b", lambda b, x, y: b.add(b.neg(y), x), lambda b, x, y: b.sub(x, y),
         lambda b, x, y: b.add(x, y), "an operand is an input of the block", (F, F)),
    Case("a - (-b) => a + b", lambda b, x, y: b.sub(x, b.neg(y)), lambda b, x, y: b.add(x, y),
         lambda b, x, y: b.sub(b.neg(x), y), "an operand is an input of the block", (F, F)),
    Case("abs(abs(x)) => abs(x)", lambda b, x: b.abs(b.abs(x)), lambda b, x: b.abs(x),
         lambda b, x: b.abs(b.exp(x)), "found core.exp"),
    Case("abs(-x) => abs(x)", lambda b, x: b.abs(b.neg(x)), lambda b, x: b.abs(x),
         lambda b, x: b.abs(b.exp(x)), "found core.exp"),
    Case("not(not(x)) => x", lambda b, x: b.not_(b.not_(x)), same,
         lambda b, x: b.not_(b.and_(x, x)), "found core.and", (P,)),
    Case("relu(relu(x)) => relu(x)", lambda b, x: b.relu(b.relu(x)), lambda b, x: b.relu(x),
         lambda b, x: b.relu(b.neg(x)), "found core.neg"),
    Case("max(x, x) => x", lambda b, x: b.max(x, x), same,
         lambda b, x: b.max(x, b.neg(x)), "x would have to be two different values", (INT,)),
    Case("max(x, lowest) => x", binary("max", like(-(2**31))), same, binary("max", like(-1)),
         "the constant c is not the lowest number", (INT,)),
    Case("max(x, lowest) => x", lambda b, x: b.max(r := b.reduce_max(x, axes=(0,)), like(-np.inf)(b, r)),
         lambda b, x: b.reduce_max(x, axes=(0,)), binary("max", like(-np.inf)),
         "a NaN would lose its canonical form"),
    Case("min(x, highest) => x", binary("min", like(2**31 - 1)), same, binary("min", like(1)),
         "the constant c is not the highest number", (INT,)),
    Case("min(x, highest) => x", lambda b, x: b.min(r := b.min(x, b.neg(x)), like(np.inf)(b, r)),
         lambda b, x: b.min(x, b.neg(x)), binary("min", like(np.inf)),
         "a NaN would lose its canonical form"),
    Case("distribute(x) => x", lambda b, x: b.distribute(x, shards=4), same,
         lambda b, x: b.all_reduce(x, shards=4), "core.all_reduce is not core.distribute"),
    Case("select(p, x, x) => x", lambda b, x, p: b.select(p, x, x), same,
         lambda b, x, p: b.select(p, x, b.neg(x)), "two different values", (F, P)),
    Case("select(true, x, y) => x",
         lambda b, x, y, p: b.select(b.scalar_like(True, p), x, y), same,
         lambda b, x, y, p: b.select(b.scalar_like(False, p), x, y), "not all true", (F, F, P)),
    Case("select(false, y, x) => x",
         lambda b, x, y, p: b.select(b.scalar_like(False, p), y, x), same,
         lambda b, x, y, p: b.select(p, y, x), "operand c is not a constant", (F, F, P)),
    Case("select(not p, x, y) => select(p, y, x)",
         lambda b, x, y, p: b.select(b.not_(p), x, y), lambda b, x, y, p: b.select(p, y, x),
         lambda b, x, y, p: b.select(b.and_(p, p), x, y), "found core.and", (F, F, P)),
    Case("cast to the same dtype => x", lambda b, x: b.cast(x, dtype="f32"), same,
         lambda b, x: b.cast(x, dtype="f16"), "the attributes or types of this core.cast"),
    Case("bitcast to the same dtype => x", lambda b, x: b.bitcast(x, dtype="f32"), same,
         lambda b, x: b.bitcast(x, dtype="i32"), "the attributes or types of this core.bitcast"),
    Case("x and true => x", binary("and_", like(True)), same,
         binary("and_", like(1)), "the operands are not booleans", (P,), (INT,)),
    Case("x or false => x", binary("or_", like(False)), same,
         binary("or_", like(0)), "the operands are not booleans", (P,), (INT,)),
    Case("concat(x) => x", lambda b, x: b.concat(x, axis=0), same,
         lambda b, x: b.concat(x, x, axis=0), "core.concat has 2 operands, not 1"),
)  # fmt: skip


def cases(argument):
    return pytest.mark.parametrize(argument, CASES, ids=lambda c: c.rule)


def test_every_rule_is_stated_here():
    assert {c.rule for c in CASES} == {rule.name for rule in RULES}


@cases("case")
def test_the_rule_fires_and_gives_the_program(case):
    before = program(case.before, *case.types)
    answers = {rule: answer for rule, answer, _ in explain(RULES, before, specs.root_of(before))}
    assert answers[case.rule] == "fires here"
    after, rewrites = specs.apply(Canonicalise(), before)
    assert specs.rules_fired(rewrites) == [case.rule]
    specs.assert_same_program(after, program(case.after, *case.types))


@pytest.mark.sampled(3)
@cases("case")
def test_what_the_rule_says_of_bits_holds_for_zeros_infinities_nan_and_subnormals(case):
    before = program(case.before, *case.types)
    after, rewrites = specs.apply(Canonicalise(), before)
    (rewrite,) = rewrites
    (record,) = specs.check(before, after, rewrites, exact=False, special=True)
    if rewrite.tolerance is None:
        assert record.verdict == "bitwise"


@cases("case")
def test_the_rule_refuses_with_its_reason(case):
    before = program(case.refused, *(case.refused_types or case.types))
    answers = [
        a for rule, a, _ in explain(RULES, before, specs.root_of(before)) if rule == case.rule
    ]
    assert any(case.reason in answer for answer in answers), answers
    assert "fires here" not in answers


def test_a_refusal_names_the_op_it_speaks_of():
    before = program(lambda b, x: b.neg(b.abs(x)), F)
    (found,) = [a for a in explain(RULES, before, specs.root_of(before)) if a[0] == "-(-x) => x"]
    assert found[2] is before.main.body.ops[0]


def test_a_maximum_of_floats_with_itself_stays():
    before = program(lambda b, x: b.max(x, x), F)
    after, rewrites = specs.apply(Canonicalise(), before)
    assert after is before and not rewrites


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("op", "number", "fires"),
    [
        ("sub", -0.0, False),
        ("add", 0.0, False),
        ("sub", 0.0, True),
        ("add", -0.0, True),
    ],
)
def test_signs_of_zero_matter_in_every_float_dtype(kind, op, number, fires):
    before = program(lambda b, x: getattr(b, op)(x, b.scalar_like(number, x)), f"12x{kind}")
    after, rewrites = specs.apply(Canonicalise(), before)
    assert bool(rewrites) == fires
    if fires:
        (record,) = specs.check(before, after, rewrites, exact=True, special=True)
        assert record.verdict == "bitwise"


#: dtype -> exponents, and the least whose power of two has a finite reciprocal.
_EXPONENTS = {
    "f16": (range(-24, 16), -15),
    "f32": ((-149, -128, -127, 0, 126, 127), -127),
    "f64": ((-1074, -1024, -1023, 0, 1023), -1023),
}


@pytest.mark.parametrize(
    ("kind", "exponent"), [(k, e) for k, (held, _) in _EXPONENTS.items() for e in held]
)
def test_reciprocals_that_a_dtype_cannot_hold_are_refused(kind, exponent):
    before = program(lambda b, x: b.div(x, b.scalar_like(2.0**exponent, x)), f"12x{kind}")
    after, rewrites = specs.apply(Canonicalise(), before)
    specs.check(before, after, rewrites, exact=True, special=True)
    assert bool(rewrites) == (exponent >= _EXPONENTS[kind][1])


def test_chains_end_at_the_fixed_point():
    before = program(lambda b, x: b.neg(b.neg(b.neg(b.neg(b.mul(x, b.scalar_like(1, x)))))), F)
    after, rewrites = specs.apply(Canonicalise(), before)
    assert specs.rules_fired(rewrites) == ["x * 1 => x", "-(-x) => x", "-(-x) => x"]
    specs.assert_same_program(after, program(same, F))


def test_constants_with_a_layout_in_weights_are_seen_through_reshapes():
    def build(b, x):
        ones = b.reshape(b.constant(np.ones((5, 3), np.float32)), shape=(3, 5))
        return b.mul(x, ones)

    after, rewrites = specs.apply(Canonicalise(), program(build, F))
    assert specs.rules_fired(rewrites) == ["x * 1 => x"]
    assert after.main.outputs == after.main.arguments


def test_an_op_that_the_replacement_reads_stays():
    """Both operands of the sum are the negation: ``a`` is bound to what the pattern has matched."""

    def build(b, x):
        negated = b.neg(x)
        return b.add(negated, negated)

    before = program(build, F)
    after, rewrites = specs.apply(Canonicalise(), before)
    assert specs.rules_fired(rewrites) == ["a + (-b) => a - b"]
    assert [op.kind for op in after.main.body.ops] == ["core.neg", "core.sub"]
    specs.assert_same_results(before, after)


def test_signed_zero_constants_of_bfloat16_differ():
    """The numbers behind the rule: ml_dtypes' dtypes are not of NumPy's float kind."""
    assert np.dtype(ml_dtypes.bfloat16).kind != "f"
    assert dense(np.array(-0.0, ml_dtypes.bfloat16)) != dense(np.array(0.0, ml_dtypes.bfloat16))


def test_passes_go_into_branches():
    def build(b, p, x):
        inner = Builder()
        then = inner.neg(inner.neg(x))
        branches = (Block((), tuple(inner.ops), (then,)), Block((), (), (x,)))
        return b.op("core.if", (p,), regions=branches)

    before = program(build, "i1", "3xf32")
    after, rewrites = specs.apply(Canonicalise(), before)
    assert specs.rules_fired(rewrites) == ["-(-x) => x"]
    assert rewrites[0].function == "main/core.if"
    assert not list(after.main.body.ops[0].regions[0].ops)
    specs.check(before, after, rewrites, exact=True)
    specs.assert_same_results(before, after)
