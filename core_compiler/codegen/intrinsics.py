"""What the functions that generated source calls have in common on all targets.

They are created on demand from their names (:class:`Namespace`), and are intrinsics: Numba calls
them with the types of their arguments, and they emit LLVM instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError

from core_compiler.codegen.contract import Contract, element_type
from core_compiler.codegen.values import NUMBA, Vector, dtype_of, numba_type
from core_compiler.numerics.primitives import boolean

#: ``(types of the arguments) -> (signature, code generator)``.
Typed = Callable[[Sequence[types.Type]], tuple[Any, Callable]]
_LOGIC = {"and": "and_", "or": "or_", "xor": "xor"}


class Namespace(dict):
    """The globals of one generated module; a missing name is created on first use by ``make``.

    ``owner`` is the module's name and ``buffers`` the number of buffers that it distinguishes.
    """

    def __init__(self, owner: str, buffers: int):
        super().__init__(range=range, min=min, max=max, abs=abs, inf=inf, nan=nan, boolean=boolean)
        self.update(NUMBA)
        self.owner, self.buffers = owner, buffers

    def __missing__(self, name: str) -> Callable:
        self[name] = made = self.make(name)
        return made

    def make(self, name: str) -> Callable:
        """Return the function ``name``; KeyError if there is none."""
        raise NotImplementedError


@dataclass(frozen=True)
class Intrinsics:
    """The intrinsics of one target.

    ``intrinsic`` is the target's decorator, ``contract`` has its functions, and ``splat(builder,
    value, width)`` emits a vector with ``value`` in all lanes.
    """

    intrinsic: Callable[[Callable], Callable]
    contract: Contract
    splat: Callable[[Any, Any, int], Any]

    def of_arity(self, name: str, arity: int, typed: Typed) -> Callable:
        """Return the intrinsic ``name`` of ``arity`` arguments."""
        forms: dict[int, Callable] = {
            0: lambda typing: typed(()),
            1: lambda typing, a: typed((a,)),
            2: lambda typing, a, b: typed((a, b)),
            3: lambda typing, a, b, c: typed((a, b, c)),
        }
        function = forms[arity]
        function.__name__ = function.__qualname__ = name
        return self.intrinsic(function)

    def splat_form(self, dtype: str, width: int) -> Callable:
        """Return ``splat_f32x16(x)``: all lanes x."""

        def typed(arguments):
            def codegen(context, builder, sig, values):
                (value,) = values
                if dtype == "bool" and value.type != element_type("bool"):
                    value = builder.trunc(value, element_type("bool"))
                return self.splat(builder, value, width)

            return Vector(dtype, width)(NUMBA[dtype]), codegen

        return self.of_arity("splat", 1, typed)

    def lanes_form(self, dtype: str, width: int) -> Callable:
        """Return ``lanes_i64x16()``: 0, 1, 2, ..."""

        def typed(arguments):
            def codegen(context, builder, sig, values):
                return ir.Constant(ir.VectorType(element_type(dtype), width), list(range(width)))

            return Vector(dtype, width)(), codegen

        return self.of_arity("lanes", 0, typed)

    def logic(self, name: str, width: int | None) -> Callable | None:
        """Return ``and_bool(p, q)``, ``not_bool(p)`` and the like, or None for other names."""
        stem, _, dtype = name.rpartition("_")
        if dtype != "bool" or stem not in (*_LOGIC, "not", "select"):
            return None
        kind = numba_type("bool", width)
        arity = {"not": 1, "select": 3}.get(stem, 2)

        def typed(arguments):
            def codegen(context, builder, sig, values):
                if stem == "not":
                    return builder.not_(values[0])
                if stem == "select":
                    return builder.select(*values)
                return getattr(builder, _LOGIC[stem])(*values)

            taken = [kind] * arity
            if stem == "select" and dtype_of(arguments[0])[1] is None:
                taken[0] = numba_type("bool", None)  # one condition for all lanes
            return kind(*taken), codegen

        return self.of_arity(name, arity, typed)

    def traced(self, name: str, width: int | None) -> Callable:
        """Return a contract function without loops, on scalars or on ``width`` lanes.

        Raise KeyError for a name that is not the contract's.
        """
        if name not in self.contract.functions:
            raise KeyError(
                f"generated code calls {name!r}, which is not a function of the contract"
            )

        def typed(arguments):
            kinds = [dtype_of(t) for t in arguments]
            dtypes = tuple(d for d, _ in kinds)
            if any(w not in (None, width) for _, w in kinds):
                raise TypingError(f"{name} of vectors of different widths")
            if not self.contract.is_traceable(name, dtypes):
                raise TypingError(f"{name} has no straight-line code for {dtypes}")
            result = numba_type(self.contract.result_dtype(name, dtypes), width)

            def codegen(context, builder, sig, values):
                given = [
                    self.splat(builder, v, width) if width and w is None else v
                    for v, (_, w) in zip(values, kinds, strict=True)
                ]
                return self.contract.emit(builder, name, given, dtypes, width)

            return result(*map(types.unliteral, arguments)), codegen

        return self.of_arity(name, self.contract.arity(name), typed)
