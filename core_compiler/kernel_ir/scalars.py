"""The contract function of each kernel scalar op.

The interpreter and all code generators read this table, so that an op has a single meaning.

A symbol is a name of ``functions.NAMESPACE``. f16, bf16, the fp8 and fp4 formats and the integers
of 2 and 4 bits have no arithmetic. Their values are represented as codes in an i32: a float's as in
``narrow``, an integer's two's complement bits with zeros above them, as in memory.
"""

from __future__ import annotations

from core_compiler.ir import DType
from core_compiler.support.errors import InternalError

#: Kernel op -> primitive, if the names differ, for floats.
_FLOAT = {
    "round": "round_even",
    "max": "maximum",
    "min": "minimum",
    "rem": "fmod",
    "mod": "remainder",
}
#: The same for integers.
_INTEGER = {
    "max": "maximum",
    "min": "minimum",
    "mod": "floor_mod",
    "floordiv": "floor_div",
    "bitnot": "not",
}
#: Comparisons that are another one with the operands exchanged.
SWAPPED = {"gt": "lt", "ge": "le"}
#: Ops whose function branches on its values (long division, a table), so lanes run one by one.
_ONE_AT_A_TIME = {
    "rem": ("f32", "f64"),
    "mod": ("f32", "f64"),
    "sin": ("f64",),
    "cos": ("f64",),
    "tan": ("f64",),
}


def has_lanes(name: str, lane) -> bool:
    """Return whether a scalar op can run on the lanes of a vector of ``lane`` at once."""
    return name != "ipow" and getattr(lane, "name", "") not in _ONE_AT_A_TIME.get(name, ())


def code_name(dtype: DType) -> str:
    """Return a dtype's name in symbols: ``f32``, ``u8``, ``f8e4m3fn``, ``bool``."""
    if dtype.kind == "bool":
        return "bool"
    return dtype.name.lower().replace("ui", "u")


def is_narrow(dtype) -> bool:
    """Return whether this is a float of 16 bits or fewer."""
    return isinstance(dtype, DType) and dtype.is_float and dtype.bits <= 16


def is_narrow_integer(dtype) -> bool:
    """Return whether this is an integer of fewer bits than a byte."""
    return isinstance(dtype, DType) and dtype.is_integer and dtype.bits < 8


def is_code(dtype) -> bool:
    """Return whether values of this dtype are represented as codes in an i32."""
    return is_narrow(dtype) or is_narrow_integer(dtype)


#: Bits of the largest integers below which a float holds all of them.
_SIGNIFICANT = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def is_widened(source, target) -> bool:
    """Return whether every value of dtype ``source`` is one of ``target``, which is wider."""
    if not (isinstance(source, DType) and isinstance(target, DType)):
        return False
    if source.is_float and target.is_float:
        return source.bits < target.bits
    if source.is_integer and target.is_float:
        magnitude = source.bits - (source.kind != "uint")
        return source.bits < target.bits and magnitude <= _SIGNIFICANT.get(target.name, 0)
    return (
        source.is_integer
        and target.is_integer
        and (
            integer_range(target)[0] <= integer_range(source)[0]
            and integer_range(source)[1] < integer_range(target)[1]
        )
    )


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the lowest and highest value of an integer dtype."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def symbol(name: str, dtype: DType) -> str:
    """Return the symbol of scalar op ``name``: ``symbol("max", f32)`` is ``maximum_f32``.

    For comparisons gt and ge, use ``SWAPPED`` and exchange the operands.
    """
    if is_code(dtype):
        wide = "f32" if dtype.is_float else "i32"
        raise InternalError(f"kernel.{name} on {dtype}: cast to {wide} first")
    table = _FLOAT if dtype.is_float else _INTEGER
    return f"{table.get(name, name)}_{code_name(dtype)}"
