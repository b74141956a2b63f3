"""Forms of the normalisations: the standardised value first, then its scale and bias.

The axes of the mean determine the normalisation: the last axes are a layer norm, all but the batch
and a channel axis an instance norm, the rest of a split channel axis a group norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ops import typed
from core_compiler.ops.base import REGISTRY, view
from core_compiler.passes.axes import (
    Axes,
    Axis,
    AxisMap,
    Parameter,
    canonical_digits,
    covers,
    flatten_axes,
    identity_axes,
    length,
    rearrange,
)
from core_compiler.passes.recompose.spelling import (
    OVERFLOWS,
    TOLERANCE,
    number,
    scalar_value,
    single,
)
from core_compiler.passes.rules import (
    Any_,
    Match,
    MatchFailure,
    Rule,
    all_of,
    either,
    fits,
    op,
    views,
    wide,
)

#: Tolerance of x r - m r for (x - m) r: their common part cancels, here up to some 50 deviations.
_EXPANDED_TOLERANCE = 2e-5
#: Tolerance of mean(x*x) - mean**2 for the variance: the mean's square cancels, up to some 20
#: deviations.
_RAW_MOMENTS_TOLERANCE = 1e-4

# -- the patterns ----------------------------------------------------------------------------------

_EPSILON = single("eps")
_MEAN = op("mean", "x", name="mean", through=views)
_CENTRED = op("sub", "x", _MEAN)


def _square(of):
    return either(op("mul", of, of, through=views), op("pow", of, number("two", 2), through=views))


def _is_uncorrected(o: Op) -> bool:
    return typed.Variance.of(o).correction == 0


def _mean_square(of):
    return op("mean", _square(of), name="square", through=views)


_DIFFERENCE = op("sub", _mean_square("x"), _square(_MEAN), through=views)
#: name of the form -> (the variance, its tolerance).
_VARIANCES = {
    "variance": (
        either(
            _mean_square(_CENTRED),
            op(
                "variance",
                "x",
                name="square",
                where=_is_uncorrected,
                through=views,
            ),
        ),
        TOLERANCE,
    ),
    "mean(x*x) - mean**2": (
        either(_DIFFERENCE, op("relu", _DIFFERENCE, through=views)),
        _RAW_MOMENTS_TOLERANCE,
    ),
}


def _deviation(variance):
    return op("sqrt", op("add", variance, _EPSILON, through=views), through=views)


def _reciprocal_deviation(variance):
    """Return the ways to write 1 / sqrt(variance + eps)."""
    shifted = op("add", variance, _EPSILON, through=views)
    return either(
        op("rsqrt", shifted, through=views),
        op("div", number("one", 1), op("sqrt", shifted, through=views), through=views),
        op("pow", shifted, number("minus half", -0.5), through=views),
    )


_SCALE = Any_("scale")


def _scaled(inverse):
    return op("mul", inverse, _SCALE, through=views)


def _expanded(inverse):
    """Return the ways to write (x - mean) * a + bias with x * a and mean * a computed separately.

    a = inverse * scale, or just the inverse.
    """
    a = either(_scaled(inverse), inverse)
    minus = either(
        op("mul", op("neg", _MEAN, through=views), a, through=views),
        op("neg", op("mul", _MEAN, a, through=views), through=views),
    )
    rest = either(
        op("add", minus, "bias", through=views),
        op("sub", "bias", op("mul", _MEAN, a, through=views), through=views),
        minus,
    )
    return op("add", op("mul", "x", a), rest)


# -- which normalisation it is ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Norm:
    """The op ``kind`` of the standardised value reshaped to ``shape``.

    Its parameters lie along the axes ``over`` of the standardised value.
    """

    kind: str
    shape: tuple[int, ...]
    over: Axes
    attributes: Mapping[str, Any] = field(default_factory=dict)


#: The possible normalisations of a standardised value, given its shape, the axes of the mean and
#: whether it is scaled; the most likely first.
Recogniser = Callable[[tuple[int, ...], Axis, bool], Sequence[_Norm]]


def _first_normalised_axis(shape: tuple[int, ...], reduced_axes: Axis) -> int | None:
    """Return the first of the last axes if ``reduced_axes`` is exactly these, else None."""
    axes = identity_axes(shape)
    return next(
        (a for a in reversed(range(len(shape))) if flatten_axes(axes[a:]) == reduced_axes), None
    )


def _last_axes(kind: str) -> Recogniser:
    """Return the recogniser of a normalisation of ``kind`` over the last axes."""

    def recognise(shape: tuple[int, ...], reduced_axes: Axis, scaled: bool) -> Sequence[_Norm]:
        axis = _first_normalised_axis(shape, reduced_axes)
        if axis is None:
            raise MatchFailure("the mean is not over the last axes")
        return (_Norm(kind, shape, identity_axes(shape)[axis:], {"axis": axis}),)

    return recognise


def _channels(shape: tuple[int, ...], reduced_axes: Axis, scaled: bool) -> Sequence[_Norm]:
    """Return instance norm of the channels, or group norm of channels that a reshape has split."""
    axes = identity_axes(shape)
    if not scaled and _first_normalised_axis(shape, reduced_axes) is not None:
        raise MatchFailure("the mean is over the last axes: it is a layer norm")
    kept = [a for a in range(1, len(shape)) if axes[a] and not covers([reduced_axes], [axes[a]])]
    rest = [a for i, a in enumerate(axes) if i not in (0, *kept)]
    if (
        len(shape) < 3
        or len(kept) != 1
        or canonical_digits(rest) != canonical_digits([reduced_axes])
    ):
        raise MatchFailure("the mean is not over all axes except the batch and the channels")
    (axis,) = kept
    found = [_Norm("instance_norm", shape, (axes[axis],), {"axis": axis})]
    if axis < len(shape) - 1 and axes[axis + 1]:
        joined = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        group = {"axis": axis, "groups": shape[axis]}
        found.insert(scaled, _Norm("group_norm", joined, axes[axis : axis + 2], group))
    return found


def _read(m: Match, recognise: Recogniser) -> tuple[_Norm, list[Parameter]]:
    """Return the normalisation of a match, with its scale and bias if it has them."""
    axis_map = AxisMap(m)
    reduced_axes = [
        axis_map.reduced_axes(m.named[n], _source(m, m.named[n]))
        for n in ("mean", "square")
        if n in m.named
    ]
    if reduced_axes[0] != reduced_axes[-1]:
        raise MatchFailure("the reductions are over different axes")
    names = [name for name in ("scale", "bias") if name in m.values]
    if names == ["bias"]:
        raise MatchFailure("it has a bias but no scale")
    for norm in recognise(m.root.result.type.shape, reduced_axes[0], bool(names)):
        candidates = [axis_map.parameter(m[name], norm.over) for name in names]
        found = [p for p in candidates if p is not None]
        if len(found) == len(candidates):
            return norm, found
    raise MatchFailure("its scale or bias varies along axes that are not normalised")


def _source(m: Match, reduction) -> Axes | None:
    """Return the axes of a reduction's operand, which is computed from ``x`` elementwise."""
    same = reduction.operands[0].type.shape == m["x"].type.shape == m.root.result.type.shape
    return identity_axes(m.root.result.type.shape) if same else None


def _rewrite_to_norm(recognise: Recogniser):
    def rewrite(b, m: Match):
        norm, parameters = _read(m, recognise)
        built = [_flattened(b, p, norm) for p in parameters]
        x = _reshaped(b, m["x"], norm.shape)
        made = b.op(
            f"core.{norm.kind}", (x, *built), epsilon=scalar_value(m, "eps"), **norm.attributes
        )
        return _reshaped(b, made, m.root.result.type.shape)

    return rewrite


def _check(recognise: Recogniser):
    return all_of(wide, fits(lambda m: _read(m, recognise)))


def _flattened(b, parameter: Parameter, norm: _Norm) -> Value:
    """Return a parameter in the op's shape: a group norm has one channel axis."""
    made = parameter.build(b)
    if norm.kind in ("layer_norm", "rms_norm"):
        return made
    return _reshaped(b, made, (length(flatten_axes(parameter.wanted)),))


def _reshaped(b, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.type.shape == shape else b.reshape(value, shape=shape)


def _standardised() -> tuple[Rule, ...]:
    rules = []
    kinds: tuple[tuple[str, Recogniser], ...] = (
        ("layer_norm(x)", _last_axes("layer_norm")),
        ("instance or group norm of x", _channels),
    )
    for formula, (variance, tolerance) in _VARIANCES.items():
        deviation, inverse = _deviation(variance), _reciprocal_deviation(variance)
        forms = (
            (f"(x - mean) / sqrt({formula} + eps)", op("div", _CENTRED, deviation), tolerance),
            (f"(x - mean) * rsqrt({formula} + eps)", op("mul", _CENTRED, inverse), tolerance),
            (
                f"(x - mean) * (rsqrt({formula} + eps) * scale)",
                op("mul", _CENTRED, _scaled(inverse)),
                tolerance,
            ),
            (
                f"x * a - mean * a, a = rsqrt({formula} + eps)",
                _expanded(inverse),
                max(tolerance, _EXPANDED_TOLERANCE),
            ),
        )
        rules += [
            Rule(
                f"{form} => {kind}",
                pattern,
                _rewrite_to_norm(recognise),
                _check(recognise),
                cost,
                except_for=OVERFLOWS,
            )
            for form, pattern, cost in forms
            for kind, recognise in kinds
        ]
    return tuple(rules)


def _root_mean_square() -> tuple[Rule, ...]:
    square = _mean_square("x")
    forms = (
        ("x / sqrt(mean(x*x) + eps)", op("div", "x", _deviation(square))),
        ("x * rsqrt(mean(x*x) + eps)", op("mul", "x", _reciprocal_deviation(square))),
        (
            "x * (rsqrt(mean(x*x) + eps) * scale)",
            op("mul", "x", _scaled(_reciprocal_deviation(square))),
        ),
    )
    recognise = _last_axes("rms_norm")
    return tuple(
        Rule(
            f"{form} => rms_norm(x)",
            pattern,
            _rewrite_to_norm(recognise),
            _check(recognise),
            TOLERANCE,
            except_for=OVERFLOWS,
        )
        for form, pattern in forms
    )


# -- scale and bias --------------------------------------------------------------------------------


_CHANNEL = frozenset({"group_norm", "instance_norm"})


def _parameter(m: Match, name: str, kind: str) -> tuple[Parameter, Axes]:
    """Return the scale or bias of the normalisation of ``kind`` being built, and its axes."""
    norm, axis_map = m.named["norm"], AxisMap(m)
    axes = axis_map[norm.result]
    if axes is None or canonical_digits(axes) != canonical_digits(
        identity_axes(m.root.result.type.shape)
    ):
        raise MatchFailure("the normalised value is broadcast")
    axis = view(norm).axis
    wanted, each = axes[axis:], "normalised element"
    if kind in _CHANNEL:
        channel = axis if norm.kind == f"core.{kind}" else 1
        wanted, each = (axes[channel],), "channel"
    found = axis_map.parameter(m[name], wanted)
    if found is None:
        raise MatchFailure(f"the {name} is not one number per {each}")
    return found, axes


def _affine(name: str, kind: str, into: str = ""):
    """Return check and rewrite of ``norm(x)`` with one more parameter, ``name``.

    ``into``: the kind that it becomes by it.
    """
    kind, attributes = into or kind, {"axis": 1} if into else {}

    def rewrite(b, m: Match):
        norm = m.named["norm"]
        found, axes = _parameter(m, name, kind)
        given = {**norm.attributes, **attributes}
        made = b.op(f"core.{kind}", (*norm.operands, found.build(b)), **given)
        return rearrange(b, made, axes, identity_axes(m.root.result.type.shape))

    return fits(lambda m: _parameter(m, name, kind)), rewrite


def _norms_with(operand: str) -> list[str]:
    """Return the normalisations that may have an ``operand``."""
    return [
        op.name for op in REGISTRY.values() if operand in op.operands and op.name.endswith("_norm")
    ]


def _scale_rule(kind: str) -> Rule:
    norm = op(kind, "x", name="norm", one_use=True, through=views)
    check, rewrite = _affine("scale", kind)
    return Rule(
        f"{kind}(x) * scale => {kind}(x, scale)",
        op("mul", norm, "scale"),
        rewrite,
        all_of(wide, check),
        TOLERANCE,
    )


def _bias_rule(kind: str) -> Rule:
    norm = op(kind, "x", "factor", name="norm", one_use=True, through=views)
    check, rewrite = _affine("bias", kind)
    return Rule(
        f"{kind}(x, scale) + bias => {kind}(x, scale, bias)",
        op("add", norm, "bias"),
        rewrite,
        all_of(wide, check),
        TOLERANCE,
    )


def _instance_rule() -> Rule:
    """Return the rule for a layer norm of all axes after the channels, scaled per channel."""
    norm = op(
        "layer_norm",
        "x",
        name="norm",
        one_use=True,
        through=views,
        where=lambda o: typed.LayerNorm.of(o).axis == 2,
    )
    check, rewrite = _affine("scale", "layer_norm", "instance_norm")
    return Rule(
        "layer_norm(x) * scale of channels => instance_norm(x, scale)",
        op("mul", norm, "scale"),
        rewrite,
        all_of(wide, check),
        TOLERANCE,
    )


# -- groups as axes --------------------------------------------------------------------------------


def _groups(m: Match) -> int:
    """Return the number of channel groups that a reshape merges after their layer norm."""
    layer, axes = typed.LayerNorm.match(m.named["norm"]), AxisMap(m)[m.named["norm"].result]
    shape = m.root.result.type.shape
    if axes is None or len(shape) < 3:
        raise MatchFailure("it is not a reshape to [N, C, spatial..]")
    kept = flatten_axes(axes[: layer.axis if layer is not None else 2])
    batch, channels = shape[:2]
    groups = length(kept) // batch if batch else 0
    wanted = flatten_axes([identity_axes(shape)[0], ((1, channels // max(groups, 1), groups),)])
    if not 1 < groups < channels or channels % groups or kept != wanted:
        raise MatchFailure("the elements normalised together are not a group of channels")
    return groups


def _ungrouped(b, m: Match):
    x, norm = b.reshape(m["x"], shape=m.root.result.type.shape), m.named["norm"]
    return b.group_norm(x, groups=_groups(m), epsilon=view(norm).epsilon)


def _neutral(m: Match) -> str | None:
    ones, zeros = (m.view.constant(m[n]) for n in ("ones", "zeros"))
    same = ones is not None and zeros is not None and np.all(ones == 1) and np.all(zeros == 0)
    return None if same else "the groups already have a scale and a bias"


_GROUPS = (
    Rule("reshape(layer_norm(groups of x)) => group_norm(x)",
         op("reshape", op("layer_norm", "x", name="norm", one_use=True)),
         _ungrouped, all_of(wide, fits(_groups)), TOLERANCE),
    Rule("reshape(instance_norm(groups of x)) => group_norm(x)",
         op("reshape", op("instance_norm", "x", "ones", "zeros", name="norm", one_use=True,
                          where=lambda o: typed.InstanceNorm.of(o).axis == 1)),
         _ungrouped, all_of(wide, _neutral, fits(_groups)), TOLERANCE),
)  # fmt: skip


# -- batch norm ------------------------------------------------------------------------------------

_BATCH = ("scale", "bias", "average", "variance")
_BATCH_CENTRED = op("sub", "x", Any_("average", views))
_BATCH_INVERSE = _reciprocal_deviation(Any_("variance", views))
_BATCH_FORMS = (
    op("mul", op("div", _BATCH_CENTRED, _deviation(Any_("variance", views))), "scale"),
    op("mul", op("mul", _BATCH_CENTRED, _BATCH_INVERSE), "scale"),
    op("mul", _BATCH_CENTRED, _scaled(_BATCH_INVERSE)),
)


def _statistics(m: Match) -> tuple[int, list[Parameter]]:
    """Return the channel axis and the four parameters of a batch norm."""
    axis_map = AxisMap(m)
    axes = identity_axes(m.root.result.type.shape)
    for axis in range(len(axes)) if len(axes) > 1 else ():
        candidates = [axis_map.parameter(m[name], (axes[axis],)) for name in _BATCH]
        found = [p for p in candidates if p is not None]
        if len(found) == len(candidates) and any(flatten_axes(p.axes) for p in found):
            return axis, found
    raise MatchFailure(
        "the statistics, scale and bias do not vary along a single axis, the channels"
    )


def _batch_norm(b, m: Match):
    axis, parameters = _statistics(m)
    built = [p.build(b) for p in parameters]
    return b.batch_norm(m["x"], *built, axis=axis, epsilon=scalar_value(m, "eps"))


_BATCH_RULES = tuple(
    Rule(
        "(x - mean) * rsqrt(variance + eps) * scale + bias => batch_norm(x)",
        op("add", form, "bias"),
        _batch_norm,
        all_of(wide, fits(_statistics)),
        TOLERANCE,
    )
    for form in _BATCH_FORMS
)

RULES = (
    *_standardised(),
    *_root_mean_square(),
    *map(_scale_rule, _norms_with("scale?")),
    *map(_bias_rule, _norms_with("bias?")),
    _instance_rule(),
    *_GROUPS,
    *_BATCH_RULES,
)
