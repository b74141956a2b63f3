"""Node rewriting by a table of rules that reduce the number of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op, TensorType, Value, as_array, dtype
from core_compiler.onnx_level.builder import Nodes
from core_compiler.onnx_level.dialect import LEVEL, OVERRIDABLE, PREFIX, SINCE, constant
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import LEVELS, Any_, Const, Match, Node, Rule, View, apply_rules

_COMMUTE = frozenset(f"{PREFIX}{name}" for name in ("Add", "Mul", "And", "Or", "Xor", "Equal"))


class NodeView(View):
    """The view of a graph of nodes that rules match against."""

    @override
    def constant(self, value: Value, through=()):
        maker = self.producer(value)
        held = constant(maker)
        if maker is None or held is None or maker.get(OVERRIDABLE):
            return None
        return as_array(held, self.weights)

    @override
    def commutes(self, op: Op) -> bool:
        return op.kind in _COMMUTE

    @override
    def builder(self) -> Nodes:
        return Nodes(self.weights)


LEVELS["onnx"] = NodeView


@dataclass(frozen=True)
class RewriteNodes(Pass):
    """Rewrite nodes by a table of rules: remove no-ops and merge adjacent nodes."""

    half = "source"
    exact = False
    tolerance = "an affine map is folded into the convolution before it"
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        def edit(rewriter):
            apply_rules(rewriter, RULES, module.weights)

        return context.rewrite(module, edit, LEVEL)

    @override
    def table(self) -> tuple:
        return RULES


def node(op_type: str, *operands, name: str = "", where=None, one_use: bool = False) -> Node:
    """Return a pattern node of the default domain."""
    return Node(
        f"{PREFIX}{op_type}",
        tuple(Any_(o) if isinstance(o, str) else o for o in operands),
        name,
        where,
        one_use,
    )


# -- no-ops ----------------------------------------------------------------------------------------


def _take_input(b: Nodes, m: Match):
    return m["x"]


def _keeps_type(m: Match) -> str | None:
    """Require that the result has the type of its replacement; a declared type is kept."""
    if m.root.result.type is m["x"].type:
        return None
    return f"its type is {m.root.result.type}, the type of its input is {m['x'].type}"


def _keeps_known_type(m: Match) -> str | None:
    """Require in addition that the type is known; two unknown types may differ."""
    return _keeps_type(m) if isinstance(m["x"].type, TensorType) else "its type is unknown"


def _not_broadcast(m: Match) -> str | None:
    """Require that a constant ``c`` has no axis along which ``x`` would be repeated."""
    reason = _keeps_known_type(m)
    if reason is not None:
        return reason
    own, others = m["x"].type.shape, m.array("c").shape
    along = zip(reversed(own), reversed(others), strict=False)
    if len(others) > len(own) or any(size not in (1, mine) for mine, size in along):
        return f"its constant of shape {list(others)} may repeat the input"
    return None


def _one_result(m: Match) -> str | None:
    for value in m.root.results[1:]:
        if m.view.block.users(value) or m.view.block.is_output(value):
            return "its second result is used"
    return None


def _is_inference(op: Op) -> bool:
    return op.get("training_mode", 0) == 0


def _own_shape(m: Match) -> str | None:
    x, made = m["x"].type, m.root.results[0].type
    if x is made and isinstance(x, TensorType) and x.is_static:
        return None
    return f"{x} may differ from {made}"


def _dropout(m: Match) -> str | None:
    if len(m.root.operands) > 2:
        mode = m.view.constant(m.root.operands[2])
        if mode is None or mode.any():
            return "it may be in training mode"
    given, made = m.root.operands[0].type, m.root.results[0].type
    if given is not made:
        return f"its type is {made}, the type of its input is {given}"
    return _one_result(m)


def _perm(op: Op) -> tuple[int, ...] | None:
    given = op.get("perm")
    held = op.operands[0].type
    if given is None and isinstance(held, TensorType):
        return tuple(reversed(range(held.rank)))
    return given


def _is_identity(op: Op) -> bool:
    perm = _perm(op)
    return perm is not None and perm == tuple(range(len(perm)))


def _both_known(m: Match) -> str | None:
    known = all(_perm(m.named[n]) is not None for n in ("outer", "inner"))
    return None if known else "the rank of its input is unknown"


def _one_transpose(b: Nodes, m: Match):
    outer, inner = (_perm(m.named[n]) for n in ("outer", "inner"))
    assert outer is not None and inner is not None
    perm = tuple(inner[axis] for axis in outer)
    if perm == tuple(range(len(perm))) and m["x"].type is m.root.result.type:
        return m["x"]
    return b.one("Transpose", m["x"], version=m.root[SINCE], perm=perm, like=m.root.result.type)


def _whole_shape(m: Match) -> str | None:
    """Reject a shape with 0, which copies a size of the input, as the input changes."""
    shape = m.array("shape")
    if np.any(shape == 0) and not m.root.get("allowzero", 0):
        return "its shape copies a size of the input"
    return None


def _reshape(b: Nodes, m: Match):
    return b.one(
        "Reshape",
        m["x"],
        m["shape"],
        version=m.root[SINCE],
        like=m.root.result.type,
        allowzero=m.root.get("allowzero"),
    )


def _neutral(number: float):
    def test(array: np.ndarray) -> bool:
        flat = array.astype(np.float64, copy=False) if array.dtype.kind not in "biu" else array
        same = bool(np.all(flat == number)) and array.size > 0
        return same and (number != 0 or not np.any(np.signbit(flat)) or array.dtype.kind in "biu")

    return test


def _no_float(m: Match) -> str | None:
    held = m["x"].type
    if isinstance(held, TensorType) and not held.dtype.is_float:
        return _not_broadcast(m)
    return "-0 + 0 is +0"


_TRIVIAL = (
    Rule("Identity(x) => x", node("Identity", "x"), _take_input, _keeps_type),
    Rule("Cast(x) to its own type => x", node("Cast", "x"), _take_input, _keeps_known_type),
    Rule(
        "Dropout(x) => x",
        Node(f"{PREFIX}Dropout", (), "drop", _is_inference),
        lambda b, m: (m.root.operands[0], *m.root.results[1:]),
        _dropout,
    ),
    Rule(
        "Transpose in order => x",
        node("Transpose", "x", where=_is_identity),
        _take_input,
        _keeps_type,
    ),
    Rule(
        "Transpose(Transpose(x)) => one",
        node("Transpose", node("Transpose", "x", name="inner"), name="outer"),
        _one_transpose,
        _both_known,
    ),
    Rule(
        "Reshape(Reshape(x)) => Reshape(x)",
        node("Reshape", node("Reshape", "x", Any_("before"), one_use=True), Const("shape")),
        _reshape,
        _whole_shape,
    ),
    Rule(
        "Reshape to its own shape => x",
        node("Reshape", "x", Any_("shape")),
        _take_input,
        _own_shape,
    ),
    Rule(
        "Expand to its own shape => x", node("Expand", "x", Any_("shape")), _take_input, _own_shape
    ),
    Rule("Flatten to its own shape => x", node("Flatten", "x"), _take_input, _own_shape),
    Rule("Concat of one => x", node("Concat", "x"), _take_input, _keeps_type),
    Rule("Sum of one => x", node("Sum", "x"), _take_input, _keeps_type),
    Rule("Max of one => x", node("Max", "x"), _take_input, _keeps_type),
    Rule("Min of one => x", node("Min", "x"), _take_input, _keeps_type),
    Rule(
        "x * 1 => x",
        node("Mul", "x", Const("c", _neutral(1), "all ones")),
        _take_input,
        _not_broadcast,
    ),
    Rule(
        "x / 1 => x",
        node("Div", "x", Const("c", _neutral(1), "all ones")),
        _take_input,
        _not_broadcast,
    ),
    Rule(
        "x + 0 => x", node("Add", "x", Const("c", _neutral(0), "all zeros")), _take_input, _no_float
    ),
    Rule(
        "x - 0 => x",
        node("Sub", "x", Const("c", _neutral(0), "all +0")),
        _take_input,
        _not_broadcast,
    ),
    Rule("Not(Not(x)) => x", node("Not", node("Not", "x")), _take_input),
    Rule("Neg(Neg(x)) => x", node("Neg", node("Neg", "x")), _take_input),
    Rule(
        "Relu(Relu(x)) => Relu(x)",
        node("Relu", node("Relu", "x", name="inner")),
        lambda b, m: m.named["inner"].result,
    ),
)


# -- adjacent nodes --------------------------------------------------------------------------------


def _is_foldable_norm(op: Op) -> bool:
    return _is_inference(op) and op.get("spatial", 1) == 1


def _folded(b: Nodes, m: Match):
    """Fold the scale and shift of a normalisation into the convolution before it."""
    norm, conv = m.root, m.named["conv"]
    scale, bias, mean, var = (m.array(n).astype(np.float64) for n in ("s", "b", "m", "v"))
    weight = m.view.constant(conv.operands[1])
    own = m.view.constant(conv.operands[2]) if len(conv.operands) > 2 else np.zeros_like(mean)
    assert weight is not None and own is not None
    factor = scale / np.sqrt(var + np.float64(np.float32(norm.get("epsilon", 1e-5))))
    wide = factor.reshape(-1, *[1] * (weight.ndim - 1))
    kept = {n: v for n, v in conv.attributes.items() if not n.startswith(PREFIX)}
    held = weight.dtype
    made = b.one(
        "Conv",
        conv.operands[0],
        b.constant((weight * wide).astype(held)),
        b.constant(((own - mean) * factor + bias).astype(held)),
        version=conv[SINCE],
        like=norm.results[0].type,
        **kept,
    )
    return (made, *norm.results[1:])


def _conv_known(m: Match) -> str | None:
    conv = m.named["conv"]
    if any(m.view.constant(v) is None for v in conv.operands[1:]):
        return "the weights of the convolution are computed"
    return _one_wide_dtype(m) or _one_result(m)


def _one_wide_dtype(m: Match) -> str | None:
    """Require that weights and statistics are all f32 or all f64.

    Scaled weights are rounded to their dtype, which would change them too much in a narrow one.
    """
    arrays = [m.view.constant(v) for v in (*m.named["conv"].operands[1:], *m.root.operands[1:5])]
    first, *others = (dtype(a.dtype) for a in arrays if a is not None)
    if first.bits < 32:
        return f"the weights are {first.name}: scaling would round them again"
    other = next((d for d in others if d is not first), None)
    return None if other is None else f"the weights are {first.name}, but others are {other.name}"


def _padding(m: Match) -> str | None:
    conv = m.root
    pad = m.view.producer(conv.operands[0])
    if pad is None or pad.kind != f"{PREFIX}Pad":
        return "its input is not the result of Pad"
    if pad.get("mode", "constant") != "constant":
        return f"its padding mode is {pad.get('mode')}"
    if conv.get("auto_pad", "NOTSET") != "NOTSET":
        return "the convolution uses auto_pad"
    pads = _pads(m, pad)
    if pads is None:
        return "its padding is computed, or given for some axes only"
    half = len(pads) // 2
    if np.any(pads < 0) or np.any(pads[:2]) or np.any(pads[half : half + 2]):
        return "it pads the batch or the channels, or crops"
    value = m.view.constant(pad.operands[2]) if len(pad.operands) > 2 else np.zeros(1)
    if value is None or np.any(value != 0) or pad.get("value", 0.0) != 0.0:
        return "it does not pad with zeros"
    return None


def _pads(m: Match, pad: Op) -> np.ndarray | None:
    """Return the padding of a Pad, which is an attribute before version 11."""
    if pad[SINCE] < 11:
        return np.array(pad["pads"])
    return m.view.constant(pad.operands[1]) if len(pad.operands) < 4 else None


def _padded_conv(b: Nodes, m: Match):
    conv = m.root
    pad = m.view.producer(conv.operands[0])
    pads = None if pad is None else _pads(m, pad)
    assert pad is not None and pads is not None
    half = len(pads) // 2
    own = conv.get("pads", (0,) * (2 * (half - 2)))
    inside = [*pads[2:half], *pads[half + 2 :]]
    more = {n: v for n, v in conv.attributes.items() if not n.startswith(PREFIX) and n != "pads"}
    both = tuple(int(p + q) for p, q in zip(own, inside, strict=True))
    return b.one(
        "Conv",
        pad.operands[0],
        *conv.operands[1:],
        version=conv[SINCE],
        like=conv.result.type,
        pads=both,
        **more,
    )


def _matrix(m: Match) -> str | None:
    x, w, bias = (m[n].type for n in ("x", "w", "c"))
    if not all(isinstance(t, TensorType) for t in (x, w, bias)):
        return "its types are unknown"
    if x.rank != 2 or w.rank != 2:
        return "it is not a product of two matrices"
    if not x.dtype.is_float:
        return "Gemm takes floats"
    if bias.rank != 1 or bias.shape[0] != w.shape[1]:
        return "the addend is not a bias of the columns"
    return None


def _gemm(b: Nodes, m: Match):
    return b.one("Gemm", m["x"], m["w"], m["c"], version=m.root[SINCE], like=m.root.result.type)


_FUSIONS = (
    Rule("BatchNormalization(Conv(x)) => Conv(x)",
         node("BatchNormalization", Node(f"{PREFIX}Conv", (), "conv", None, True), Const("s"),
              Const("b"), Const("m"), Const("v"), where=_is_foldable_norm),
         _folded, _conv_known, tolerance=2e-5),
    Rule("Conv(Pad(x)) => Conv(x)",
         Node(f"{PREFIX}Conv"), _padded_conv, _padding),
    Rule("MatMul(x, w) + c => Gemm(x, w, c)",
         node("Add", node("MatMul", "x", "w", one_use=True), Const("c")),
         _gemm, _matrix, tolerance=2e-6),
)  # fmt: skip
RULES = (*_TRIVIAL, *_FUSIONS)
