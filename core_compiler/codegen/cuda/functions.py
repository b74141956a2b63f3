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

from core_compiler.codegen.cuda.lanes import INTRINSICS
from core_compiler.codegen.cuda.leaves import CONTRACT
from core_compiler.codegen.values import NUMBA
from core_compiler.numerics.functions import instantiate_functions, integer_power
from core_compiler.numerics.primitives import PRIMITIVES, boolean


def contract_function(name: str, width: int | None) -> Callable:
    """Return the contract function as an intrinsic of its arity, or as a device function."""
    logic = INTRINSICS.logic(name, width)
    if logic is not None:
        return logic
    return (
        untraceable_functions()[name]
        if name in untraceable_functions()
        else INTRINSICS.traced(name, width)
    )


@functools.cache
def untraceable_functions() -> dict[str, Callable]:
    """Return the functions without straight-line code, as device functions."""
    found: dict[str, Callable] = {}

    def compile_(source: pytypes.FunctionType) -> Callable:
        name = source.__name__
        if _is_straight(source, found):
            return INTRINSICS.traced(name, None) if name in CONTRACT.functions else source
        found[name] = _device(source)
        return found[name]

    names = {
        name: INTRINSICS.traced(name, None)
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


def _is_straight(source: pytypes.FunctionType, untraceable_functions: dict[str, Callable]) -> bool:
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
    mine = {id(f) for f in untraceable_functions.values()}
    if any(isinstance(v, np.ndarray) or id(v) in mine for v in used):
        return False
    return not any(
        "JUMP" in step.opname or step.opname == "FOR_ITER" for step in dis.get_instructions(source)
    )
