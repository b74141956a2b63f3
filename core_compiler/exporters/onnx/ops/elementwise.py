"""Functions of floats, comparisons and selects: one node each."""

from __future__ import annotations

from core_compiler.exporters.onnx.table import core
from core_compiler.ir import dtype
from core_compiler.support.onnx_names import BINARY, UNARY

F64 = dtype("f64")

#: Core ops that a name is not enough for, here or in the files of their families.
_FORMS = frozenset(
    {
        "and", "bitnot", "div", "hard_swish", "mish", "or", "relu", "sign", "softplus", "softsign",
        "xor",
    }
)  # fmt: skip


def _enter_unary(name: str, kind: str) -> None:
    core(name)(lambda g, op, x: g.emit(kind, x))


def _enter_binary(name: str, kind: str) -> None:
    core(name)(lambda g, op, a, b: g.emit(kind, a, b))


for _kind, _name in {**UNARY, "IsInf": "is_inf"}.items():
    if _name not in _FORMS:
        _enter_unary(_name, _kind)
for _kind, _name in {**BINARY, "Max": "max", "Min": "min"}.items():
    if _name not in _FORMS:
        _enter_binary(_name, _kind)


@core("select")
def select(g, op, p, a, b):
    return g.where(p, a, b)


@core("sign")
def sign(g, op, x):
    """Restore NaN, whose sign ONNX does not specify."""
    made = g.emit("Sign", x)
    if not g.guards or not x.dtype.is_float:
        return made
    return g.where(g.is_nan(x), x, made)


@core("erfc", when=lambda g, op: op.x.type.dtype is F64)
def erfc(g, op, x):
    """Compute 1 - Erf(x), with Erf's absolute accuracy: the composition has that of f32."""
    return g.emit("Sub", g.scalar(1, x.dtype), g.emit("Erf", x))
