"""The contract's functions for generated CUDA source, by name.

Straight-line functions are intrinsics that emit their own LLVM IR, on scalars or lane by lane.
Functions with loops and branches (``fmod``, integer powers, the reduction of large f64 angles) are
device functions that numba-cuda compiles from the same source, on scalars only.
"""

from __future__ import annotations

import functools
import types as pytypes
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.cuda.extending import intrinsic

from core_compiler.codegen.cuda.leaves import CONTRACT
from core_compiler.codegen.cuda.values import NUMBA, dtype_of, numba_type
from core_compiler.numerics.functions import instantiate_functions, integer_power
from core_compiler.numerics.primitives import PRIMITIVES, boolean

_I32 = ir.IntType(32)


def spread(builder, value, width: int):
    """Return ``value`` in all lanes of a vector."""
    made = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    for lane in range(width):
        made = builder.insert_element(made, value, ir.Constant(_I32, lane))
    return made


_LOGIC = {"and": "and_", "or": "or_", "xor": "xor"}


def contract_function(name: str, width: int | None):
    """Return the contract function as an intrinsic of its arity, or as a device function."""
    stem, _, dtype = name.rpartition("_")
    if dtype == "bool" and stem in (*_LOGIC, "not", "select"):
        return _logic(stem, width)
    if name in looped():
        return looped()[name]
    if name not in CONTRACT.functions:
        raise KeyError(f"generated code calls {name!r}, which is not a function of the contract")
    return _traced(name, width, CONTRACT.arity(name))


def _logic(stem: str, width: int | None):
    kind = numba_type("bool", width)
    arity = {"not": 1, "select": 3}.get(stem, 2)

    def typed(arguments):
        def codegen(context, builder, sig, values):
            if stem == "not":
                return builder.not_(values[0])
            if stem == "select":
                return builder.select(*values)
            return getattr(builder, _LOGIC[stem])(*values)

        return kind(*[kind] * arity), codegen

    return _of_arity(f"{stem}_bool", arity, typed)


def _traced(name: str, width: int | None, arity: int):
    def typed(arguments):
        kinds = [dtype_of(t) for t in arguments]
        dtypes = tuple(d for d, _ in kinds)
        if not CONTRACT.is_traceable(name, dtypes):
            raise TypingError(f"{name} has no straight-line code for {dtypes}")
        result = numba_type(CONTRACT.result_dtype(name, dtypes), width)

        def codegen(context, builder, sig, values):
            given = [
                spread(builder, v, width) if width and w is None else v
                for v, (_, w) in zip(values, kinds, strict=True)
            ]
            return CONTRACT.emit(builder, name, given, dtypes, width)

        return result(*map(types.unliteral, arguments)), codegen

    return _of_arity(name, arity, typed)


def _of_arity(name: str, arity: int, typed: Callable):
    forms = {
        1: lambda typing, a: typed((a,)),
        2: lambda typing, a, b: typed((a, b)),
        3: lambda typing, a, b, c: typed((a, b, c)),
    }
    function = forms[arity]
    function.__name__ = function.__qualname__ = name
    return intrinsic(function)


@functools.cache
def looped() -> dict[str, Callable]:
    """Return the functions without straight-line code, as device functions."""
    found: dict[str, Callable] = {}

    def compile_(source: pytypes.FunctionType) -> Callable:
        name = source.__name__
        if _is_straight(source, found):
            return (
                _traced(name, None, CONTRACT.arity(name)) if name in CONTRACT.functions else source
            )
        found[name] = _device(source)
        return found[name]

    names = {
        name: _traced(name, None, CONTRACT.arity(name))
        for name in PRIMITIVES
        if name in CONTRACT.functions and name not in NUMBA and name != "boolean"
    }
    names |= {**NUMBA, "boolean": boolean}
    instantiate_functions(compile_, names)
    for dtype in NUMBA:
        if dtype[0] in "iu":
            found[f"power_{dtype}"] = _device(integer_power(dtype, names))
    return found


def _device(source: Callable) -> Callable:
    from numba import cuda

    return cuda.jit(device=True, inline="always")(source)


def _is_straight(source: pytypes.FunctionType, looped: dict[str, Callable]) -> bool:
    """Return whether a function can be traced.

    If tracing is impossible on values of its dtype, return whether it has no branch, reads no table
    and calls no such function.
    """
    import dis

    name = source.__name__
    dtype = name.rpartition("_")[2]
    if name in CONTRACT.functions and dtype in NUMBA:
        try:
            return CONTRACT.is_traceable(name, (dtype,) * CONTRACT.arity(name))
        except (AssertionError, AttributeError):
            pass  # a helper with arguments of several dtypes, or a pair as result
    used = [source.__globals__.get(word) for word in source.__code__.co_names]
    mine = {id(f) for f in looped.values()}
    if any(isinstance(v, np.ndarray) or id(v) in mine for v in used):
        return False
    return not any(
        "JUMP" in step.opname or step.opname == "FOR_ITER" for step in dis.get_instructions(source)
    )
