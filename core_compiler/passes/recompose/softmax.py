"""Forms of softmax and its logarithm, and of the mean."""

from __future__ import annotations

import numpy as np

from core_compiler.ops import typed
from core_compiler.ops.composite import size_of
from core_compiler.passes.axes import Axis, AxisMap, identity_axes, view_chain
from core_compiler.passes.recompose.spelling import (
    TOLERANCE,
    lowest,
    reshapes,
    scalar_value,
    single,
)
from core_compiler.passes.rules import (
    Any_,
    Check,
    Const,
    Match,
    MatchFailure,
    Rule,
    all_of,
    fits,
    op,
    views,
    wide,
)

# -- mean ------------------------------------------------------------------------------------------

_SUM = op("reduce_sum", "x", name="sum", through=reshapes)


def _constant_is_count(name: str, inverse: bool) -> Check:
    """Return a check that the constant is the number of summed elements, or its reciprocal."""

    def check(m: Match) -> str | None:
        total = typed.ReduceSum.of(m.named["sum"])
        if total.orders:
            return "the sum has an explicit accumulation order"
        size = size_of(total.x, total.axes)
        found = scalar_value(m, name)
        given = m.array(name).dtype.type(1 / size if inverse else size)
        return None if found == given else f"{found:.6g} does not average {size} elements"

    return check


def _mean(b, m: Match):
    made = b.mean(m["x"], axes=m.named["sum"]["axes"])
    shape = m.root.result.type.shape
    return made if made.type.shape == shape else b.reshape(made, shape=shape)


_MEANS = (
    Rule(
        "sum(x) / n => mean(x)",
        op("div", _SUM, single("n")),
        _mean,
        all_of(wide, _constant_is_count("n", inverse=False)),
    ),
    Rule(
        "sum(x) * (1 / n) => mean(x)",
        op("mul", _SUM, single("n")),
        _mean,
        all_of(wide, _constant_is_count("n", inverse=True)),
        3e-7,
    ),
)


# -- softmax and its logarithm ---------------------------------------------------------------------


def _axis(m: Match, digits: Axis) -> int:
    """Return the one axis of the result that the digits form."""
    shape = m.root.result.type.shape
    for axis in range(len(shape)):
        if digits == identity_axes(shape)[axis]:
            return axis
    raise MatchFailure("the reduction is not over exactly one axis")


def _softmax_axis(m: Match) -> int:
    axes = identity_axes(m["x"].type.shape)
    if all(v is not m["y"] for v, _ in view_chain(m["x"], axes, m.view, repeats=False)):
        raise MatchFailure(
            "the subtracted value is not the maximum of the value it is subtracted from"
        )
    axis_map = AxisMap(m)
    reduced_axes = [
        axis_map.reduced_axes(m.named["max"]),
        axis_map.reduced_axes(m.named["sum"], axes),
    ]
    if reduced_axes[0] != reduced_axes[1]:
        raise MatchFailure("the reductions are over different axes")
    return _axis(m, reduced_axes[0])


def _over(kind: str):
    return lambda b, m: b.op(f"core.{kind}", (m["x"],), axis=_softmax_axis(m))


_SHIFTED = op("sub", "x", op("reduce_max", "y", name="max", through=views))
_WEIGHTS = op("exp", _SHIFTED)
_TOTAL = op("reduce_sum", _WEIGHTS, name="sum", through=views)
_ZERO = Const("zero", lambda a: bool(np.all(a == 0)), "all zeros")
_SOFT = op("softmax", "x", name="soft")


def _gives_nan(m: Match) -> str | None:
    return None if m.named["soft"]["empty_rows"] == "nan" else "it already gives zeros"


def _rows_of_softmax(m: Match) -> None:
    """Check that a condition on whole rows is on those of the softmax."""
    digits = AxisMap(m).reduced_axes(m.named["any"], identity_axes(m["x"].type.shape))
    if _axis(m, digits) != m.named["soft"]["axis"]:
        raise MatchFailure("the rows are not those of the softmax")


def _rows_of_mask(m: Match) -> None:
    """Check that a condition on whole rows of an added mask is on those of the softmax.

    If every key of a row is masked, the sum is -infinity for all finite scores.
    """
    axis_map = AxisMap(m)
    for operand in m.named["scores"].operands:
        for value, axes in view_chain(
            operand, identity_axes(operand.type.shape), m.view, repeats=True
        ):
            digits = axis_map.reduced_axes(m.named["any"], axes) if value is m["mask"] else ()
            if digits and _axis(m, digits) == m.named["soft"]["axis"]:
                return
    raise MatchFailure("the rows are not those of the softmax")


def _zero_rows(b, m: Match):
    (x,) = m.named["soft"].operands
    return b.softmax(x, axis=m.named["soft"]["axis"], empty_rows="zero")


_LOWEST = lowest("low")
#: Whether any element of a row is above -infinity; or the same test on the row's maximum.
_SEEN = op("reduce_or", op("not", op("eq", "x", _LOWEST)), name="any", through=views)
_HIDDEN = op("eq", op("reduce_max", "x", name="any", through=views), _LOWEST, through=views)
_MASKED = op(
    "eq", op("reduce_max", Any_("mask", views), name="any", through=views), _LOWEST, through=views
)
_SOFT_OF_MASKED = op("softmax", op("add", "s", Any_("mask", views), name="scores"), name="soft")

RULES = (
    *_MEANS,
    Rule("exp(x - max) / sum => softmax(x)",
         op("div", _WEIGHTS, _TOTAL), _over("softmax"), all_of(wide, fits(_softmax_axis)),
         TOLERANCE),
    Rule("x - max - log(sum(exp(x - max))) => log_softmax(x)",
         op("sub", _SHIFTED, op("log", _TOTAL, through=views)), _over("log_softmax"),
         all_of(wide, fits(_softmax_axis)), TOLERANCE),
    Rule("select(is_nan(softmax(x)), 0, softmax(x)) => softmax(x) with empty rows 0",
         op("select", op("is_nan", _SOFT), _ZERO, _SOFT), _zero_rows, _gives_nan, 0.0,
         except_for=("nan", "infinities")),
    Rule("select(no x > -inf, 0, softmax(x)) => softmax(x) with empty rows 0",
         op("select", op("not", _SEEN, through=views), _ZERO, _SOFT), _zero_rows,
         all_of(_gives_nan, fits(_rows_of_softmax)), 0.0),
    Rule("select(max == -inf, 0, softmax(x)) => softmax(x) with empty rows 0",
         op("select", _HIDDEN, _ZERO, _SOFT), _zero_rows,
         all_of(_gives_nan, fits(_rows_of_softmax)), 0.0),
    Rule("select(max of mask == -inf, 0, softmax(x + mask)) => softmax with empty rows 0",
         op("select", _MASKED, _ZERO, _SOFT_OF_MASKED), _zero_rows,
         all_of(_gives_nan, fits(_rows_of_mask)), 0.0),
)  # fmt: skip
