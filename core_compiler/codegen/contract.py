"""The contract's scalar functions as LLVM IR, traced from their Python source.

The functions of ``kernels.functions`` are branch-free Python over named primitives. Executed on
values that emit LLVM instructions, the source generates its own code: for scalars and, lane by
lane, for vectors, without Numba's type inference. The few functions with loops cannot be traced and
are called as Numba functions, on scalars only.

Each target has its own :class:`Contract`: the same source over the target's leaves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from typing_extensions import override

from core_compiler.numerics import functions, primitives
from core_compiler.numerics.primitives import FLOATS, NUMBERS, composed_primitives

_CODE = {numba_type: name for name, numba_type in NUMBERS.items()} | {primitives.boolean: "bool"}


class Untraceable(Exception):
    """Raised if a contract function branches on a value, so that it has no straight-line code."""


class _TracingState:
    """The current instruction builder and number of lanes (None: scalars) of tracing."""

    builder: Any = None  # an ir.IRBuilder during tracing
    width: int | None = None


class Traced:
    """A value of a contract function during tracing."""

    __slots__ = ("dtype", "value")

    def __init__(self, value: ir.Value, dtype: str):
        self.value, self.dtype = value, dtype

    def __bool__(self):
        raise Untraceable("a branch on a value")

    __index__ = __iter__ = __bool__
    __hash__ = None  # type: ignore[assignment]  # Python's own spelling of unhashable

    def _compare(self, operator: str, other) -> Traced:
        a, b = self.value, _lift(other, self.dtype).value
        builder = _TracingState.builder
        if self.dtype in FLOATS:
            ordered = operator != "!="
            test = builder.fcmp_ordered if ordered else builder.fcmp_unordered
            return Traced(test(operator, a, b), "bool")
        signed = self.dtype[0] == "i"
        test = builder.icmp_signed if signed else builder.icmp_unsigned
        return Traced(test(operator, a, b), "bool")

    def __lt__(self, other):
        return self._compare("<", other)

    def __le__(self, other):
        return self._compare("<=", other)

    def __gt__(self, other):
        return self._compare(">", other)

    def __ge__(self, other):
        return self._compare(">=", other)

    @override
    def __eq__(self, other):
        return self._compare("==", other)

    @override
    def __ne__(self, other):
        return self._compare("!=", other)

    def _logic(self, name: str, other) -> Traced:
        value = getattr(_TracingState.builder, name)(self.value, _lift(other, self.dtype).value)
        return Traced(value, self.dtype)

    def __and__(self, other):
        return self._logic("and_", other)

    def __or__(self, other):
        return self._logic("or_", other)

    def __xor__(self, other):
        return self._logic("xor", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


def element_type(dtype: str) -> ir.Type:
    """Return the LLVM type of a value of a contract dtype (narrow floats are i32 codes)."""
    if dtype == "bool":
        return ir.IntType(1)
    return {"f32": ir.FloatType(), "f64": ir.DoubleType()}.get(dtype) or ir.IntType(int(dtype[1:]))


def lanes_of(dtype: str, width: int | None) -> ir.Type:
    return element_type(dtype) if width is None else ir.VectorType(element_type(dtype), width)


def _literal(dtype: str) -> Callable:
    def make(number) -> Traced:
        if isinstance(number, Traced):
            return number
        number = bool(number) if dtype == "bool" else number
        kind, width = element_type(dtype), _TracingState.width
        if dtype not in FLOATS:
            number = int(number)
        if width is None:
            return Traced(ir.Constant(kind, number), dtype)
        return Traced(ir.Constant(ir.VectorType(kind, width), [number] * width), dtype)

    return make


def _lift(x, dtype: str) -> Traced:
    return x if isinstance(x, Traced) else _literal(dtype)(x)


class Contract:
    """The contract's functions for one target.

    ``leaves`` maps each primitive to its argument types, result type, dtype and emitter, like
    ``kernels.primitives.LEAF_TABLE``. ``replacements`` returns functions that this target computes
    in another way, with the same bits, given all functions by name.
    """

    def __init__(
        self,
        leaves: Mapping[str, tuple],
        replacements: Callable[[Mapping[str, Callable]], Mapping[str, Callable]] = lambda names: {},
    ):
        self._leaves, self._replacements = leaves, replacements

    @functools.cached_property
    def functions(self) -> dict[str, Callable]:
        """Return every function of the contract by name, over :class:`Traced` values."""
        names: dict[str, Callable] = {name: _leaf(row) for name, row in self._leaves.items()}
        names |= {name: _literal(name) for name in NUMBERS} | {"boolean": _literal("bool")}
        names |= composed_primitives(lambda f: f, names)
        names |= functions.instantiate_functions(lambda f: f, names)
        return {**names, **self._replacements(names)}

    def arity(self, name: str) -> int:
        function = self.functions[name]
        if hasattr(function, "arity"):
            return function.arity
        return len(inspect.signature(function).parameters)

    def emit(self, builder, name: str, arguments, dtypes, width: int | None) -> ir.Value:
        """Emit contract function ``name`` on ``arguments`` of contract ``dtypes``."""
        with _tracing(builder, width):
            given = [Traced(v, d) for v, d in zip(arguments, dtypes, strict=True)]
            return self.functions[name](*given).value

    @functools.cache  # noqa: B019  (a target has one contract, for the life of the process)
    def result_dtype(self, name: str, dtypes: tuple[str, ...]) -> str:
        """Return the result dtype of ``name`` on ``dtypes``; :class:`Untraceable` with loops."""
        kinds = [element_type(d) for d in dtypes]
        module = ir.Module("trace")
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "trace")
        builder = ir.IRBuilder(function.append_basic_block())
        with _tracing(builder, None):
            given = [Traced(v, d) for v, d in zip(function.args, dtypes, strict=True)]
            return self.functions[name](*given).dtype

    def is_traceable(self, name: str, dtypes: tuple[str, ...]) -> bool:
        """Return whether the function has straight-line code, and so can run lane by lane."""
        try:
            self.result_dtype(name, dtypes)
        except (Untraceable, TypeError, IndexError):
            return False
        return True


def _leaf(row: tuple) -> Callable:
    arguments, result, dtype, emit = row
    wanted = [_CODE[t] for t in arguments]

    def call(*given) -> Traced:
        values = [_lift(x, w).value for x, w in zip(given, wanted, strict=True)]
        return Traced(emit(_TracingState.builder, dtype, *values), _CODE[result])

    call.arity = len(arguments)  # type: ignore[attr-defined]  # read by ``Contract.arity``
    return call


@contextmanager
def _tracing(builder: ir.IRBuilder, width: int | None):
    before = _TracingState.builder, _TracingState.width
    _TracingState.builder, _TracingState.width = builder, width
    try:
        yield
    finally:
        _TracingState.builder, _TracingState.width = before
