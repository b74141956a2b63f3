"""Types: dtypes, tensors, buffers, vectors and the index type, all interned.

``str(type)`` is its MLIR text (symbolic sizes and layouts are in the encoding attribute).

Dimensions are non-negative ints, or strings: a string is a symbolic size (``"batch"``) that a
compile binds to a number (tensor level) or that is a run-time argument (kernel level).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from typing_extensions import override

Dim = int | str


class Type:
    """The base class of types; instances are interned, so ``is`` and ``==`` agree."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class DType(Type):
    """An element type.

    ``kind`` is ``float``, ``int``, ``uint`` or ``bool``; ``bits`` is its width. ``name`` is the
    MLIR spelling (``f32``, ``bf16``, ``f8E4M3FN``, ``i32``, ``ui8``, ``i1``).
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype

    @override
    def __repr__(self) -> str:
        return self.name

    @override
    def __reduce__(self):
        return dtype, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def bytes(self) -> int:
        """The size of an element in memory in bytes (sub-byte types take one byte)."""
        return self.numpy.itemsize


#: (MLIR name, bits, NumPy scalar type) of the floating-point types.
_FLOATS = (
    ("f64", 64, np.float64),
    ("f32", 32, np.float32),
    ("f16", 16, np.float16),
    ("bf16", 16, ml_dtypes.bfloat16),
    ("f8E4M3FN", 8, ml_dtypes.float8_e4m3fn),
    ("f8E4M3FNUZ", 8, ml_dtypes.float8_e4m3fnuz),
    ("f8E4M3", 8, ml_dtypes.float8_e4m3),
    ("f8E4M3B11FNUZ", 8, ml_dtypes.float8_e4m3b11fnuz),
    ("f8E3M4", 8, ml_dtypes.float8_e3m4),
    ("f8E5M2", 8, ml_dtypes.float8_e5m2),
    ("f8E5M2FNUZ", 8, ml_dtypes.float8_e5m2fnuz),
    ("f8E8M0FNU", 8, ml_dtypes.float8_e8m0fnu),
    ("f4E2M1FN", 4, ml_dtypes.float4_e2m1fn),
)


def _table() -> dict[str, DType]:
    table = {name: DType(name, "float", bits, np.dtype(t)) for name, bits, t in _FLOATS}
    for bits in (2, 4, 8, 16, 32, 64):
        home = np if bits >= 8 else ml_dtypes
        for prefix, kind, numpy_name in (("i", "int", "int"), ("ui", "uint", "uint")):
            name = f"{prefix}{bits}"
            table[name] = DType(name, kind, bits, np.dtype(getattr(home, f"{numpy_name}{bits}")))
    table["i1"] = DType("i1", "bool", 1, np.dtype(np.bool_))
    return table


DTYPES: dict[str, DType] = _table()
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}
_ALIASES = {"bool": "i1", **{f"u{b}": f"ui{b}" for b in (2, 4, 8, 16, 32, 64)}}


def dtype(what: str | np.dtype | type | DType) -> DType:
    """Return the dtype of a name (``"f32"``) or NumPy type; KeyError if unknown."""
    if isinstance(what, DType):
        return what
    if isinstance(what, str):
        name = _ALIASES.get(what, what)
        if name in DTYPES:
            return DTYPES[name]
    return _BY_NUMPY[np.dtype(what)]


def _dims(shape) -> str:
    return "".join(f"{'?' if isinstance(d, str) else d}x" for d in shape)


def _is_symbolic(part) -> bool:
    parts = part if isinstance(part, tuple) else (part,)
    return any(isinstance(d, str) for d in parts)


def quoted(text: str) -> str:
    """Quote a string as MLIR does: unprintable characters and quotes as ``\\`` and two digits.

    The digits are hexadecimal.
    """
    if text.isidentifier() and text.isascii():
        return f'"{text}"'
    keep = (
        c
        if c.isprintable() and c not in '"\\' and not 0xD800 <= ord(c) <= 0xDFFF
        else "".join(f"\\{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
        for c in text
    )
    return f'"{"".join(keep)}"'


def _facts(extra: dict, lead: str = "") -> str:
    """Print ``{dims = ["batch", 4], order = [1, 0]}``: attributes for what MLIR's types lack."""

    def plain(v):
        if isinstance(v, tuple):
            return f"[{', '.join(map(plain, v))}]"
        return quoted(v) if isinstance(v, str) else str(v)

    if not extra:
        return ""
    return lead + "{" + ", ".join(f"{k} = {plain(v)}" for k, v in sorted(extra.items())) + "}"


def _elements(shape: tuple[Any, ...]) -> int:
    """Return the number of elements of a static shape."""
    return prod(shape)


@dataclass(frozen=True, eq=False)
class TensorType(Type):
    """A logical shape and a dtype: ``tensor<2x3xf32>``.

    ``order`` is the memory layout: the logical axes from slowest to fastest, or None for row-major.
    A layout changes addresses, never meaning or the order of accumulation.
    """

    shape: tuple[Dim, ...]
    dtype: DType
    order: tuple[int, ...] | None = None

    @override
    def __repr__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """The type in the IR's text."""
        extra = {}
        if any(isinstance(d, str) for d in self.shape):
            extra["dims"] = self.shape
        if self.order is not None:
            extra["order"] = self.order
        return f"tensor<{_dims(self.shape)}{self.dtype.name}{_facts(extra, ', ')}>"

    @override
    def __reduce__(self):
        return tensor, (self.shape, self.dtype, self.order)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def elements(self) -> int:
        """The number of elements; the shape must be static."""
        return _elements(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    def with_(self, shape=None, dtype=None, order="same") -> TensorType:
        """Return this type with some parts replaced (``order=None`` selects row-major)."""
        return tensor(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.order if order == "same" else order,
        )


@dataclass(frozen=True, eq=False)
class BufferType(Type):
    """A strided view of memory: ``memref<MxNxf32, strided<[s0, 1], offset: 0>, "space">``.

    ``shape`` and ``strides`` are in elements; a string is a run-time size. ``space`` names a memory
    tier: ``dram`` (the plan's arena), ``scratch`` (per-thread), ``register``, ``shared``...
    """

    shape: tuple[Dim, ...]
    dtype: DType
    strides: tuple[Dim, ...]
    offset: Dim = 0
    space: str = "dram"

    @override
    def __repr__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """The type in the IR's text."""
        strides = ", ".join("?" if isinstance(s, str) else str(s) for s in self.strides)
        offset = "?" if isinstance(self.offset, str) else self.offset
        layout = f"strided<[{strides}], offset: {offset}>"
        named = {"dims": self.shape, "offset": self.offset, "strides": self.strides}
        extra = {k: v for k, v in named.items() if _is_symbolic(v)}
        space = _facts({**extra, "space": self.space}) if extra else quoted(self.space)
        return f"memref<{_dims(self.shape)}{self.dtype.name}, {layout}, {space}>"

    @override
    def __reduce__(self):
        return buffer, (self.shape, self.dtype, self.strides, self.offset, self.space)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        """The number of elements; the shape must be static."""
        return _elements(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of the addressed span (static and without gaps: elements x element size)."""
        if not self.elements:
            return 0
        static: Any = zip(self.shape, self.strides, strict=True)
        span = 1 + sum((d - 1) * s for d, s in static)
        return span * self.dtype.bytes


@dataclass(frozen=True, eq=False)
class VectorType(Type):
    """A SIMD value of ``width`` lanes: ``vector<16xf32>``."""

    width: int
    dtype: DType

    @override
    def __repr__(self) -> str:
        return f"vector<{self.width}x{self.dtype.name}>"

    @override
    def __reduce__(self):
        return vector, (self.width, self.dtype)


@dataclass(frozen=True, eq=False)
class IndexType(Type):
    """A size or a position, ``index``: 64-bit signed."""

    @override
    def __repr__(self) -> str:
        return "index"

    @override
    def __reduce__(self):
        return _index, ()


INDEX = IndexType()


@dataclass(frozen=True, eq=False)
class OpaqueType(Type):
    """A type of another dialect, ``!onnx.seq<tensor<4xf32>>``, which only that dialect reads.

    ``text`` is the full text, including the exclamation mark.
    """

    text: str

    @override
    def __repr__(self) -> str:
        return self.text

    @override
    def __reduce__(self):
        return opaque, (self.text,)


def is_empty(type_: Type) -> bool:
    """Return whether a tensor of this type has no elements, so that all are equal."""
    return isinstance(type_, TensorType) and type_.is_static and type_.elements == 0


def is_sized(type_: Type) -> bool:
    """Return whether a value of this type has ``bytes``.

    It has not if a size is open or the shape is unknown.
    """
    return isinstance(type_, BufferType) or (isinstance(type_, TensorType) and type_.is_static)


def _index() -> IndexType:
    return INDEX


@cache
def _tensor(shape, dtype_, order):
    return TensorType(shape, dtype_, order)


def tensor(shape, dtype_, order=None) -> TensorType:
    """Return the interned tensor type; a row-major ``order`` is normalised to None.

    Raise ValueError for a negative size or an order that is not a permutation of the axes.
    """
    shape = tuple(d if isinstance(d, str) else int(d) for d in shape)
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ValueError(f"negative dimension in shape {shape}")
    if order is not None:
        order, axes = tuple(order), tuple(range(len(shape)))
        if tuple(sorted(order)) != axes:
            raise ValueError(f"order {order} is not a permutation of {len(shape)} axes")
        if order == axes:
            order = None
    return _tensor(shape, dtype(dtype_), order)


@cache
def _buffer(shape, dtype_, strides, offset, space):
    return BufferType(shape, dtype_, strides, offset, space)


def row_major(shape) -> tuple[int, ...]:
    """Return the strides in elements of a dense row-major array of this static shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def ordered_strides(shape, order) -> tuple[int, ...]:
    """Return the strides of a dense array whose axes are ordered by ``order`` (slowest first)."""
    if order is None:
        return row_major(shape)
    packed = row_major([shape[a] for a in order])
    strides = [0] * len(shape)
    for axis, stride in zip(order, packed, strict=True):
        strides[axis] = stride
    return tuple(strides)


def buffer(shape, dtype_, strides=None, offset=0, space="dram") -> BufferType:
    """Return the interned buffer type; ``strides`` default to dense row-major (static shapes only).

    Raise ValueError if the numbers of strides and dimensions differ.
    """
    shape = tuple(shape)
    strides = row_major(shape) if strides is None else tuple(strides)
    if len(strides) != len(shape):
        raise ValueError(f"{len(strides)} strides for {len(shape)} dimensions")
    return _buffer(shape, dtype(dtype_), strides, offset, space)


@cache
def _vector(width, dtype_):
    return VectorType(width, dtype_)


def vector(width: int, dtype_) -> VectorType:
    return _vector(int(width), dtype(dtype_))


@cache
def _opaque(text: str) -> OpaqueType:
    return OpaqueType(text)


def opaque(text: str) -> OpaqueType:
    """Return the interned type of this text, ``!dialect.name`` or ``!dialect.name<...>``."""
    if text[:1] != "!" or "." not in text:
        raise ValueError(f"{text!r} is not a dialect type")
    return _opaque(text)
