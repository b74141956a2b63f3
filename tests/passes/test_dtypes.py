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
from core_compiler.passes.simplify_shapes import SimplifyShapes
from core_compiler.passes.split_strided_convolutions import SplitStridedConvolutions
from core_compiler.passes.widen_sums import WidenSums
from core_compiler.training.passes import MixedPrecision
from core_compiler.training.roles import Roles
from tests.passes import specs, test_canonicalise, test_recompose, test_simplify_shapes
from tests.passes import spellings as s
from tests.passes.dtypes import EVERY, FLOATS, INTEGERS, MEETINGS, DoesNotExist, retyped, roots_of
from tests.passes.programs import inputs, program, programs
from tests.passes.test_meaning_half import IMAGE, normalised
from tests.passes.test_properties import stages

Program = tuple[Callable, Sequence[str]]
ALGEBRA: list[Program] = [(c.before, c.types) for c in test_canonicalise.CASES]
SHAPES: list[Program] = [(c[1], c[5]) for c in test_simplify_shapes.CASES]
COMPOSITES: list[Program] = [(before, types) for before, _, types in test_recompose.FIRES]
ATTENTION: list[Program] = [(before, types) for before, types, *_ in test_recompose.ATTENTION]
NORMALISED: list[Program] = [(normalised(shifted), (IMAGE,)) for shifted in (False, True)]


def transposed(b, x, w):
    return b.conv_transpose(x, w, strides=(2,), low=(1,), high=(0,), dilations=(1,), groups=1,
                            output_padding=(1,))  # fmt: skip


STRIDED: list[Program] = [(transposed, ("2x3x4xf32", "3x2x3xf32"))]
#: Every pass that rewrites tensor ops, and programs at which it does.
PASSES: list[tuple[Pass, list[Program]]] = [
    (Canonicalise(), ALGEBRA), (SimplifyShapes(), SHAPES), (Recompose(), COMPOSITES),
    (Recompose(), ATTENTION), (FoldBatchNorm(), NORMALISED),
    (FoldConstants(), [*ALGEBRA, *NORMALISED]),
    (EliminateCommonSubexpressions(), [*COMPOSITES, *ALGEBRA]),
    (Decompose(), COMPOSITES), (LowerComposites(), COMPOSITES + ATTENTION),
    (RoundCorrectly(), COMPOSITES), (WidenSums(), COMPOSITES),
    (SplitStridedConvolutions(), STRIDED),
]  # fmt: skip
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
    return [a % 5 if dtype(a.dtype).kind == "uint" and a.dtype.itemsize > 1 else a
            for a in inputs(module)]  # fmt: skip


def holds(pass_: Pass, module: Module) -> None:
    """``pass_`` gives a valid module with results of the same dtypes, each rewrite as it says."""
    after, rewrites = specs.apply(pass_, module)
    records = Checker(module, small(module)).stage(
        rewrites, pass_.exact, module, after, pass_.anew
    )  # fmt: skip
    for record in records:
        assert record.verdict in ("bitwise", "within"), f"{record.rewrite.rule}: {record.note}"
    for old, new in zip(module.main.outputs, after.main.outputs, strict=True):
        assert old.type.dtype is new.type.dtype and old.type.shape == new.type.shape


@pytest.mark.parametrize(
    ("pass_", "choices"), PASSES, ids=lambda p: getattr(p, "name", lambda: "")()
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_pass_is_right_whatever_the_dtypes(pass_, choices, data):
    holds(pass_, data.draw(mixed(choices)))


@pytest.mark.parametrize("rules", ["exact", "tolerant"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_saturation_is_right_whatever_the_dtypes(rules, data):
    pytest.importorskip("egglog", reason="egglog is not installed (extra: egglog)")
    holds(Saturate(rules=rules), data.draw(mixed(SATURATED)))


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_mixed_precision_is_right_whatever_the_dtypes(precision, data):
    """Of a program whose last argument is a parameter."""
    module = data.draw(mixed([*NORMALISED, *ATTENTION, *COMPOSITES]))
    main = module.main
    kinds = ["batch"] * (len(main.arguments) - 1) + ["parameter"]
    roles = Roles(tuple((k, f"x{i}", -1) for i, k in enumerate(kinds)), ())
    rows = [(("metric", i), v) for i, v in enumerate(main.outputs)]
    holds(MixedPrecision(precision), module.with_function(roles.applied(main, rows)))


@st.composite
def mixed_programs(draw) -> Module:
    """A random program in dtypes drawn at random, casts among its ops."""
    module = draw(programs())
    floats = [draw(st.sampled_from(FLOATS)) for _ in roots_of(module)]

    def roots(i, old):
        return dtype(floats[i]) if old.is_float else old

    try:
        return retyped(module, roots, draw(st.sampled_from(sorted(MEETINGS))), draw(st.booleans()))
    except DoesNotExist:
        assume(False)
        raise


@settings(max_examples=40, deadline=None)
@given(mixed_programs())
def test_both_halves_are_right_whatever_the_dtypes(module):
    """All passes of a compile for the CPU, memory planned and executed but for machine code."""
    checker = Checker(module, inputs(module))
    for label, pass_, before, after, rewrites in stages(module):
        for record in checker.stage(rewrites, pass_.exact, before, after):
            assert record.verdict != "failed", f"{label}: {record.note}"
            if record.verdict == "unchecked":
                assert label == "schedule_kernels", f"{label}: {record.note}"
