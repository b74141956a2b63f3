"""Functions, arithmetic, comparisons and selects: a node each."""

from __future__ import annotations

from core_compiler.exporters.pt2.table import BOOL, Emitter, Node, core
from core_compiler.ir.views import OpView
from core_compiler.ops import typed

#: Core ops -> the ATen functions of one tensor.
_UNARY = {
    **{
        name: name
        for name in (
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "ceil",
            "cos",
            "cosh",
            "erf",
            "erfc",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "log",
            "log10",
            "log1p",
            "log2",
            "neg",
            "relu",
            "round",
            "rsqrt",
            "sigmoid",
            "silu",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
        )
    },
    "bitnot": "bitwise_not",
    "is_inf": "isinf",
    "is_nan": "isnan",
    "not": "logical_not",
}
#: Core ops -> the ATen functions of two tensors, and whether a number may be the second.
_BINARY = {
    "add": ("add.Tensor", True),
    "sub": ("sub.Tensor", True),
    "mul": ("mul.Tensor", True),
    "max": ("maximum", False),
    "min": ("minimum", False),
    "atan2": ("atan2", False),
    "and": ("bitwise_and.Tensor", False),
    "or": ("bitwise_or.Tensor", False),
    "xor": ("bitwise_xor.Tensor", False),
    "shl": ("bitwise_left_shift.Tensor", False),
    "shr": ("bitwise_right_shift.Tensor", False),
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def second(g: Emitter, op: OpView, x: Node, y: Node) -> Node | int | float:
    """Return the second operand as a number if it is a constant of one that torch can read."""
    kind = op.operands[1].type.dtype
    number = g.number(op.operands[1])
    return y if number is None or kind is BOOL or g.dtype(x) is not kind else number


def _enter_unary(name: str, function: str) -> None:
    core(name)(lambda g, op, x: g.call(function, x))


def _enter_binary(name: str, function: str, takes_numbers: bool) -> None:
    def handler(g, op, a, b):
        return g.call(function, a, second(g, op, a, b) if takes_numbers else b)

    core(name)(handler)


def _enter_comparison(name: str) -> None:
    def handler(g, op, a, b):
        other = second(g, op, a, b)
        return g.call(f"{name}.{'Tensor' if other is b else 'Scalar'}", a, other)

    core(name)(handler)


for _name, _function in _UNARY.items():
    _enter_unary(_name, _function)
for _name, (_function, _takes_numbers) in _BINARY.items():
    _enter_binary(_name, _function, _takes_numbers)
for _name in _COMPARISONS:
    _enter_comparison(_name)


@core("sign", when=lambda g, op: op.x.type.dtype.is_integer)
def sign(g, op: typed.Sign, x):
    """Emit the sign of integers; that of a NaN is 0 in torch."""
    return g.call("sign", x)


@core("select")
def select(g, op: typed.Select, p, a, b):
    return g.where(p, a, b)


@core("clamp")
def clamp(g, op: typed.Clamp, x):
    if op.low is None and op.high is None:
        return x
    return g.call("clamp", x, op.low, op.high)


@core("stop_gradient")
def stop_gradient(g, op: typed.StopGradient, x):
    return x
