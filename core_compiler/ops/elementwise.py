"""Elementwise ops: one table row per op.

Operands have equal shapes; broadcasting is a separate op.

The scalar functions are defined by the numerics contract, in ``numerics/primitives`` and
``numerics/functions``. f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

import numpy as np

from core_compiler.ir import DType
from core_compiler.ir.types import DTYPES
from core_compiler.ops import hooks
from core_compiler.ops.base import Attr, OpDef, declare
from core_compiler.ops.gradients.table import CONSTANT, RULES
from core_compiler.ops.precision import ANGLE, EXPLICIT, FOLLOWS, RANGE, TAILS, WHOLE
from core_compiler.ops.rules import (
    BOOL,
    FLOATS,
    INTEGERS,
    LOGICAL,
    NUMBERS,
    SIGNED,
    common_order,
    free,
    need,
    need_dtype,
    need_same_dtype,
    need_same_shape,
)
from core_compiler.ops.traits import traits
from core_compiler.support import lazy_module

dtypes = lazy_module.module("core_compiler.numerics.reference.dtypes")
elementwise = lazy_module.module("core_compiler.numerics.reference.elementwise")

SIGNED_NUMBERS = FLOATS + SIGNED
ANY = tuple(DTYPES.values())

#: Columns: name, meaning, operand dtypes, traits, mixed precision.
#: The result has the operand's dtype.
UNARY = (
    ("neg", "-x; integers wrap", SIGNED_NUMBERS, "exact multilinear", FOLLOWS),
    ("abs", "|x|; integers wrap", SIGNED_NUMBERS, "exact never_negative_zero", FOLLOWS),
    (
        "sign",
        "-1, 0 or 1; a float keeps its zero's sign, NaN stays NaN",
        SIGNED_NUMBERS,
        "exact step",
        WHOLE,
    ),
    ("exp", "e to the x", FLOATS, "never_negative_zero several_roundings", RANGE),
    ("exp2", "2 to the x", FLOATS, "never_negative_zero several_roundings", RANGE),
    ("expm1", "exp(x) - 1, accurate near 0", FLOATS, "several_roundings", RANGE),
    ("log", "natural logarithm", FLOATS, "several_roundings", RANGE),
    ("log2", "logarithm to base 2", FLOATS, "several_roundings", RANGE),
    ("log10", "logarithm to base 10", FLOATS, "several_roundings", RANGE),
    ("log1p", "log(1 + x), accurate near 0", FLOATS, "several_roundings", RANGE),
    ("sqrt", "square root, correctly rounded", FLOATS, "", RANGE),
    (
        "rsqrt",
        "1 / sqrt(x): a square root and a division, each rounded",
        FLOATS,
        "several_roundings",
        RANGE,
    ),
    ("cbrt", "cube root", FLOATS, "", RANGE),
    ("sin", "sine, x in radians", FLOATS, "several_roundings", ANGLE),
    ("cos", "cosine, x in radians", FLOATS, "several_roundings", ANGLE),
    ("tan", "tangent, x in radians", FLOATS, "several_roundings", ANGLE),
    ("asin", "arc sine", FLOATS, "several_roundings", ANGLE),
    ("acos", "arc cosine", FLOATS, "several_roundings", ANGLE),
    ("atan", "arc tangent", FLOATS, "several_roundings", ANGLE),
    ("sinh", "hyperbolic sine", FLOATS, "", RANGE),
    ("cosh", "hyperbolic cosine", FLOATS, "", RANGE),
    ("tanh", "hyperbolic tangent", FLOATS, "several_roundings", FOLLOWS),
    ("asinh", "inverse hyperbolic sine", FLOATS, "", RANGE),
    ("acosh", "inverse hyperbolic cosine", FLOATS, "", RANGE),
    ("atanh", "inverse hyperbolic tangent", FLOATS, "", RANGE),
    ("erf", "error function", FLOATS, "several_roundings", TAILS),
    ("erfc", "1 - erf(x), accurate for large x", FLOATS, "several_roundings", TAILS),
    ("sigmoid", "1 / (1 + exp(-x))", FLOATS, "never_negative_zero several_roundings", FOLLOWS),
    ("floor", "largest integer not above x", FLOATS, "exact step", WHOLE),
    ("ceil", "smallest integer not below x", FLOATS, "exact step", WHOLE),
    ("round", "nearest integer, ties to even", FLOATS, "exact step", WHOLE),
    ("trunc", "integer part, towards zero", FLOATS, "exact step", WHOLE),
    ("not", "logical not", (BOOL,), "exact step", None),
    ("bitnot", "every bit inverted", INTEGERS, "exact step", None),
)

#: Columns: name, meaning, operand dtypes. The result is i1.
TESTS = (
    ("is_nan", "true if x is NaN", FLOATS),
    ("is_inf", "true if x is an infinity", FLOATS),
    ("is_finite", "true if x is neither NaN nor an infinity", FLOATS),
)

#: Columns: name, meaning, operand dtypes, traits, mixed precision.
#: The result has the operands' dtype.
BINARY = (
    ("add", "a + b; integers wrap", NUMBERS, "commutative multilinear", FOLLOWS),
    ("sub", "a - b; integers wrap", NUMBERS, "multilinear", FOLLOWS),
    ("mul", "a * b; integers wrap", NUMBERS, "commutative multilinear", FOLLOWS),
    ("div", "a / b; integers truncate towards zero, x / 0 is 0", NUMBERS, "division", FOLLOWS),
    ("max", "the larger; -0 < +0; NaN if either is NaN",
     NUMBERS, "commutative exact selects canonical_nan", FOLLOWS),
    ("min", "the smaller; -0 < +0; NaN if either is NaN",
     NUMBERS, "commutative exact selects canonical_nan", FOLLOWS),
    ("pow", "a to the b; integers by repeated wrapping multiplication", NUMBERS, "", RANGE),
    ("rem", "remainder of truncated division (C fmod): sign of a; integer x rem 0 is 0",
     NUMBERS, "division", WHOLE),
    ("mod", "remainder of floored division: sign of b; integer x mod 0 is 0",
     NUMBERS, "division", WHOLE),
    ("atan2", "angle of the point (b, a) in radians", FLOATS, "", ANGLE),
    ("and", "bitwise and", LOGICAL, "commutative exact step", None),
    ("or", "bitwise or", LOGICAL, "commutative exact step", None),
    ("xor", "bitwise exclusive or", LOGICAL, "commutative exact step", None),
    ("shl", "a shifted left by b bits; 0 where b is not in 0..width-1",
     INTEGERS, "exact step", None),
    ("shr", "a shifted right by b bits; b outside 0..width-1 gives 0, or -1 where a is negative",
     INTEGERS, "exact step", None),
)  # fmt: skip

#: Columns: name, meaning, traits. The result is i1; a comparison with NaN is false, except ne.
COMPARISONS = (
    ("eq", "a == b", "commutative exact comparison step"),
    ("ne", "a != b", "commutative exact comparison step"),
    ("lt", "a < b", "exact comparison step"),
    ("le", "a <= b", "exact comparison step"),
    ("gt", "a > b", "exact comparison step"),
    ("ge", "a >= b", "exact comparison step"),
)


#: Ops whose reference has another name.
_REFERENCES = {
    "round": "round_even",
    "bitnot": "not",
    "max": "maximum",
    "min": "minimum",
    "rem": "fmod",
    "mod": "remainder",
    "shl": "shift_left",
    "shr": "shift_right",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _map(name):
    """Return the reference of an elementwise op."""
    found = _REFERENCES.get(name, name)
    return lambda arrays, attributes, types: (elementwise.apply(found, *arrays),)


def _map_rule(names, allowed, result=None):
    """Return a type rule for operands of one shape and one allowed dtype.

    The result's dtype is ``result``, or theirs.
    """

    def rule(types, attributes):
        need_dtype(names[0], types[0], allowed)
        need_same_dtype(names, types)
        need_same_shape(names, types)
        return (types[0].with_(dtype=result, order=common_order(*types)),)

    return rule


def _test(function):
    """Return a test of floats, which are widened exactly first."""
    return lambda arrays, attributes, types: (np.asarray(function(dtypes.widen(arrays[0]))),)


_TEST_REFERENCES = {
    "is_nan": _test(np.isnan),
    "is_inf": _test(np.isinf),
    "is_finite": _test(np.isfinite),
}


def _declare(name, summary, names, allowed, words, precision=None, result=None, reference=None):
    declare(
        OpDef(
            f"core.{name}",
            summary,
            names,
            _map_rule(names, allowed, result),
            reference or _map(name),
            traits=traits("elementwise", *words.split()),
            precision=precision,
            lower=hooks.Elementwise(name),
            gradient=CONSTANT if "step" in words.split() else RULES[name],
        )
    )


for _name, _summary, _allowed, _words, _precision in UNARY:
    _declare(_name, _summary, ("x",), _allowed, _words, _precision)
for _name, _summary, _allowed in TESTS:
    _declare(_name, _summary, ("x",), _allowed, "exact step", None, BOOL, _TEST_REFERENCES[_name])
for _name, _summary, _allowed, _words, _precision in BINARY:
    _declare(_name, _summary, ("a", "b"), _allowed, _words, _precision)
for _name, _summary, _words in COMPARISONS:
    _declare(_name, _summary, ("a", "b"), (*NUMBERS, BOOL), _words, None, BOOL)


def _select_rule(types, attributes):
    predicate, a, b = types
    need_dtype("p", predicate, (BOOL,))
    need_same_dtype(("a", "b"), (a, b))
    need_same_shape(("p", "a", "b"), types)
    return (a.with_(order=common_order(*types)),)


def _select(arrays, attributes, types):
    return (elementwise.select(*arrays),)


declare(
    OpDef(
        "core.select",
        "a where p is true, else b; the other operand has no effect, NaN included",
        ("p", "a", "b"),
        _select_rule,
        _select,
        traits=traits("elementwise", "exact", "multilinear"),
        precision=FOLLOWS,
        lower=hooks.Elementwise("select"),
        gradient=RULES["select"],
    )
)


def _cast_rule(types, attributes):
    for found in (types[0].dtype, attributes["dtype"]):
        need(found.name != "f8E8M0FNU", "f8E8M0FNU contains block scales and cannot be converted")
    return (types[0].with_(dtype=attributes["dtype"]),)


def _cast(arrays, attributes, types):
    wanted = types[0].dtype
    saturate = attributes["saturate"] and wanted.is_float and wanted.bits <= 8
    return (dtypes.cast(arrays[0], wanted.numpy, saturate),)


declare(
    OpDef(
        "core.cast",
        "Converts the dtype.  Float to float rounds to nearest even; float to integer truncates, "
        "saturates, NaN to 0; integer to integer wraps; integer to float rounds to nearest even; "
        "to i1 is x != 0; i1 is 0 or 1.",
        ("x",),
        _cast_rule,
        _cast,
        attributes={
            "dtype": Attr(DType, doc="the result's dtype"),
            "saturate": Attr(
                bool, True, "floats of 8 bits or fewer clamp to the largest finite value"
            ),
        },
        traits=traits("elementwise", "multilinear"),
        precision=EXPLICIT,
        lower=hooks.Elementwise("cast"),
        gradient=RULES["cast"],
    )
)


def _bitcast_rule(types, attributes):
    (x,), wanted = types, attributes["dtype"]
    need(
        x.dtype.bits == wanted.bits and x.dtype.bits >= 8,
        f"{x.dtype.name} and {wanted.name} do not have one width of whole bytes",
    )
    return (x.with_(dtype=wanted),)


def _bitcast(arrays, attributes, types):
    return (np.ascontiguousarray(arrays[0]).view(types[0].dtype.numpy).reshape(types[0].shape),)


declare(
    OpDef(
        "core.bitcast",
        "The same bits read as another dtype of the same width",
        ("x",),
        _bitcast_rule,
        _bitcast,
        attributes={"dtype": Attr(DType, doc="the result's dtype, as wide as x's")},
        traits=traits("elementwise", "exact"),
        precision=EXPLICIT,
        flops=free,
        lower=hooks.Elementwise("bitcast"),
    )
)
