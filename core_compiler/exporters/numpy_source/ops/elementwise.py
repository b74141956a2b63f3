"""Elementwise ops.  NumPy's and ml_dtypes' functions round 16-bit floats once, as core ops do."""

from __future__ import annotations

from core_compiler.exporters.numpy_source.table import F32, I32, cast, core, in_f32
from core_compiler.exporters.numpy_source.text import dtype_text, is_native, number
from core_compiler.ir import DType
from core_compiler.ops import typed

#: Core ops that are functions of NumPy.
_FUNCTIONS = {
    "abs": "abs", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
    "atan": "arctan", "atanh": "arctanh", "cbrt": "cbrt", "ceil": "ceil", "cos": "cos",
    "cosh": "cosh", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor",
    "is_finite": "isfinite", "is_inf": "isinf", "is_nan": "isnan", "log": "log", "log10": "log10",
    "log1p": "log1p", "log2": "log2", "round": "rint", "sign": "sign", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip
_FUNCTIONS_OF_TWO = {
    "atan2": "arctan2",
    "max": "maximum",
    "min": "minimum",
    "mod": "mod",
    "rem": "fmod",
}
_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
#: Core ops that are helper functions, in f32 at least.
_HELPERS = ("erf", "erfc", "sigmoid")


def _enter_function(name: str, function: str) -> None:
    core(name)(lambda w, op, x: f"np.{function}({x})")


def _enter_function_of_two(name: str, function: str) -> None:
    core(name)(lambda w, op, a, b: f"np.{function}({a}, {b})")


def _enter_operator(name: str, operator: str) -> None:
    core(name)(lambda w, op, a, b: f"{a} {operator} {b}")


def _enter_helper(name: str) -> None:
    core(name)(in_f32(lambda w, op, x: w.call(name, x)))


for _name, _function in _FUNCTIONS.items():
    _enter_function(_name, _function)
for _name, _function in _FUNCTIONS_OF_TWO.items():
    _enter_function_of_two(_name, _function)
for _name, _operator in _OPERATORS.items():
    _enter_operator(_name, _operator)
for _name in _HELPERS:
    _enter_helper(_name)


@core("neg")
def neg(w, op, x):
    return f"-{x}"


@core("not", "bitnot")
def inverted(w, op, x):
    return f"~{x}"


@core("rsqrt")
@in_f32
def rsqrt(w, op, x):
    return f"1 / np.sqrt({x})"


@core("div")
def div(w, op, a, b):
    return f"{a} / {b}" if op.result.type.dtype.is_float else w.call("divide", a, b)


@core("pow")
def pow_(w, op, a, b):
    """Use NumPy's power for integers with a literal, non-negative exponent, since it wraps."""
    if op.result.type.dtype.is_float or b.isdecimal():
        return f"{a} ** {b}"
    return w.call("power", *map(w.typed, op.operands))


@core("shr")
def shr(w, op, a, b):
    if b.isdecimal() and int(b) < op.result.type.dtype.bits:
        return f"{a} >> {b}"
    return w.call("shift_right", *map(w.typed, op.operands))


@core("select")
def select(w, op, p, a, b):
    return f"np.where({p}, {a}, {b})"


@core("cast")
def cast_(w, op: typed.Cast, x):
    source, wanted = op.x.type.dtype, op.dtype
    if source is wanted:
        return x
    if wanted.kind == "bool":
        return f"{x} != 0" if not source.is_float or source.bits > 8 else f"{cast(x, F32)} != 0"
    if source.is_float and wanted.is_integer:
        return w.call("to_integer", x, dtype_text(wanted), *_limits(wanted))
    if source.name == "f64" and wanted.is_float and not is_native(wanted):
        x = w.call("to_odd", x)  # ml_dtypes converts through f32
    if wanted.is_float and wanted.bits <= 8 and op.saturate:
        wide = x if source.is_float and source.bits >= 32 else cast(x, F32)
        return w.call("saturated", wide, dtype_text(wanted), number(_largest(wanted), F32))
    if {source.bits, wanted.bits} & {2, 4} and source.is_integer and wanted.is_integer:
        x = cast(x, I32)  # ml_dtypes has no casts between these
    return cast(x, wanted)


def _limits(kind: DType) -> tuple[int, int]:
    if kind.kind == "uint":
        return 0, (1 << kind.bits) - 1
    return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1


def _largest(kind: DType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(kind.numpy).max)


@core("bitcast")
def bitcast(w, op: typed.Bitcast, x):
    return x if op.x.type.dtype is op.dtype else f"{x}.view({dtype_text(op.dtype)})"
