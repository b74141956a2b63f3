"""The common part, on all targets, of the functions that generated source calls.

They are created on demand from their names (:class:`Namespace`), and are intrinsics: Numba calls
them with the types of their arguments, and they emit LLVM instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError

from core_compiler.codegen.contract import Contract, element_type
from core_compiler.codegen.memory import disjoint, narrow, widen
from core_compiler.codegen.values import NUMBA, Pointer, Vector, dtype_of, numba_type
from core_compiler.numerics.primitives import boolean

#: ``(types of the arguments) -> (signature, code generator)``.
Typed = Callable[[Sequence[types.Type]], tuple[Any, Callable]]
#: LLVM's base and index of an element.
ElementAddress = tuple[Any, Any]
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


class Intrinsics:
    """The intrinsics of one target, which says how it accesses memory and spreads a number."""

    def __init__(self, intrinsic: Callable[[Callable], Callable], contract: Contract):
        """``intrinsic`` is the decorator of the target's Numba; ``contract`` has its functions."""
        self.intrinsic, self.contract = intrinsic, contract
        #: Stem -> ``(dtype, lanes or None) -> intrinsic``, of the functions on values.
        self.forms: dict[str, Callable[[str, Any], Callable]] = {
            "splat": self._splat,
            "word": self._word,
            "lanes": self._lanes,
            "load": self._load,
            "load_some": self._load_some,
            "gather": self._gather,
            "store": self._store,
            "store_some": self._store_some,
            "scatter": self._scatter,
        }

    # -- what a target decides ---------------------------------------------------------------------

    def splat(self, builder: Any, value: Any, width: int) -> Any:
        """Emit a vector with ``value`` in all lanes."""
        raise NotImplementedError

    def element_address(
        self, builder: Any, pointer: Pointer, at: ElementAddress, width: int | None
    ) -> tuple:
        """Emit the address of ``width`` elements (None: of one); return it and its alignment."""
        raise NotImplementedError

    def load_lanes(
        self,
        builder: Any,
        pointer: Pointer,
        at: ElementAddress,
        width: int,
        count: Any,
        step: Any = None,
    ) -> Any:
        """Emit a load of the lanes below ``count``, ``step`` elements apart; the others are 0.

        Lanes that are not loaded are not accessed. The result is as memory holds it or as a value.
        """
        raise NotImplementedError

    def store_lanes(
        self,
        builder: Any,
        pointer: Pointer,
        at: ElementAddress,
        raw: Any,
        count: Any,
        step: Any = None,
    ) -> None:
        """Emit a store of the lanes of ``raw`` below ``count``, ``step`` elements apart."""
        raise NotImplementedError

    # -- vectors in memory -------------------------------------------------------------------------

    def _load(self, dtype: str, width: int | None) -> Callable:
        """Return ``load_f32x16(p, i)``: lanes i, i+1, ..."""

        def typed(arguments):
            pointer, _ = arguments

            def codegen(context, builder, sig, values):
                element_address, align = self.element_address(
                    builder, pointer, (values[0], values[1]), width
                )
                loaded = builder.load(element_address, align=align)
                disjoint(builder, pointer, loaded)
                return widen(builder, loaded, pointer, width)

            return numba_type(pointer.value, width)(pointer, types.int64), codegen

        return self.of_arity("load", 2, typed)

    def _load_some(self, dtype: str, width: int) -> Callable:
        """Return ``load_some_f32x16(p, i, count)``."""

        def typed(arguments):
            pointer, *_ = arguments

            def codegen(context, builder, sig, values):
                base, index, count = values
                loaded = self.load_lanes(builder, pointer, (base, index), width, count)
                return widen(builder, loaded, pointer, width)

            return Vector(pointer.value, width)(pointer, types.int64, types.int64), codegen

        return self.of_arity("load_some", 3, typed)

    def _gather(self, dtype: str, width: int) -> Callable:
        """Return ``gather_f32x16(p, i, step, count)``: lanes i, i+step, ..."""

        def typed(arguments):
            pointer, *_ = arguments

            def codegen(context, builder, sig, values):
                base, index, step, count = values
                loaded = self.load_lanes(builder, pointer, (base, index), width, count, step)
                return widen(builder, loaded, pointer, width)

            return Vector(pointer.value, width)(pointer, *[types.int64] * 3), codegen

        return self.of_arity("gather", 4, typed)

    def _store(self, dtype: str, width: int | None) -> Callable:
        """Return ``store_f32x16(p, i, v)``."""

        def typed(arguments):
            pointer, *_ = arguments

            def codegen(context, builder, sig, values):
                base, index, value = values
                element_address, align = self.element_address(
                    builder, pointer, (base, index), width
                )
                raw = narrow(builder, value, pointer, width)
                disjoint(builder, pointer, builder.store(raw, element_address, align=align))
                return context.get_dummy_value()

            return types.none(pointer, types.int64, numba_type(pointer.value, width)), codegen

        return self.of_arity("store", 3, typed)

    def _store_some(self, dtype: str, width: int) -> Callable:
        """Return ``store_some_f32x16(p, i, v, count)``."""

        def typed(arguments):
            pointer, *_ = arguments

            def codegen(context, builder, sig, values):
                base, index, value, count = values
                raw = narrow(builder, value, pointer, width)
                self.store_lanes(builder, pointer, (base, index), raw, count)
                return context.get_dummy_value()

            kind = Vector(pointer.value, width)
            return types.none(pointer, types.int64, kind, types.int64), codegen

        return self.of_arity("store_some", 4, typed)

    def _scatter(self, dtype: str, width: int) -> Callable:
        """Return ``scatter_f32x16(p, i, v, step, count)``."""

        def typed(arguments):
            pointer, *_ = arguments

            def codegen(context, builder, sig, values):
                base, index, value, step, count = values
                raw = narrow(builder, value, pointer, width)
                self.store_lanes(builder, pointer, (base, index), raw, count, step)
                return context.get_dummy_value()

            kind = Vector(pointer.value, width)
            return types.none(pointer, types.int64, kind, types.int64, types.int64), codegen

        return self.of_arity("scatter", 5, typed)

    # -- values ------------------------------------------------------------------------------------

    def of_arity(self, name: str, arity: int, typed: Typed) -> Callable:
        """Return the intrinsic ``name`` of ``arity`` arguments."""
        forms: dict[int, Callable] = {
            0: lambda typing: typed(()),
            1: lambda typing, a: typed((a,)),
            2: lambda typing, a, b: typed((a, b)),
            3: lambda typing, a, b, c: typed((a, b, c)),
            4: lambda typing, a, b, c, d: typed((a, b, c, d)),
            5: lambda typing, a, b, c, d, e: typed((a, b, c, d, e)),
        }
        function = forms[arity]
        function.__name__ = function.__qualname__ = name
        return self.intrinsic(function)

    def _splat(self, dtype: str, width: int) -> Callable:
        """Return ``splat_f32x16(x)``: all lanes x."""

        def typed(arguments):
            def codegen(context, builder, sig, values):
                (value,) = values
                if dtype == "bool" and value.type != element_type("bool"):
                    value = builder.trunc(value, element_type("bool"))
                return self.splat(builder, value, width)

            return Vector(dtype, width)(NUMBA[dtype]), codegen

        return self.of_arity("splat", 1, typed)

    def _word(self, dtype: str, width: int) -> Callable:
        """Return ``word_u8x4(v)``: the bits of all lanes as one i32, lane 0 lowest."""

        def typed(arguments):
            def codegen(context, builder, sig, values):
                return builder.bitcast(values[0], ir.IntType(32))

            return types.int32(Vector(dtype, width)), codegen

        return self.of_arity("word", 1, typed)

    def _lanes(self, dtype: str, width: int) -> Callable:
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
