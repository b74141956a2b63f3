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
    Parameter,
    Places,
    covers,
    flat,
    length,
    rearrange,
    spread_over,
    whole,
)
from core_compiler.passes.recompose.spelling import OVERFLOWS, TOLERANCE, number, single, worth
from core_compiler.passes.rules import (
    Any_,
    Match,
    Rule,
    Unfit,
    all_of,
    either,
    fits,
    op,
    views,
    wide,
)

#: Tolerance of x r - m r for (x - m) r: their common part cancels, here up to some 50 deviations.
_APART = 2e-5
#: Tolerance of mean(x*x) - mean**2 for the variance: the mean's square cancels, up to some 20
#: deviations.
_RAW = 1e-4

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
        _RAW,
    ),
}


def _deviation(variance):
    return op("sqrt", op("add", variance, _EPSILON, through=views), through=views)


def _inverse(variance):
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


def _apart(inverse):
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
Which = Callable[[tuple[int, ...], Axis, bool], Sequence[_Norm]]


def _first_of_last(shape: tuple[int, ...], taken: Axis) -> int | None:
    """Return the first of the last axes if ``taken`` is exactly these, else None."""
    axes = whole(shape)
    return next((a for a in reversed(range(len(shape))) if flat(axes[a:]) == taken), None)


def _last_axes(kind: str) -> Which:
    """Return the recogniser of a normalisation of ``kind`` over the last axes."""

    def which(shape: tuple[int, ...], taken: Axis, scaled: bool) -> Sequence[_Norm]:
        axis = _first_of_last(shape, taken)
        if axis is None:
            raise Unfit("the mean is not over the last axes")
        return (_Norm(kind, shape, whole(shape)[axis:], {"axis": axis}),)

    return which


def _channels(shape: tuple[int, ...], taken: Axis, scaled: bool) -> Sequence[_Norm]:
    """Return instance norm of the channels, or group norm of channels that a reshape has split."""
    axes = whole(shape)
    if not scaled and _first_of_last(shape, taken) is not None:
        raise Unfit("the mean is over the last axes: it is a layer norm")
    kept = [a for a in range(1, len(shape)) if axes[a] and not covers([taken], [axes[a]])]
    rest = [a for i, a in enumerate(axes) if i not in (0, *kept)]
    if len(shape) < 3 or len(kept) != 1 or spread_over(rest) != spread_over([taken]):
        raise Unfit("the mean is not over all axes except the batch and the channels")
    (axis,) = kept
    found = [_Norm("instance_norm", shape, (axes[axis],), {"axis": axis})]
    if axis < len(shape) - 1 and axes[axis + 1]:
        joined = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        group = {"axis": axis, "groups": shape[axis]}
        found.insert(scaled, _Norm("group_norm", joined, axes[axis : axis + 2], group))
    return found


def _read(m: Match, which: Which) -> tuple[_Norm, list[Parameter]]:
    """Return the normalisation of a match, with its scale and bias if it has them."""
    places = Places(m)
    taken = [
        places.taken(m.named[n], _source(m, m.named[n])) for n in ("mean", "square") if n in m.named
    ]
    if taken[0] != taken[-1]:
        raise Unfit("the reductions are over different axes")
    names = [name for name in ("scale", "bias") if name in m.values]
    if names == ["bias"]:
        raise Unfit("it has a bias but no scale")
    for norm in which(m.root.result.type.shape, taken[0], bool(names)):
        asked = [places.parameter(m[name], norm.over) for name in names]
        found = [p for p in asked if p is not None]
        if len(found) == len(asked):
            return norm, found
    raise Unfit("its scale or bias varies along axes that are not normalised")


def _source(m: Match, reduction) -> Axes | None:
    """Return the axes of a reduction's operand, which is computed from ``x`` elementwise."""
    same = reduction.operands[0].type.shape == m["x"].type.shape == m.root.result.type.shape
    return whole(m.root.result.type.shape) if same else None


def _raise(which: Which):
    def rewrite(b, m: Match):
        norm, parameters = _read(m, which)
        built = [_flattened(b, p, norm) for p in parameters]
        x = _reshaped(b, m["x"], norm.shape)
        made = b.op(f"core.{norm.kind}", (x, *built), epsilon=worth(m, "eps"), **norm.attributes)
        return _reshaped(b, made, m.root.result.type.shape)

    return rewrite


def _check(which: Which):
    return all_of(wide, fits(lambda m: _read(m, which)))


def _flattened(b, parameter: Parameter, norm: _Norm) -> Value:
    """Return a parameter in the op's shape: a group norm has one channel axis."""
    made = parameter.build(b)
    if norm.kind in ("layer_norm", "rms_norm"):
        return made
    return _reshaped(b, made, (length(flat(parameter.wanted)),))


def _reshaped(b, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.type.shape == shape else b.reshape(value, shape=shape)


def _standardised() -> tuple[Rule, ...]:
    rules = []
    kinds: tuple[tuple[str, Which], ...] = (
        ("layer_norm(x)", _last_axes("layer_norm")),
        ("instance or group norm of x", _channels),
    )
    for said, (variance, tolerance) in _VARIANCES.items():
        deviation, inverse = _deviation(variance), _inverse(variance)
        forms = (
            (f"(x - mean) / sqrt({said} + eps)", op("div", _CENTRED, deviation), tolerance),
            (f"(x - mean) * rsqrt({said} + eps)", op("mul", _CENTRED, inverse), tolerance),
            (
                f"(x - mean) * (rsqrt({said} + eps) * scale)",
                op("mul", _CENTRED, _scaled(inverse)),
                tolerance,
            ),
            (f"x * a - mean * a, a = rsqrt({said} + eps)", _apart(inverse), max(tolerance, _APART)),
        )
        rules += [
            Rule(
                f"{form} => {kind}",
                pattern,
                _raise(which),
                _check(which),
                cost,
                except_for=OVERFLOWS,
            )
            for form, pattern, cost in forms
            for kind, which in kinds
        ]
    return tuple(rules)


def _root_mean_square() -> tuple[Rule, ...]:
    square = _mean_square("x")
    forms = (
        ("x / sqrt(mean(x*x) + eps)", op("div", "x", _deviation(square))),
        ("x * rsqrt(mean(x*x) + eps)", op("mul", "x", _inverse(square))),
        ("x * (rsqrt(mean(x*x) + eps) * scale)", op("mul", "x", _scaled(_inverse(square)))),
    )
    which = _last_axes("rms_norm")
    return tuple(
        Rule(
            f"{form} => rms_norm(x)",
            pattern,
            _raise(which),
            _check(which),
            TOLERANCE,
            except_for=OVERFLOWS,
        )
        for form, pattern in forms
    )


# -- scale and bias --------------------------------------------------------------------------------


_CHANNEL = frozenset({"group_norm", "instance_norm"})


def _parameter(m: Match, name: str, kind: str) -> tuple[Parameter, Axes]:
    """Return the scale or bias of the normalisation of ``kind`` being built, and its axes."""
    norm, places = m.named["norm"], Places(m)
    axes = places[norm.result]
    if axes is None or spread_over(axes) != spread_over(whole(m.root.result.type.shape)):
        raise Unfit("the normalised value is broadcast")
    axis = view(norm).axis
    wanted, each = axes[axis:], "normalised element"
    if kind in _CHANNEL:
        channel = axis if norm.kind == f"core.{kind}" else 1
        wanted, each = (axes[channel],), "channel"
    found = places.parameter(m[name], wanted)
    if found is None:
        raise Unfit(f"the {name} is not one number per {each}")
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
        return rearrange(b, made, axes, whole(m.root.result.type.shape))

    return fits(lambda m: _parameter(m, name, kind)), rewrite


def _norms_with(operand: str) -> list[str]:
    """Return the normalisations that may have an ``operand``."""
    return [
        op.name for op in REGISTRY.values() if operand in op.operands and op.name.endswith("_norm")
    ]


def _scale_rule(kind: str) -> Rule:
    norm = op(
        kind, "x", name="norm", where=lambda o: len(o.operands) == 1, once=True, through=views
    )
    check, rewrite = _affine("scale", kind)
    return Rule(
        f"{kind}(x) * scale => {kind}(x, scale)",
        op("mul", norm, "scale"),
        rewrite,
        all_of(wide, check),
        TOLERANCE,
    )


def _bias_rule(kind: str) -> Rule:
    norm = op(kind, "x", "factor", name="norm", once=True, through=views)
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
        once=True,
        through=views,
        where=lambda o: len(o.operands) == 1 and typed.LayerNorm.of(o).axis == 2,
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
    layer, axes = typed.LayerNorm.match(m.named["norm"]), Places(m)[m.named["norm"].result]
    shape = m.root.result.type.shape
    if axes is None or len(shape) < 3:
        raise Unfit("it is not a reshape to [N, C, spatial..]")
    kept = flat(axes[: layer.axis if layer is not None else 2])
    batch, channels = shape[:2]
    groups = length(kept) // batch if batch else 0
    wanted = flat([whole(shape)[0], ((1, channels // max(groups, 1), groups),)])
    if not 1 < groups < channels or channels % groups or kept != wanted:
        raise Unfit("the elements normalised together are not a group of channels")
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
         op("reshape", op("layer_norm", "x", name="norm", once=True,
                          where=lambda o: len(o.operands) == 1)),
         _ungrouped, all_of(wide, fits(_groups)), TOLERANCE),
    Rule("reshape(instance_norm(groups of x)) => group_norm(x)",
         op("reshape", op("instance_norm", "x", "ones", "zeros", name="norm", once=True,
                          where=lambda o: typed.InstanceNorm.of(o).axis == 1)),
         _ungrouped, all_of(wide, _neutral, fits(_groups)), TOLERANCE),
)  # fmt: skip


# -- batch norm ------------------------------------------------------------------------------------

_BATCH = ("scale", "bias", "average", "variance")
_BATCH_CENTRED = op("sub", "x", Any_("average", views))
_BATCH_INVERSE = _inverse(Any_("variance", views))
_BATCH_FORMS = (
    op("mul", op("div", _BATCH_CENTRED, _deviation(Any_("variance", views))), "scale"),
    op("mul", op("mul", _BATCH_CENTRED, _BATCH_INVERSE), "scale"),
    op("mul", _BATCH_CENTRED, _scaled(_BATCH_INVERSE)),
)


def _statistics(m: Match) -> tuple[int, list[Parameter]]:
    """Return the channel axis and the four parameters of a batch norm."""
    places = Places(m)
    axes = whole(m.root.result.type.shape)
    for axis in range(len(axes)) if len(axes) > 1 else ():
        asked = [places.parameter(m[name], (axes[axis],)) for name in _BATCH]
        found = [p for p in asked if p is not None]
        if len(found) == len(asked) and any(flat(p.axes) for p in found):
            return axis, found
    raise Unfit("the statistics, scale and bias do not vary along a single axis, the channels")


def _batch_norm(b, m: Match):
    axis, parameters = _statistics(m)
    built = [p.build(b) for p in parameters]
    return b.batch_norm(m["x"], *built, axis=axis, epsilon=worth(m, "eps"))


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
