"""Rules and passes on operands of any dtypes: each refuses, or what it makes is right.

The programs are those at which rules fire, written in other dtypes with the casts that the type
rules ask for (dtypes.py).  Every rewrite is evaluated before and after on the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import Checker
from core_compiler.ir import Module, dtype
from core_compiler.passes.base import Pass
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.fold_batch_norm import RULES as BATCH_NORM
from core_compiler.passes.fold_batch_norm import FoldBatchNorm
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.lower_composites import LowerComposites
from core_compiler.passes.recompose import RULES as RECOMPOSE
from core_compiler.passes.recompose import Recompose
from core_compiler.passes.round_correctly import RoundCorrectly
from core_compiler.passes.rules import explain
from core_compiler.passes.saturation import Saturate
from core_compiler.passes.share_repeated_operands import ShareRepeatedOperands
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.passes.simplify_shapes import SimplifyShapes
from core_compiler.passes.split_strided_convolutions import SplitStridedConvolutions
from core_compiler.passes.widen_sums import WidenSums
from core_compiler.training.graph.roles import Roles
from core_compiler.training.passes import MixedPrecision
from tests.examples import examples
from tests.passes import specs, test_canonicalise, test_recompose, test_simplify_shapes
from tests.passes import spellings as s
from tests.passes.dtypes import EVERY, FLOATS, INTEGERS, MEETINGS, DoesNotExist, retyped, roots_of
from tests.passes.loops import loop
from tests.passes.programs import STEPS, inputs, program, programs
from tests.passes.test_fold_batch_norm import IMAGE, normalised
from tests.passes.test_properties import stages

Program = tuple[Callable, Sequence[str]]
ALGEBRA: list[Program] = [(c.before, c.types) for c in test_canonicalise.CASES]
SHAPES: list[Program] = [(c[1], c[5]) for c in test_simplify_shapes.CASES]
COMPOSITES: list[Program] = [(before, types) for before, _, types in test_recompose.FIRES]
ATTENTION: list[Program] = [(before, types) for before, types, *_ in test_recompose.ATTENTION]
NORMALISED: list[Program] = [(normalised(shifted), (IMAGE,)) for shifted in (False, True)]


def transposed(b, x, w):
    return b.conv_transpose(
        x, w, strides=(2,), low=(1,), high=(0,), dilations=(1,), groups=1, output_padding=(1,)
    )


STRIDED: list[Program] = [(transposed, ("2x3x4xf32", "3x2x3xf32"))]


def grouped(b, x, keys):
    wide = b.broadcast(keys, shape=(2, 3, 4, 5), dims=(0, 2, 3))
    return b.matmul(x, b.reshape(wide, shape=(6, 4, 5)))


REPEATED: list[Program] = [(grouped, ("6x2x4xf32", "2x4x5xf32"))]
#: Every pass that rewrites tensor ops, and programs at which it does.
PASSES: list[tuple[Pass, list[Program]]] = [
    (Canonicalise(), ALGEBRA),
    (SimplifyShapes(), SHAPES),
    (Recompose(), COMPOSITES),
    (Recompose(), ATTENTION),
    (FoldBatchNorm(), NORMALISED),
    (FoldConstants(), [*ALGEBRA, *NORMALISED]),
    (EliminateCommonSubexpressions(), [*COMPOSITES, *ALGEBRA]),
    (Decompose(), COMPOSITES),
    (LowerComposites(), COMPOSITES + ATTENTION),
    (RoundCorrectly(), COMPOSITES),
    (WidenSums(), COMPOSITES),
    (SplitStridedConvolutions(), STRIDED),
    (ShareRepeatedOperands(), REPEATED),
]
SATURATED = [*ALGEBRA, *SHAPES, *COMPOSITES, *NORMALISED]


@cache
def written(program_: Callable, types: tuple[str, ...]) -> Module:
    return program(program_, *types)


@st.composite
def mixed(draw, choices: Sequence[Program]) -> Module:
    """One of these programs in dtypes drawn at random: one for all floats, or one for each root."""
    build, types = draw(st.sampled_from(choices))
    module = written(build, tuple(types))
    each = [draw(st.sampled_from(EVERY)) for _ in roots_of(module)]
    narrow, whole = draw(st.sampled_from(FLOATS)), draw(st.sampled_from(INTEGERS))
    # The likely mistakes are small: all in one dtype but for one operand, which may be anything.
    odd = draw(st.sampled_from(["none", "one", "floats", "all"]))
    place = draw(st.integers(0, max(len(each) - 1, 0)))

    def roots(i, old):
        if odd == "all" or (odd == "one" and i == place):
            return dtype(each[i])
        if old.is_float:
            return dtype(each[i] if odd == "floats" and each[i] in FLOATS else narrow)
        return dtype(whole) if old.is_integer else old

    meeting = draw(st.sampled_from(sorted(MEETINGS)))
    try:
        return retyped(module, roots, meeting, draw(st.booleans()))
    except DoesNotExist:
        assume(False)
        raise


def small(module: Module) -> list[np.ndarray]:
    """Inputs that every dtype holds: unsigned ones, too, are near 0."""
    return [
        a % 5 if dtype(a.dtype).kind == "uint" and a.dtype.itemsize > 1 else a
        for a in inputs(module)
    ]


def holds(pass_: Pass, module: Module) -> None:
    """``pass_`` gives a valid module with results of the same dtypes, each rewrite as it says."""
    after, rewrites = specs.apply(pass_, module)
    records = Checker(module, small(module)).stage(
        rewrites, pass_.exact, module, after, pass_.changes_semantics
    )
    for record in records:
        assert record.verdict in ("bitwise", "within"), f"{record.rewrite.rule}: {record.note}"
    for old, new in zip(module.main.outputs, after.main.outputs, strict=True):
        assert old.type.dtype is new.type.dtype and old.type.shape == new.type.shape


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("pass_", "choices"), PASSES, ids=lambda p: getattr(p, "name", lambda: "")()
)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_pass_is_right_whatever_the_dtypes(pass_, choices, data):
    holds(pass_, data.draw(mixed(choices)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rules", ["exact", "tolerant"])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_saturation_is_right_whatever_the_dtypes(rules, data):
    pytest.importorskip("egglog", reason="egglog is not installed (extra: egglog)")
    holds(Saturate(rules=rules), data.draw(mixed(SATURATED)))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "f16"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_mixed_precision_is_right_whatever_the_dtypes(precision, data):
    """Of a program whose last argument is a parameter."""
    module = data.draw(mixed([*NORMALISED, *ATTENTION, *COMPOSITES]))
    main = module.main
    kinds = ["batch"] * (len(main.arguments) - 1) + ["parameter"]
    roles = Roles(tuple((k, f"x{i}", -1) for i, k in enumerate(kinds)), ())
    rows = [(("metric", i), v) for i, v in enumerate(main.outputs)]
    holds(MixedPrecision(precision), module.with_function(roles.applied(main, rows)))


def recast(grower) -> None:
    """A value by way of any dtype: stored in 8 bits, as an integer, as a boolean."""
    there = grower.b.cast(grower.pick(), dtype=grower.draw(st.sampled_from(EVERY)))
    grower.keep(grower.b.cast(there, dtype="f32"))


@st.composite
def mixed_programs(draw) -> Module:
    """A random program in dtypes drawn at random, casts among its ops."""
    module = draw(programs((*STEPS, recast, recast)))
    floats = [draw(st.sampled_from(FLOATS)) for _ in roots_of(module)]

    def roots(i, old):
        return dtype(floats[i]) if old.is_float else old

    try:
        return retyped(module, roots, draw(st.sampled_from(sorted(MEETINGS))), draw(st.booleans()))
    except DoesNotExist:
        assume(False)
        raise


@settings(max_examples=examples(40), deadline=None)
@given(mixed_programs())
def test_both_halves_are_right_whatever_the_dtypes(module):
    """All passes of a compile for the CPU, memory planned and executed but for machine code."""
    checker = Checker(module, inputs(module))
    for label, pass_, before, after, rewrites in stages(module):
        for record in checker.stage(rewrites, pass_.exact, before, after):
            assert record.verdict != "failed", f"{label}: {record.note}"
            if record.verdict == "unchecked":
                assert label == "schedule_kernels", f"{label}: {record.note}"


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(mixed_programs())
def test_machine_code_is_right_whatever_the_dtypes(module):
    made = cc.compile(module, tuple(small(module)), check=True)
    failed = [r.note for found in made.checks.values() for r in found if r.verdict == "failed"]
    assert not failed


# -- what was wrong --------------------------------------------------------------------------------


def convolved(conv: str, norm: str, shifted: bool = False, wide: bool = False):
    """A convolution in one dtype, its inference normalisation in another; ``wide``: the sums of
    products are not rounded."""

    def build(b, x):
        w = b.constant(np.linspace(-1, 1, 108).reshape(4, 3, 3, 3).astype(dtype(conv).numpy))
        y = b.conv(
            x,
            w,
            strides=(1, 1),
            low=(1, 1),
            high=(1, 1),
            dilations=(1, 1),
            groups=1,
            accumulate="f32" if wide else None,
        )
        if shifted:
            shift = b.constant(np.linspace(-1, 1, 4).astype(y.type.dtype.numpy))
            y = b.add(y, b.broadcast(shift, shape=y.type.shape, dims=(1,)))
        four = [b.constant(np.full(4, v).astype(dtype(norm).numpy)) for v in (1.5, 0.25, -0.5, 2)]
        return b.batch_norm(y, *four, axis=1, epsilon=1e-5)

    return build


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    ("conv", "norm", "wide", "reason"),
    [
        ("bf16", "f32", False, "bf16 is rounded after each of these ops"),
        ("f16", "f16", False, "f16 is rounded after each of these ops"),
        ("bf16", "f32", True, "these ops compute in bf16 and in f32"),
        ("f8E4M3FN", "f32", True, "these ops compute in f8E4M3FN and in f32"),
    ],
)
def test_batch_norm_is_not_folded_into_narrow_weights(conv, norm, wide, reason, shifted):
    """As ``torch.autocast`` and ``.half()`` hand them over.  Scaled and rounded again, the weights
    would be off by more than the rule states."""
    module = program(convolved(conv, norm, shifted, wide), f"2x3x5x5x{conv}")
    answers = explain(BATCH_NORM, module, specs.root_of(module))
    assert reason in answers[shifted][1]
    assert specs.apply(FoldBatchNorm(), module)[0] is module


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_batch_norm_is_folded_into_wide_weights(kind):
    module = program(convolved(kind, kind), f"2x3x5x5x{kind}")
    after, rewrites = specs.apply(FoldBatchNorm(), module)
    assert specs.rules_fired(rewrites) == [BATCH_NORM[0].name]
    specs.check(module, after, rewrites, exact=False)


def wide_scores(b, q, k, v):
    scores = b.matmul(q, b.transpose(k, permutation=(0, 2, 1)), accumulate="f32")
    return b.matmul(b.softmax(scores, axis=2), v)


def wide_values(b, q, k, v):
    scores = b.matmul(q, b.transpose(k, permutation=(0, 2, 1)))
    return b.matmul(b.softmax(scores, axis=2), v, accumulate="f32")


def counted(dtype_: str):
    """The mean of the losses over the targets that count, these counted in ``dtype_``."""

    def build(b, x, t):
        losses = b.nll_loss(x, t, reduction="sum")
        counts = b.ne(t, s.like(b, -100, t))
        number = b.reduce_sum(b.cast(counts, dtype=dtype_), axes=(0,))
        return b.div(losses, b.cast(number, dtype="f32"))

    return build


def one_hot_of_counts(b, index):
    shape = (4, 300)
    wide = b.broadcast(index, shape=shape, dims=(0,))
    return b.cast(b.eq(wide, b.iota(shape=shape, dtype="ui8", axis=1)), dtype="f32")


def one_hot_of_floats(b, index):
    wide = b.broadcast(index, shape=(4, 7), dims=(0,))
    return b.cast(b.eq(wide, b.iota(shape=(4, 7), dtype="f32", axis=1)), dtype="f32")


ATTENDS = "softmax(q k^T scale + mask) v => attention"
COUNTS = "total loss / counted => mean loss"
ONE_HOT = "cast(index == 0, 1, 2..) => one_hot(index)"
CHOSEN = "x > high ? high : x < low ? low : x => clamp(x)"
TURNED = "x * cos + (-v, u) * sin => rotary_embedding"
BF, F = "2x3x4xbf16", "2x3x4xf32"
#: A rule of recompose, a program that it took for its own, and why it is not.
LEFT = [
    (ATTENDS, wide_scores, (BF, BF, F), "these ops compute in bf16 and in f32"),
    (ATTENDS, wide_values, (BF, BF, BF), "these ops compute in bf16 and in f32"),
    (COUNTS, counted("bf16"), ("300x7xf32", "300xi64"), "these ops compute in bf16 and in f32"),
    (COUNTS, counted("i8"), ("300x7xf32", "300xi64"), "i8 does not represent every count"),
    (ONE_HOT, s.one_hot(7, "f8E4M3FN"), ("4xi64",), "one_hot does not support f8E4M3FN"),
    (ONE_HOT, one_hot_of_floats, ("4xf32",), "the index is f32"),
    (ONE_HOT, one_hot_of_counts, ("4xui8",), "ui8 does not represent 299"),
    (CHOSEN, s.bounded("select", False, True), ("4xi1",), "x is i1"),
    (TURNED, s.turned_whole, ("3x8xi32",) * 3, "it rotates i32"),
    (
        "-x[target] => nll_loss(x, target)",
        s.picked(None, "none", wrap=False),
        ("4x7xf32", "4xui64"),
        "the targets are ui64",
    ),
]


@pytest.mark.parametrize(("rule", "build", "types", "reason"), LEFT)
def test_a_rule_leaves_what_its_composite_does_not_take(rule, build, types, reason):
    module = program(build, *types)
    rules = [r for r in RECOMPOSE if r.name == rule]
    said = [text for op in module.main.body.ops for _, text, _ in explain(rules, module, op)]
    assert any(reason in text for text in said), said
    assert "fires here" not in said
    holds(Recompose(), module)


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
def test_what_is_computed_in_f32_of_narrow_values_is_raised(narrow):
    """As autocast writes it: casts around the ops are no part of a match."""

    def build(b, x):
        wide = s.softmax(((2,), (2,)))(b, b.cast(x, dtype="f32"))
        return b.cast(wide, dtype=narrow)

    module = program(build, f"2x3x4x{narrow}")
    after, _ = specs.apply(Recompose(), module)
    kinds = [o.kind for o in specs.live(after).main.body.ops]
    assert kinds == ["core.cast", "core.softmax", "core.cast"]
    holds(Recompose(), module)


@pytest.mark.parametrize("digits", ["f32", "f64"])
def test_a_constant_of_f64_has_the_digits_of_f64(digits):
    """A model of f64 whose constants were once f32 computes something else than a gelu."""
    root = float(np.asarray(2**0.5, dtype(digits).numpy))
    module = program(s.gelu("erf(x / c) + 1", 0, root), "2x3x8xf64")
    after, rewrites = specs.apply(Recompose(), module)
    assert bool(rewrites) == (digits == "f64")
    (old,), (new,) = (specs.outputs(m, inputs(module)) for m in (module, after))
    np.testing.assert_allclose(new, old, rtol=0, atol=1e-15 * np.abs(old).max())


@pytest.mark.parametrize("size", [100, 300])
def test_targets_may_be_counted_in_what_holds_their_number(size):
    module = program(counted("i16"), f"{size}x7xf32", f"{size}xi64")
    _, rewrites = specs.apply(Recompose(), module)
    assert COUNTS in specs.rules_fired(rewrites)


@pytest.mark.parametrize("kind", ["i8", "i64", "ui8", "bf16"])
@pytest.mark.parametrize("first", ["relu", "min"])
def test_a_relu_between_bounds_is_a_clamp_of_integers_too(kind, first):
    def build(b, x):
        six = s.like(b, 6, x)
        return b.min(b.relu(x), six) if first == "relu" else b.relu(b.min(x, six))

    module = program(build, f"4x5x{kind}")
    after, _ = specs.apply(Recompose(), module)
    assert [o.kind for o in specs.live(after).main.body.ops] == ["core.clamp"]
    holds(Recompose(), module)


@pytest.mark.parametrize(
    ("kind", "limit", "trips"),
    [
        *((kind, 5, 5) for kind in (*FLOATS, *INTEGERS) if not kind.endswith("i4")),
        pytest.param("bf16", 300, None, marks=pytest.mark.slow),
        ("f16", 300, 300),
    ],
)
def test_a_loop_is_counted_in_the_dtype_of_its_counter(kind, limit, trips):
    """256 + 1 is 256 in bf16: such a loop does not end."""

    def build(b, x):
        def body(b, i, x):
            return b.add(i, s.like(b, 1, i)), b.neg(x)

        go = lambda b, i, x: b.lt(i, s.like(b, limit, i))  # noqa: E731
        return loop(b, (b.constant(0, kind), x), go, body)[1]

    after, rewrites = specs.apply(SimplifyLoops(), program(build, "3xf32"))
    assert specs.rules_fired(rewrites) == ["the iterations of a loop are counted"] * (
        trips == limit
    )
    (op,) = [o for o in after.main.body.ops if o.kind == "core.while"]
    assert op.get("trips") == trips


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_a_square_has_the_bits_of_the_power_in_narrow_floats(kind):
    """Of all numbers: the tolerance of the rule that rewrites it is one of f32."""
    bits = np.arange(1 << 16, dtype=np.uint16).view(kind).reshape(256, 256)
    module = program(lambda b, x: b.pow(x, s.like(b, 2, x)), f"256x256x{dtype(kind).name}")
    after, rewrites = specs.apply(Canonicalise(), module)
    assert specs.rules_fired(rewrites) == ["x ** 2 => x * x"]
    (old,), (new,) = (specs.outputs(m, [bits]) for m in (module, after))
    assert same_bits(old, new)
