"""Which contract function a kernel scalar op is: the one table that the interpreter and all code
generators read, so that an op cannot mean two things.

A symbol is a name of ``functions.NAMESPACE``.  f16, bf16 and the fp8 and fp4 formats have no
arithmetic; a value of theirs travels as its code in an i32 (see ``narrow``).
"""

from __future__ import annotations

from core_compiler.errors import InternalError
from core_compiler.ir import DType

#: kernel op -> primitive, where the names differ, for floats.
_FLOAT = {
    "round": "round_even", "max": "maximum", "min": "minimum", "rem": "fmod", "mod": "remainder",
}  # fmt: skip
#: the same for integers.
_INTEGER = {
    "max": "maximum", "min": "minimum", "mod": "floor_mod", "floordiv": "floor_div",
    "bitnot": "not",
}  # fmt: skip
#: comparisons that are another one with the operands exchanged.
SWAPPED = {"gt": "lt", "ge": "le"}
#: Ops whose function decides on its values (long division, a table), and so runs one at a time.
_ONE_AT_A_TIME = {"rem": ("f32", "f64"), "mod": ("f32", "f64"), "sin": ("f64",), "cos": ("f64",),
                  "tan": ("f64",)}  # fmt: skip


def has_lanes(name: str, lane) -> bool:
    """Whether a scalar op can run on the lanes of a vector of ``lane`` at once."""
    return name != "ipow" and getattr(lane, "name", "") not in _ONE_AT_A_TIME.get(name, ())


def code_name(dtype: DType) -> str:
    """The contract's spelling of a dtype in symbols: ``f32``, ``u8``, ``f8e4m3fn``, ``bool``."""
    if dtype.kind == "bool":
        return "bool"
    return dtype.name.lower().replace("ui", "u")


def is_narrow(dtype) -> bool:
    """Whether values of this dtype travel as codes."""
    return isinstance(dtype, DType) and dtype.is_float and dtype.bits <= 16


def symbol(name: str, dtype: DType) -> str:
    """The contract's symbol of scalar op ``name`` on ``dtype``: ``symbol("max", f32)`` is
    ``maximum_f32``.  Comparisons gt, ge: take ``SWAPPED`` and exchange the operands."""
    if is_narrow(dtype):
        raise InternalError(f"kernel.{name} on {dtype}: cast to f32 first")
    table = _FLOAT if dtype.is_float else _INTEGER
    return f"{table.get(name, name)}_{code_name(dtype)}"
