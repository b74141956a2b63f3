"""Forms of one_hot and of the losses: per element first, then reduced.

A loss over classes is raised only if out-of-range targets mean the same: forms that return NaN or 0
for them (``jnp.take_along_axis``, a product with ``jax.nn.one_hot``) are not changed.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from core_compiler.ir import DType, Op, Value
from core_compiler.ops import typed
from core_compiler.ops.base import view
from core_compiler.ops.rules import BOOL, I64, INTEGERS, NUMBERS, UNSIGNED
from core_compiler.passes.axes import AxisMap, Parameter, compact, covers, identity_axes, rearrange
from core_compiler.passes.recompose.spelling import reshapes, scalar_value, single
from core_compiler.passes.rules import (
    MOVES,
    Any_,
    Check,
    Const,
    Match,
    MatchFailure,
    Rule,
    all_of,
    either,
    fits,
    op,
    wide,
)

# -- one_hot ---------------------------------------------------------------------------------------


def _represents_integers_to(dtype: DType, largest: int) -> bool:
    """Return whether a dtype represents every integer from 0 to ``largest``."""
    if dtype.is_float:
        return largest <= int(2 / float(ml_dtypes.finfo(dtype.numpy).eps))
    return dtype.is_integer and largest < 1 << (dtype.bits - (dtype.kind == "int"))


def _indices(m: Match) -> Parameter:
    """Return the index, repeated over the last axis, along which the other side counts."""
    shape, axis_map = m.root.result.type.shape, AxisMap(m)
    found, wanted = m["x"].type.dtype, m.root.result.type.dtype
    if found not in INTEGERS:
        raise MatchFailure(f"the index is {found.name}, but one_hot takes integers")
    if wanted not in NUMBERS and wanted is not BOOL:
        raise MatchFailure(f"one_hot does not support {wanted.name}")
    if shape and not _represents_integers_to(found, max(shape[-1] - 1, 0)):
        raise MatchFailure(f"{found.name} does not represent {shape[-1] - 1}: it wraps")
    for index, count in (("x", "y"), ("y", "x")):
        found = axis_map.parameter(m[index], identity_axes(shape)[:-1]) if shape else None
        if found is not None and _is_iota(m, m[count]):
            return found
    raise MatchFailure("neither side is 0, 1, 2, ... along the last axis")


def _is_iota(m: Match, value: Value) -> bool:
    """Return whether a value is 0, 1, 2.. along its last axis, and constant along the others."""
    axes = identity_axes(value.type.shape)
    found = compact(value, axes, m.view)
    if found.array is not None:
        return found.axes == axes[-1:] and np.array_equal(
            found.array, np.arange(value.type.shape[-1])
        )
    counted = typed.Iota.match(m.view.producer(found.value))
    return counted is not None and (found.axes[counted.axis],) == axes[-1:]


def _one_hot(b, m: Match):
    classes = m.root.result.type.shape[-1]
    return b.one_hot(_indices(m).build(b), classes=classes, dtype=m.root.result.type.dtype)


# -- negative log likelihood -----------------------------------------------------------------------

UI64 = UNSIGNED[-1]
#: No target has this value: nothing is ignored.
_IGNORE_NOTHING = -(2**63)

_TARGETS = Any_("t")
_IGNORE = Const(
    "ignore", lambda a: a.dtype.kind == "i" and a.size > 0 and _is_uniform(a), "one integer"
)
_ZERO = Const("zero", lambda a: bool(np.all(a == 0)), "zero")
_COUNTS = op("ne", _TARGETS, _IGNORE, name="counts")
_KEPT = op("select", _COUNTS, _TARGETS, _ZERO, through=reshapes)
_NO_TARGET_IGNORED = either(
    op("select", op("lt", "t", _ZERO), op("add", "t", single("classes")), "t", name="wrapped"), "t"
)


def _is_uniform(array: np.ndarray) -> bool:
    return bool(np.all(array == array.flat[0]))


def _picked(targets) -> object:
    return op("neg", op("take_along", "x", targets, name="pick", through=reshapes))


def _picks_classes(m: Match) -> str | None:
    """Check that the element along axis 1 is selected by the target of each position."""
    pick, x = typed.TakeAlong.of(m.named["pick"]), m["x"].type
    wanted = (x.shape[0], 1, *x.shape[2:])
    if pick.axis != 1 or x.rank < 2:
        return "the classes are not axis 1"
    if pick.result.type.shape != wanted:
        return "it does not pick one class at each position"
    return None


def _fits_i64(m: Match) -> str | None:
    """Refuse ui64 targets: losses read them as i64, where the largest are negative."""
    return "the targets are ui64" if m["t"].type.dtype is UI64 else None


def _never_ignored(m: Match) -> str | None:
    """Check that no target equals the value used for "nothing is ignored"."""
    if m["t"].type.dtype is not I64 or "wrapped" in m.named:
        return None
    return "a target may equal ignore_index"


def _pick_loss(b, m: Match):
    shape = (m["x"].type.shape[0], *m["x"].type.shape[2:])
    indices, ignore = m["t"], _IGNORE_NOTHING
    if "counts" in m.named:
        ignore = scalar_value(m, "ignore")
    elif "wrapped" in m.named:
        indices = m.named["wrapped"].result
    targets = indices if indices.type.shape == shape else b.reshape(indices, shape=shape)
    made = b.nll_loss(m["x"], targets, reduction="none", ignore_index=ignore)
    root = m.root.result.type.shape
    return made if shape == root else b.reshape(made, shape=root)


def _losses(reduction: str, *kinds: str):
    """Return a pattern for a loss of one of these kinds that has one use."""
    return either(
        *(
            op(
                kind,
                name="loss",
                one_use=True,
                where=lambda o: view(o).reduction == reduction,
                through=reshapes,
            )
            for kind in kinds
        )
    )


_CLASSES = ("nll_loss", "cross_entropy")
_LOSSES = _losses("none", *_CLASSES)
_SUM = op("reduce_sum", _LOSSES, name="sum")


def _over_all_axes(name: str, otherwise: str) -> Check:
    """Return a check that a sum or mean is over all axes, in the order of the contract."""

    def check(m: Match) -> str | None:
        total: typed.ReduceSum | typed.Mean = view(m.named[name])
        if total.axes != tuple(range(total.x.type.rank)):
            return otherwise
        ordered = isinstance(total, typed.ReduceSum) and total.orders
        return "the sum has an explicit accumulation order" if ordered else None

    return check


_all_axes = _over_all_axes("sum", "the sum is not over all positions")


def _reduced(reduction: str):
    def rewrite(b, m: Match):
        loss = m.named["loss"]
        return b.op(loss.kind, loss.operands, **{**loss.attributes, "reduction": reduction})

    return rewrite


def _counts_all(m: Match) -> str | None:
    """Check that the divisor is the count of the same targets that are not ignored."""
    loss, counts = m.named["loss"], m.named["counts"]
    if len(loss.operands) > 2:
        return "the loss is weighted: its mean divides by the weights"
    if scalar_value(m, "ignore") != view(loss).ignore_index:
        return "the count ignores another target value than the loss"
    if _skip_reshapes(m, counts.operands[0]) is not _skip_reshapes(m, loss.operands[1]):
        return "the counted targets are not the targets of the loss"
    every = tuple(range(counts.result.type.rank))
    if typed.ReduceSum.of(m.named["count"]).axes != every:
        return "not all targets are counted"
    return _counts_exactly(m)


def _counts_exactly(m: Match) -> str | None:
    """Check that the dtype of the count and that of the result represent the number of targets."""
    count = m.named["count"]
    size = count.operands[0].type.elements
    for found in (count.result.type.dtype, m.root.result.type.dtype):
        if not _represents_integers_to(found, size):
            return f"{found.name} does not represent every count up to {size} targets"
    return None


def _divisor_is_count(inverse: bool):
    """Return a check that the divisor is the number of errors."""

    def check(m: Match) -> str | None:
        size, found = m.named["loss"].operands[0].type.elements, scalar_value(m, "n")
        given = m.array("n").dtype.type(1 / size if inverse else size)
        return None if found == given else f"{found:.6g} does not average {size} elements"

    return check


def _skip_reshapes(m: Match, value: Value) -> Value:
    """Return the value that a value is a reshape of."""
    seen: set[Value] = set()  # in an e-graph a value may be a reshape of itself
    producer: Op | None = m.view.producer(value)
    while producer is not None and reshapes(producer) and value not in seen:
        seen.add(value)
        value = producer.operands[0]
        producer = m.view.producer(value)
    return value


def _ignores_none(m: Match) -> str | None:
    ignored = view(m.named["loss"]).ignore_index
    return None if ignored == _IGNORE_NOTHING else f"the loss ignores targets of {ignored}"


def _weight_of_class(m: Match) -> str | None:
    """Check that the factor is one number per class, along axis 1."""
    shape = m["x"].type.shape
    found = compact(m["w"], identity_axes(shape), m.view) if m["w"].type.shape == shape else None
    if found is None or not covers([identity_axes(shape)[1]], found.axes):
        return "the weight is not one number per class"
    return None


def _weighted(b, m: Match):
    loss, classes = m.named["loss"], identity_axes(m["x"].type.shape)[1:2]
    found = compact(m["w"], identity_axes(m["x"].type.shape), m.view)
    weight = rearrange(b, found.build(b), found.axes, classes)
    return b.nll_loss(m["x"], loss.operands[1], weight, **loss.attributes)


def _counts_weights(m: Match) -> str | None:
    """Check that the divisor is the sum of the weights that the loss used."""
    loss, shape = m.named["loss"], m["w"].type.shape
    if len(loss.operands) < 3:
        return "the loss has no weight"
    if scalar_value(m, "ignore") != view(loss).ignore_index:
        return "the count ignores another target value than the loss"
    if _skip_reshapes(m, m["t"]) is not _skip_reshapes(m, loss.operands[1]):
        return "the counted targets are not the targets of the loss"
    loss_weights, counted_weights = (
        m.view.constant(loss.operands[2]),
        compact(m["w"], identity_axes(shape), m.view),
    )
    if counted_weights.value is not loss.operands[2] and (
        loss_weights is None
        or counted_weights.array is None
        or not np.array_equal(counted_weights.array, loss_weights)
    ):
        return "the counted weights are not the weights of the loss"
    if typed.TakeAlong.of(m.named["pick"]).axis != 1 or not covers(
        [identity_axes(shape)[1]], counted_weights.axes
    ):
        return "the counted weights are not the weights of the loss"
    return _all_axes(m)


_COUNTED_WEIGHTS = op(
    "reduce_sum", op("select", op("ne", Any_("t", reshapes), _IGNORE),
                     op("take_along", "w", op("select", op("ne", Any_("t", reshapes), _IGNORE),
                                              Any_("t", reshapes), _ZERO, through=reshapes),
                        name="pick", through=reshapes), _ZERO), name="sum",
)  # fmt: skip
_COUNT = op(
    "cast", op("reduce_sum", op("cast", op("ne", "counted", _IGNORE, name="counts")), name="count")
)


def _cross_entropy(b, m: Match):
    loss = m.named["loss"]
    shape = loss.operands[0].type.shape
    x = m["logits"] if m["logits"].type.shape == shape else b.reshape(m["logits"], shape=shape)
    return b.cross_entropy(x, *loss.operands[1:], **loss.attributes)


def _over_classes(m: Match) -> str | None:
    """Check that the softmax is over the classes, axis 1 of the loss's operand."""
    soft, x = m.named["soft"], m.named["loss"].operands[0].type
    shape, axis = list(soft.result.type.shape), typed.LogSoftmax.of(soft).axis
    classes = shape.pop(axis)
    if classes != x.shape[1] or [d for d in shape if d != 1] != [
        d for i, d in enumerate(x.shape) if i != 1 and d != 1
    ]:
        return "the softmax is not over the classes"
    before = [d for d in soft.result.type.shape[:axis] if d != 1]
    same = before == [d for d in x.shape[:1] if d != 1]
    return None if same else "the softmax is not over the classes"


# -- label smoothing -------------------------------------------------------------------------------

_SHARES = op("log_softmax", "x", name="soft", through=reshapes)
_IGNORED = op("eq", "t", _IGNORE)
_UNIFORM = op(
    "reduce_sum",
    op("select", _IGNORED, _ZERO, op("neg", op("reduce_sum", _SHARES, name="classes"))),
    name="sum",
)
_OTHERS = op("cast", op("reduce_sum", op("cast", op("not", _IGNORED)), name="count"))
_HARD = op("nll_loss", _SHARES, "t", name="loss", where=lambda o: view(o).reduction == "mean")
_SMOOTHED = op(
    "add",
    op("mul", _HARD, single("kept")),
    op("mul", op("div", _UNIFORM, _OTHERS), single("share")),
)


def _smooths(m: Match) -> str | None:
    """Check that the remaining probability is spread evenly over all classes."""
    soft, every = typed.LogSoftmax.of(m.named["soft"]), (0, *range(2, m["x"].type.rank))
    if soft.axis != 1 or typed.ReduceSum.of(m.named["classes"]).axes != (1,):
        return "the classes are not axis 1"
    if scalar_value(m, "ignore") != view(m.named["loss"]).ignore_index:
        return "the count ignores another target value than the loss"
    whole_sum = tuple(range(len(every)))
    if m.named["sum"]["axes"] != whole_sum or m.named["count"]["axes"] != whole_sum:
        return "not all positions are counted"
    inexact = _counts_exactly(m)
    if inexact is not None:
        return inexact
    spread = scalar_value(m, "share") * m["x"].type.shape[1]
    return (
        None if abs(scalar_value(m, "kept") + spread - 1) < 1e-6 else "the shares do not sum to 1"
    )


def _smoothed(b, m: Match):
    loss = m.named["loss"].attributes
    return b.cross_entropy(m["x"], m["t"], label_smoothing=1 - scalar_value(m, "kept"), **loss)


# -- mean squared error ----------------------------------------------------------------------------

_ERROR = op("sub", "x", "y")
_SQUARES = op("mul", _ERROR, _ERROR)


def _two_values(m: Match) -> str | None:
    """Check that both are separate values: a subtracted mean makes a variance."""
    for name in "xy":
        producer = m.view.producer(m[name])
        if producer is not None and producer.kind in MOVES:
            inner = producer.operands[0].type.elements
            if inner != m[name].type.elements:
                return f"{name} is broadcast: this computes a variance"
    return None


def _mse(reduction: str):
    return lambda b, m: b.mse_loss(m["x"], m["y"], reduction=reduction)


RULES = (
    Rule("cast(index == 0, 1, 2..) => one_hot(index)", op("cast", op("eq", "x", "y")), _one_hot,
         fits(_indices)),
    Rule("-x[target], 0 where it is ignored => nll_loss(x, target)",
         op("select", _COUNTS, _picked(_KEPT), _ZERO), _pick_loss,
         all_of(wide, _fits_i64, _picks_classes)),
    Rule("-x[target] => nll_loss(x, target)",
         op("neg", op("take_along", "x", _NO_TARGET_IGNORED, name="pick", through=reshapes)),
         _pick_loss, all_of(wide, _fits_i64, _picks_classes, _never_ignored)),
    Rule("total loss / counted => mean loss", op("div", _losses("sum", *_CLASSES), _COUNT),
         _reduced("mean"), all_of(wide, _counts_all), 1e-6),
    Rule("nll_loss(x * w, t) => nll_loss(x, t, w)",
         op("nll_loss", op("mul", "x", "w", one_use=True), "t", name="loss",
            where=lambda o: view(o).reduction != "mean"),
         _weighted, all_of(wide, _weight_of_class)),
    Rule("total loss / counted weights => mean loss",
         op("div", _losses("sum", *_CLASSES), _COUNTED_WEIGHTS), _reduced("mean"),
         all_of(wide, _counts_weights), 1e-6),
    Rule("mean(losses) => mean loss", op("mean", _LOSSES, name="sum"), _reduced("mean"),
         all_of(wide, _all_axes, _ignores_none), 1e-6),
    Rule("sum(losses) => total loss", _SUM, _reduced("sum"), all_of(wide, _all_axes)),
    *(Rule("nll_loss(log_softmax(x)) => cross_entropy(x)",
           op("nll_loss", op("log_softmax", "logits", name="soft", one_use=True, through=reshapes),
              *others, name="loss"), _cross_entropy, all_of(wide, _over_classes))
      for others in (("t",), ("t", "weight"))),
    Rule("(1 - s) * nll_loss(x, t) + s * mean over classes => cross_entropy(x, t) smoothed",
         _SMOOTHED, _smoothed, all_of(wide, _smooths), 1e-6),
    Rule("mean((x - y)**2) => mse_loss(x, y)", op("mean", _SQUARES, name="mean"), _mse("mean"),
         all_of(wide, _over_all_axes("mean", "it is not over all elements"), _two_values), 3e-7),
    Rule("sum((x - y)**2) => mse_loss(x, y)", op("reduce_sum", _SQUARES, name="sum"), _mse("sum"),
         all_of(wide, _over_all_axes("sum", "it is not over all elements"), _two_values)),
    *(Rule("total squares / n => mean loss", op(kind, _losses("sum", "mse_loss"), single("n")),
           _reduced("mean"), all_of(wide, _divisor_is_count(kind == "mul")), 3e-7)
      for kind in ("div", "mul")),
)  # fmt: skip
