"""The writer of TOSA: ops in MLIR's generic form, constants, casts, rank extension.

Versions of MLIR that differ in their pretty form of TOSA all read the generic form.  Dtypes and
shapes follow the specification's table for each op (TOSA 1.0; 64-bit integers, and gathers of
booleans, are part of 1.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from core_compiler.exporters.expansion import Composition
from core_compiler.exporters.mlir.context import (
    Context,
    Handler,
    Lacks,
    Shared,
    make_registrar,
)
from core_compiler.exporters.mlir.literals import constant_text, type_text
from core_compiler.exporters.mlir.text import Ref, Region
from core_compiler.ir import Dense, DType, Op, TensorType, Value, dtype, tensor
from core_compiler.ops import typed
from core_compiler.ops.traits import has_trait
from core_compiler.ops.zero_points import bytes_of

I1, I8, I16, I32, I64 = map(dtype, ("i1", "i8", "i16", "i32", "i64"))
F16, BF16, F32 = map(dtype, ("f16", "bf16", "f32"))
FP8 = (dtype("f8E4M3FN"), dtype("f8E5M2"))
#: The dtypes of TOSA's tensors; unsigned integers are written as signless ones of their width.
KNOWN = frozenset(
    {
        I1,
        F16,
        BF16,
        F32,
        *FP8,
        *(dtype(f"{sign}i{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)


@dataclass(frozen=True)
class Product:
    """A product in i32: ``emit`` returns it with a bias, a constant of rank 1.

    ``axis``: the axis of the result along which the bias lies, ``size`` the number of elements.
    """

    emit: Callable[[Ref], Ref]
    axis: int
    size: int


@dataclass(frozen=True)
class _ConstantData:
    """A constant: its array, the shape it is read in, and the name of its resource.

    The name is "" if the constant is written in the text.  ``once``: whether a single op uses it.
    """

    array: np.ndarray
    shape: tuple[Any, ...]
    label: str = ""
    once: bool = True


class Tosa(Context):
    """The translation of a function to TOSA.

    The type of a ref is the IR's, including unsigned ones.
    """

    NAME = "TOSA"
    KNOWN: ClassVar[frozenset[DType]] = KNOWN
    TABLE: ClassVar[dict[str, Handler]] = {}
    LACKS: ClassVar[dict[str, Lacks]] = {}
    COMPOSED: ClassVar[dict[str, Composition]] = {}

    def __init__(self, shared: Shared):
        super().__init__(shared)
        #: The operand of each broadcast, at the same rank, by the number of the result's ref.
        self.spread: dict[int, Ref] = {}
        #: Constants by the number of their ref.
        self.known: dict[int, _ConstantData] = {}
        #: The operand and the permutation of each transpose, by the number of the result's ref.
        self.turned: dict[int, tuple[Ref, tuple[int, ...]]] = {}
        #: The results of transposes, by the number of the operand's ref and the permutation.
        self.turns: dict[tuple[int, tuple[int, ...]], Ref] = {}
        #: The operand of each reshape, by the number of the result's ref.
        self.flat: dict[int, Ref] = {}
        #: Bytes before their top bit was flipped, by the number of the result's ref.
        self.flipped: dict[int, Ref] = {}
        #: How to emit a product again that starts from a bias, by the number of the result's ref.
        self.products: dict[int, Product] = {}

    @override
    def refused(self, op: Op) -> str:
        """Return why the op's types are unsupported; empty tensors may be constants or joined."""
        types = [v.type for v in (*op.operands, *op.results)]
        unknown = dict.fromkeys(t.dtype.name for t in types if t.dtype not in self.KNOWN)
        if unknown:
            return f"{' and '.join(unknown)} not supported"
        if op.kind == "core.concat":
            types = [v.type for v in op.results]
        joined = op.kind == "core.constant" and op.result not in self.given
        empty = not joined and any(0 in t.shape for t in types)
        return "tensors without elements not supported" if empty else ""

    # -- values ----------------------------------------------------------------------------------

    def array_of(self, value: Value) -> np.ndarray | None:
        """Return the array of a constant, or None."""
        op = self.makers.get(value)
        return None if op is None or op.kind != "core.constant" else self._array(op)

    def number_of(self, value: Value) -> float | None:
        """Return the number that all elements of a constant are, or None."""
        op = self.makers.get(value)
        if op is not None and has_trait(op, "view"):
            return self.number_of(op.operands[0])
        array = self.array_of(value)
        return None if array is None or array.size != 1 else array.item()

    def _array(self, op: Op) -> np.ndarray:
        return self.shared.array(typed.Constant.of(op).value)

    def bytes_in(self, op: Op) -> list[tuple[Value, int]]:
        """Return the bytes and the zero point of each operand of a product in i32, or nothing.

        TOSA multiplies bytes, and subtracts one zero point of their dtype from each operand.
        """
        found = [self.bytes_of(value) for value in op.operands]
        return [each for each in found if each is not None] if None not in found else []

    def bytes_of(self, value: Value) -> tuple[Value, int] | None:
        """Return the bytes that a value of i32 is, less one zero point of their dtype, or None."""
        found = bytes_of(value, self.makers.get, self._array)
        if found is None or value.type.dtype is not I32:
            return None
        zeros = {0} if found.zero is None else set() if found.held is None else {*found.held.flat}
        limits = np.iinfo(found.bytes_.type.dtype.numpy)
        if len(zeros) != 1 or not limits.min <= min(zeros) <= limits.max:
            return None
        return found.bytes_, int(min(zeros))

    # -- ops -------------------------------------------------------------------------------------

    def op(
        self, name: str, operands: Sequence[Ref], made: TensorType, facts: Mapping[str, str] = {}
    ) -> Ref:
        """Emit ``tosa.name`` with one result; ``facts`` are attributes as MLIR text."""
        return self.writer.line(self._text(name, operands, [made], facts), made)

    def _text(
        self,
        name: str,
        operands: Sequence[Ref],
        made: Sequence[TensorType],
        facts: Mapping[str, str] = {},
        regions: str = "",
    ) -> str:
        given = ", ".join(f"{v}" for v in operands)
        types = ", ".join(type_text(v.type) for v in operands)
        results = ", ".join(map(type_text, made))
        results = results if len(made) == 1 else f"({results})"
        rows = ", ".join(f"{key} = {value}" for key, value in facts.items())
        return (
            f'"tosa.{name}"({given}){regions}{f" {{{rows}}}" if rows else ""} : ({types}) -> '
            f"{results}"
        )

    def regional(
        self,
        name: str,
        operands: Sequence[Ref],
        types: Sequence[TensorType],
        regions: Sequence[Region],
    ) -> tuple[Ref, ...]:
        """Emit ``tosa.name`` with regions."""
        held = f" ({', '.join(f'{region}' for region in regions)})"
        return self.writer.lines(self._text(name, operands, types, {}, held), types, (), regions)

    def each(self, name: str, *operands: Ref, kind: DType | None = None) -> Ref:
        """Emit an elementwise op.

        The operand of a broadcast is used directly, because TOSA repeats axes of size 1 itself.
        """
        shape = np.broadcast_shapes(*(v.type.shape for v in operands))
        before = [self.spread.get(v.number, v) for v in operands]
        if np.broadcast_shapes(*(v.type.shape for v in before)) != shape:
            whole = next(i for i, v in enumerate(operands) if v.type.shape == shape)
            before[whole] = operands[whole]

        def emit(*x: Ref) -> Ref:
            sizes = np.broadcast_shapes(*(v.type.shape for v in x))
            shift = [self.constant(np.zeros(1, np.int8))] if name == "mul" else []
            return self.op(name, [*x, *shift], tensor(sizes, kind or operands[-1].type.dtype))

        return self.before_transposes(emit, *before)

    def before_transposes(self, emit: Callable[..., Ref], *operands: Ref) -> Ref:
        """Emit an elementwise op.

        If the operands have been transposed alike, the op reads them before and its result is
        transposed, so that transposes around convolutions meet and cancel each other.
        """
        orders = [self.turned[v.number][1] for v in operands if v.number in self.turned]
        if not orders:
            return emit(*operands)
        inverse = inverted(orders[0])
        if any(order != orders[0] for order in orders) or not all(
            v.number in self.turned or self._turns_freely(v, inverse) for v in operands
        ):
            return emit(*operands)
        return self.transposed(emit(*(self.transposed(v, inverse) for v in operands)), orders[0])

    def _turns_freely(self, x: Ref, permutation: Sequence[int]) -> bool:
        """Return whether a transpose needs no op, or only a reshape."""
        known = (x.number, tuple(permutation)) in self.turns
        return known or _is_in_order(x, permutation) or self._is_turned_here(x)

    def _is_turned_here(self, x: Ref) -> bool:
        """Return whether a transpose of ``x`` is another constant."""
        held = self.known.get(x.number)
        return held is not None and held.once and held.shape == held.array.shape

    # -- constants -------------------------------------------------------------------------------

    def constant(
        self, array: np.ndarray, kind: DType | None = None, name: str | None = None
    ) -> Ref:
        """Return a constant that is not part of the model."""
        return self.held(self.shared.made.add(np.asarray(array)), kind, name)

    def held(
        self, value: Any, kind: DType | None = None, name: str | None = None, once: bool = True
    ) -> Ref:
        """Return a constant read as ``kind``; ``once`` if it has no other user."""
        array, found = self.shared.array(value), value.type.dtype
        if isinstance(value, Dense):
            return self._held(_ConstantData(array, array.shape), kind or found, name)
        if found is I1:  # MLIR packs large constants of i1
            numbers = self.constant(array.astype(np.int8), name=name)
            return self.op("cast", [numbers], tensor(array.shape, I1))
        held = _ConstantData(array, array.shape, self.shared.resource(value), once)
        return self._held(held, kind or found, name)

    def _held(self, held: _ConstantData, kind: DType, name: str | None) -> Ref:
        made = tensor(held.shape, kind)
        if held.label:
            text = f"dense_resource<{held.label}> : {type_text(made)}"
        else:
            text = constant_text(held.array.reshape(held.shape), kind)
        text = f'"tosa.const"() {{values = {text}}} : () -> {type_text(made)}'
        ref = self.writer.constant(text, made, name)
        self.known[ref.number] = held
        return ref

    def splat(self, number: Any, like: Ref, kind: DType | None = None) -> Ref:
        """Return a scalar that elementwise ops broadcast over ``like``."""
        kind = kind or like.type.dtype
        ones = (1,) * like.type.rank
        return self.constant(np.full(ones, number, kind.numpy), kind)

    def zero_point(self, kind: DType, number: int = 0) -> Ref:
        return self.constant(np.full(1, number, kind.numpy), kind)

    def shape(self, sizes: Sequence[Any]) -> Ref:
        """Return a constant of type shape."""
        body = ", ".join(map(str, sizes))
        type_ = f"!tosa.shape<{len(sizes)}>"
        values = f"dense<{f'[{body}]' if sizes else ''}> : tensor<{len(sizes)}xindex>"
        return self.writer.constant(
            f'"tosa.const_shape"() {{values = {values}}} : () -> {type_}', type_
        )

    # -- shapes ----------------------------------------------------------------------------------

    def reshaped(self, x: Ref, shape: Sequence[Any]) -> Ref:
        """Emit a reshape, of what ``x`` is a reshape of; a constant becomes another constant."""
        made, held = tensor(shape, x.type.dtype), self.known.get(x.number)
        if made is x.type:
            return x
        if held is not None:
            return self._held(replace(held, shape=made.shape), made.dtype, x.name)
        if x.number in self.flat:
            x = self.flat[x.number].read_as(self.flat[x.number].type.with_(dtype=made.dtype))
            if x.type.shape == made.shape:
                return x
        result = self.op("reshape", [x, self.shape(made.shape)], made)
        self.flat[result.number] = x
        return result

    def transposed(self, x: Ref, permutation: Sequence[int]) -> Ref:
        """Emit a transpose.

        If only axes of size 1 move, it becomes a reshape.  A constant with a single user is
        transposed here, because tools expect weights to be constants.
        """
        if x.number in self.turned:
            source, before = self.turned[x.number]
            x = source.read_as(source.type.with_(dtype=x.type.dtype))
            permutation = [before[a] for a in permutation]
        made = tensor([x.type.shape[a] for a in permutation], x.type.dtype)
        if _is_in_order(x, permutation):
            return self.reshaped(x, made.shape)
        if self._is_turned_here(x):
            held = self.known[x.number]
            label = f"{held.label}_{''.join(map(str, permutation))}" if held.label else ""
            turned = _ConstantData(held.array.transpose(permutation), made.shape, label)
            if label:
                self.shared.arrays[label] = turned.array, made.dtype
            return self._held(turned, made.dtype, x.name)
        order = tuple(permutation)
        if (x.number, order) not in self.turns:
            perms = f"array<i32: {', '.join(map(str, order))}>"
            result = self.op("transpose", [x], made, {"perms": perms})
            self.turns[x.number, order] = result
            self.turned[result.number] = x, order
        return self.turns[x.number, order].read_as(made)

    def source(self, x: Ref) -> tuple[Ref, tuple[int, ...]]:
        """Return ``x`` before its transpose, and the permutation (that of no transpose: 0, 1..)."""
        if x.number not in self.turned:
            return x, tuple(range(x.type.rank))
        source, permutation = self.turned[x.number]
        return source.read_as(source.type.with_(dtype=x.type.dtype)), permutation

    def cut(self, x: Ref, starts: Sequence[int], sizes: Sequence[Any]) -> Ref:
        if tensor(sizes, x.type.dtype) is x.type:
            return x
        x, permutation = self.source(x)
        order = inverted(permutation)
        made = tensor([sizes[a] for a in order], x.type.dtype)
        starts = [starts[a] for a in order]
        part = self.op("slice", [x, self.shape(starts), self.shape(made.shape)], made)
        return self.transposed(part, permutation)

    def padded(self, x: Ref, value: Ref, low: Sequence[int], high: Sequence[int]) -> Ref:
        """Pad ``x`` with ``value`` (one element, rank 1)."""
        if not any((*low, *high)):
            return x
        x, permutation = self.source(x)
        rows = [(low[a], high[a]) for a in inverted(permutation)]
        sizes = zip(x.type.shape, rows, strict=True)
        made = tensor([size + sum(row) for size, row in sizes], x.type.dtype)
        widths = self.shape([p for row in rows for p in row])
        return self.transposed(self.op("pad", [x, widths, value], made), permutation)

    def tiled(self, x: Ref, shape: Sequence[Any]) -> Ref:
        """Repeat ``x`` along its axes of size 1."""
        made = tensor(shape, x.type.dtype)
        if made is x.type:
            return x
        times = [n // m for n, m in zip(made.shape, x.type.shape, strict=True)]
        return self.op("tile", [x, self.shape(times)], made)


class IntegerTosa(Tosa):
    """The translation to TOSA's integer profile, which has no floats."""

    NAME = "TOSA's integer profile"
    KNOWN = frozenset(kind for kind in KNOWN if not kind.is_float)

    @override
    def refused(self, op: Op) -> str:
        """Return why an op is unsupported; a rescale must be one op, not arithmetic in 64 bits.

        What reads a constant of floats is refused itself.
        """
        if op.kind == "core.constant" and op.result.type.dtype.is_float:
            return ""
        whole = op.kind in ("core.rescale", "core.table")
        return super().refused(op) or (self.lacks(op) if whole else "")


def inverted(permutation: Sequence[int]) -> list[int]:
    """Return the permutation that undoes another."""
    return sorted(range(len(permutation)), key=permutation.__getitem__)


def _is_in_order(x: Ref, permutation: Sequence[int]) -> bool:
    """Return whether a permutation moves axes of size 1 only."""
    wide = [a for a in permutation if x.type.shape[a] != 1]
    return wide == sorted(wide)


op = make_registrar(Tosa.TABLE, Tosa.LACKS)
