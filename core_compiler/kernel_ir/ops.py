"""The kernel level's ops: one declaration each, with its type rule and its meaning.

A kernel is a ``Function(level="kernel")``.  Its arguments are buffers (``BufferType``), then index
arguments (``INDEX``) whose names are the strings that the buffer types use for run-time sizes and
strides.  Values are buffers, indices, scalars (the type is the ``DType`` itself) and vectors.

==================  ==============================================================================
``kernel.for``      ``(lower, upper, step, *init) {name, loop} region(iv, *carried)``; results are
                    the last carried values.  ``loop`` is ``sequential``, ``parallel`` (iterations
                    independent, any order), ``vector`` (independent, may run in SIMD),
                    ``unrolled`` (constant trip count, unrolled in generated code), or on a GPU
                    ``block`` (iterations are blocks of the grid) and ``thread`` (independent
                    iterations, one per thread of the block; at most ``threads`` of them).
``kernel.if``       ``(condition: i1) region then, region else`` -> the outputs of one of them.
``kernel.load``     ``(buffer, *indices[, count]) {axis}`` -> element, or a vector of those at
                    ``index[axis] + lane`` (``axis`` defaults to the last); with ``count`` the lanes
                    >= count read nothing and are +0.
``kernel.store``    ``(value, buffer, *indices[, count]) {axis, asynchronous}``; lanes >= count
                    write nothing.  An ``asynchronous`` one (on a GPU, of an element of global
                    memory, or +0, to shared memory) may take place until that memory is read.
``kernel.prefetch`` ``(buffer, *indices)``: a hint that the element will be read soon, so that its
                    cache line may be fetched. It need not exist; the hint has no other effect.
``kernel.alloc``    ``(*sizes) {}`` -> buffer in space ``register`` or ``shared`` (static shape;
                    memory of a block) or ``scratch`` (per thread, dense, 64-byte aligned);
                    ``sizes`` are the run-time extents, one for each string in the buffer's shape,
                    computed at the top of the function.
                    Contents are undefined at first and do not persist between the iterations
                    of a parallel loop.
``kernel.view``     ``(buffer, *starts) {dropped, merged}`` -> the same memory from ``starts`` on,
                    without the axes ``dropped``, the last ``merged`` ones as a single axis (they
                    are dense).  Extents that the result's type keeps are upper bounds.
``kernel.constant`` ``{value}``; a splat if the result is a vector.
``kernel.broadcast``  scalar -> vector.     ``kernel.lanes`` -> vector of i64 0, 1, 2, ...
``kernel.extract``  ``(vector) {lane}`` -> scalar.
``kernel.shuffle``  ``(v, w) {mask}`` -> lanes of v then w, selected by ``mask``.
``kernel.cast``     ``{dtype}`` numeric conversion (numerics contract), also to and from ``INDEX``.
``kernel.bitcast``  ``{dtype}`` same bits, lane by lane; of narrow lanes that have 32 bits
                    together, one i32 (lane 0 lowest).
``kernel.call``     ``(*args) {callee, dtype}``: a function of ``kernels.functions`` by name.
``kernel.invoke``   ``(*buffers, *sizes) {callee}``: runs another kernel, all its items in order;
                    the operands are its arguments in order.  Parts that many kernels share are
                    thus compiled once.
scalar ops          named as the core scalar functions (``kernel.add``, ``kernel.exp``, ...), lane
                    by lane on vectors; on indices 64-bit and never overflowing.
==================  ==============================================================================

f16 and bf16 scalars exist only between a load or a cast and a cast or a store: arithmetic is done
in f32 (the lowering casts), so an arithmetic op on them is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from core_compiler.ir import BufferType, DType, Op, Type, VectorType, dtype, vector
from core_compiler.ir.types import INDEX, IndexType, buffer
from core_compiler.support.errors import InternalError

BOOL = dtype("i1")
LOOPS = ("sequential", "parallel", "vector", "unrolled", "block", "thread")
#: Loops of independent iterations.
INDEPENDENT = ("parallel", "vector", "block", "thread")
#: The kinds of loops whose outermost ones a launch distributes, and those that all threads may run
#: at the same time.
DISTRIBUTED = ("parallel", "block")
CONCURRENT = (*DISTRIBUTED, "thread")
SPACES = ("register", "scratch", "shared")


class KernelTypeError(Exception):
    """Raised if a kernel op violates its type rule; the message names the op and the violation."""


TypeRule = Callable[[str, Sequence[Type], Mapping[str, Any], Sequence[Type]], Sequence[Type]]


@dataclass(frozen=True, eq=False)
class KernelOp:
    """The declaration of a kernel op.

    ``rule(kind, operand types, attributes, requested types)`` returns the result types;
    ``requested`` are the result types that the creator of the op requests (loads, constants,
    allocations need them). ``pure`` ops have no effect and may be moved, shared and folded.
    ``cost`` is the approximate cost of recomputing it, in additions.

    The meaning of a scalar op: on indices ``index``, a Python expression of integers (of ``a``,
    ``b`` and ``c``, its operands); on i1 ``logic``, an expression with ``~``, ``&``, ``|``, ``^``;
    on numbers the contract function :func:`core_compiler.kernel_ir.scalars.symbol`. Builder,
    interpreter, code generators and launches take it from here.
    """

    kind: str
    summary: str
    rule: TypeRule
    pure: bool = True
    arity: int | None = None
    cost: int = 1
    index: str = ""
    logic: str = ""

    @cached_property
    def on_indices(self) -> Callable[..., int] | None:
        """The function of integers that is the op's meaning on indices, or None."""
        if not self.index:
            return None
        names = ", ".join(OPERANDS[: self.arity])
        return eval(f"lambda {names}: {self.index}", {"min": min, "max": max, "abs": abs})


KERNEL_OPS: dict[str, KernelOp] = {}


def definition(op: Op | str) -> KernelOp:
    """Return the declaration of a kernel op; InternalError if there is none."""
    kind = op if isinstance(op, str) else op.kind
    try:
        return KERNEL_OPS[kind]
    except KeyError:
        raise InternalError(f"unknown kernel op {kind!r}") from None


def result_types(
    kind: str, operands: Sequence[Type], attributes: Mapping, requested: Sequence[Type]
):
    """Return the result types of an op; KernelTypeError if its rule is violated."""
    declared = definition(kind)
    if declared.arity is not None and len(operands) != declared.arity:
        raise KernelTypeError(f"{kind} takes {declared.arity} operands, got {len(operands)}")
    types = tuple(declared.rule(kind, operands, attributes, requested))
    if requested and tuple(requested) != types:
        raise KernelTypeError(f"{kind} returns {types}, not {tuple(requested)}")
    return types


# -- type rules ------------------------------------------------------------------------------------


def element(t: Type) -> Any:
    """Return the dtype (or INDEX) of a scalar, vector or buffer type."""
    return t.dtype if isinstance(t, VectorType | BufferType) else t


def like(t: Type, lane: Type) -> Type:
    """Return ``lane`` widened to ``t``'s number of lanes."""
    return vector(t.width, lane) if isinstance(t, VectorType) else lane


def _need(condition: bool, kind: str, message: str) -> None:
    if not condition:
        raise KernelTypeError(f"{kind}: {message}")


def _arithmetic(t: Type) -> bool:
    lane = element(t)
    return lane is INDEX or lane.kind != "float" or lane.name in ("f32", "f64")


def _same(kind, operands, attributes, requested):
    first = operands[0]
    _need(all(t is first for t in operands), kind, f"operands differ: {tuple(operands)}")
    _need(not isinstance(first, BufferType), kind, "works on scalars and vectors, not on buffers")
    _need(_arithmetic(first), kind, f"arithmetic on {first} is not supported: cast to f32 first")
    return (first,)


def _float_only(kind, operands, attributes, requested):
    (result,) = _same(kind, operands, attributes, requested)
    lane = element(result)
    _need(isinstance(lane, DType) and lane.is_float, kind, f"needs floats, got {result}")
    return (result,)


def _bits_only(kind, operands, attributes, requested):
    (result,) = _same(kind, operands, attributes, requested)
    lane = element(result)
    _need(lane is INDEX or not lane.is_float, kind, f"needs integers or i1, got {result}")
    return (result,)


def _index_only(kind, operands, attributes, requested):
    (result,) = _same(kind, operands, attributes, requested)
    lane = element(result)
    _need(lane is INDEX or lane.is_integer, kind, f"needs integers, got {result}")
    return (result,)


def _words(kind, operands, attributes, requested):
    (result,) = _same(kind, operands, attributes, requested)
    _need(element(result) is dtype("i32"), kind, f"needs words of i32, got {result}")
    return (result,)


def _compare(kind, operands, attributes, requested):
    (result,) = _same(kind, operands, attributes, requested)
    return (like(result, BOOL),)


def _test(kind, operands, attributes, requested):
    (result,) = _float_only(kind, operands, attributes, requested)
    return (like(result, BOOL),)


def _select(kind, operands, attributes, requested):
    condition, yes, no = operands
    _need(yes is no, kind, f"branches differ: {yes}, {no}")
    _need(not isinstance(yes, BufferType), kind, "works on scalars and vectors")
    # A scalar condition selects between whole vectors.
    _need(
        condition is BOOL or condition is like(yes, BOOL),
        kind,
        f"condition must be i1, got {condition}",
    )
    return (yes,)


def _cast(kind, operands, attributes, requested):
    target = attributes.get("dtype")
    _need(isinstance(target, DType | IndexType), kind, "needs the attribute dtype")
    return (like(operands[0], target),)


def _bitcast(kind, operands, attributes, requested):
    target, lane = attributes.get("dtype"), element(operands[0])
    _need(
        isinstance(target, DType) and isinstance(lane, DType), kind, "converts between dtypes only"
    )
    if isinstance(operands[0], VectorType) and target.bits != lane.bits:
        whole = target is dtype("i32") and operands[0].width * lane.bits == 32
        _need(whole, kind, f"{operands[0]} and {target} have different widths")
        return (target,)
    _need(target.bits == lane.bits, kind, f"{lane} and {target} have different widths")
    return (like(operands[0], target),)


def _constant(kind, operands, attributes, requested):
    _need(len(requested) == 1, kind, "needs its result type")
    _need(type(attributes.get("value")) in (bool, int, float), kind, "needs a number as value")
    return tuple(requested)


def _asked_vector(kind, operands, attributes, requested):
    _need(
        len(requested) == 1 and isinstance(requested[0], VectorType), kind, "needs its vector type"
    )
    if operands:
        _need(
            requested[0].dtype is operands[0],
            kind,
            f"cannot broadcast {operands[0]} to {requested[0]}",
        )
    else:
        _need(requested[0].dtype is dtype("i64"), kind, "lanes must be i64")
    return tuple(requested)


def _extract(kind, operands, attributes, requested):
    (source,) = operands
    _need(isinstance(source, VectorType), kind, f"needs a vector, got {source}")
    _need(0 <= attributes.get("lane", -1) < source.width, kind, "lane is out of range")
    return (source.dtype,)


def _shuffle(kind, operands, attributes, requested):
    v, w = operands
    mask = attributes.get("mask", ())
    _need(isinstance(v, VectorType) and v is w, kind, f"needs two equal vectors, got {v}, {w}")
    _need(len(mask) > 0 and all(0 <= m < 2 * v.width for m in mask), kind, "invalid mask")
    return (vector(len(mask), v.dtype),)


def _access(kind, buffer, rest, value, attributes):
    """Check ``rest``: indices and an optional count; ``value`` is the scalar or vector type."""
    _need(isinstance(buffer, BufferType), kind, f"{buffer} is not a buffer")
    counted = len(rest) == buffer.rank + 1
    _need(counted or len(rest) == buffer.rank, kind, f"{buffer.rank} indices, got {len(rest)}")
    _need(all(t is INDEX for t in rest), kind, f"indices must be index values, got {tuple(rest)}")
    _need(
        element(value) is buffer.dtype,
        kind,
        f"expected {buffer.dtype}, the dtype of the buffer, got {value}",
    )
    if not isinstance(value, VectorType):
        _need(not counted and "axis" not in attributes, kind, "count and axis require a vector")
    else:
        _need(-buffer.rank <= attributes.get("axis", -1) < buffer.rank, kind, "axis out of range")


def _load(kind, operands, attributes, requested):
    _need(isinstance(operands[0], BufferType), kind, f"{operands[0]} is not a buffer")
    types = tuple(requested) or (operands[0].dtype,)
    _access(kind, operands[0], operands[1:], types[0], attributes)
    return types


def _store(kind, operands, attributes, requested):
    _access(kind, operands[1], operands[2:], operands[0], attributes)
    return ()


def _prefetch(kind, operands, attributes, requested):
    _need(isinstance(operands[0], BufferType), kind, f"{operands[0]} is not a buffer")
    _access(kind, operands[0], operands[1:], operands[0].dtype, attributes)
    return ()


def _alloc(kind, operands, attributes, requested):
    _need(
        len(requested) == 1 and isinstance(requested[0], BufferType), kind, "needs its buffer type"
    )
    space, names = requested[0].space, [d for d in requested[0].shape if isinstance(d, str)]
    _need(space in SPACES, kind, f"unknown space {space!r}, expected one of {SPACES}")
    _need(all(t is INDEX for t in operands), kind, "sizes must be index values")
    _need(len(names) == len(operands), kind, f"expected one size for each of {names}")
    _need(space == "scratch" or not names, kind, f"a {space} buffer must have a static shape")
    return tuple(requested)


def _view(kind, operands, attributes, requested):
    memory, dropped = operands[0], attributes.get("dropped", ())
    merged = attributes.get("merged", 1)
    _need(isinstance(memory, BufferType), kind, f"{memory} is not a buffer")
    _need(all(t is INDEX for t in operands[1:]), kind, "starts must be index values")
    _need(
        len(operands) - 1 == memory.rank, kind, f"expected one start for each of {memory.rank} axes"
    )
    kept = [axis for axis in range(memory.rank) if axis not in dropped]
    _need(1 <= merged <= max(len(kept), 1), kind, f"cannot merge {merged} of {len(kept)} axes")
    shape, strides = ([part[axis] for axis in kept] for part in (memory.shape, memory.strides))
    if merged > 1:
        known = all(isinstance(d, int) for d in shape[-merged:])
        whole = prod(shape[-merged:]) if known else "*".join(map(str, shape[-merged:]))
        shape, strides = [*shape[:-merged], whole], [*strides[:-merged], strides[-1]]
    return (buffer(shape, memory.dtype, strides, 0, memory.space),)


def _call(kind, operands, attributes, requested):
    _need(isinstance(attributes.get("callee"), str), kind, "needs the attribute callee")
    _need(isinstance(attributes.get("dtype"), DType), kind, "needs the attribute dtype")
    return (attributes["dtype"],)


def _invoke(kind, operands, attributes, requested):
    _need(isinstance(attributes.get("callee"), str), kind, "needs the attribute callee")
    buffers = [isinstance(t, BufferType) for t in operands]
    _need(buffers == sorted(buffers, reverse=True), kind, "takes buffers, then index values")
    numbers = operands[sum(buffers) :]
    _need(all(t is INDEX for t in numbers), kind, "takes buffers and index values only")
    return ()


def _for(kind, operands, attributes, requested):
    _need(
        len(operands) >= 3 and all(t is INDEX for t in operands[:3]),
        kind,
        "bounds must be index values",
    )
    _need(attributes.get("loop", "sequential") in LOOPS, kind, f"loop must be one of {LOOPS}")
    return tuple(operands[3:])


def _if(kind, operands, attributes, requested):
    _need(operands[0] is BOOL, kind, f"condition must be i1, got {operands[0]}")
    return tuple(requested)


# -- the table -------------------------------------------------------------------------------------


#: The names of operands in ``index`` and ``logic``.
OPERANDS = ("a", "b", "c")
_INDEX = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "div": "a // b",
    "floordiv": "a // b",
    "ceildiv": "(a + b - 1) // b",
    "rem": "a % b",
    "mod": "a % b",
    "min": "min(a, b)",
    "max": "max(a, b)",
    "neg": "-a",
    "abs": "abs(a)",
    "eq": "a == b",
    "ne": "a != b",
    "lt": "a < b",
    "le": "a <= b",
    "gt": "a > b",
    "ge": "a >= b",
    "select": "b if a else c",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "shl": "a << b",
    "shr": "a >> b",
}
_LOGIC = {
    "not": "~a",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "ne": "a ^ b",
    "eq": "~(a ^ b)",
    "lt": "~a & b",
    "le": "~a | b",
    "gt": "a & ~b",
    "ge": "a | ~b",
    "max": "a | b",
    "min": "a & b",
    "mul": "a & b",
    "add": "a | b",
}


def substitute_operands(expression: str, operands: Sequence[str]) -> str:
    """Return an ``index`` or ``logic`` expression with these operands (names) in it."""
    return re.sub(r"\b[abc]\b", lambda name: operands[OPERANDS.index(name[0])], expression)


def _declare(
    rule: TypeRule, arity: int | None, names: str, summary: str, pure: bool = True, cost: int = 1
) -> None:
    for name in names.split():
        meaning = _INDEX.get(name, ""), _LOGIC.get(name, "")
        kind = f"kernel.{name}"
        KERNEL_OPS[kind] = KernelOp(kind, summary, rule, pure, arity, cost, *meaning)


# The meaning of a function is ``numerics.functions.NAMESPACE["<name>_<dtype>"]``.
_declare(
    _float_only,
    1,
    "exp exp2 log log2 log10 log1p expm1 rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc sigmoid",
    "elementary function of one float",
    cost=10,
)
_declare(_float_only, 1, "sqrt", "square root, correctly rounded", cost=4)
_declare(_float_only, 1, "floor ceil round trunc", "a float rounded to an integer")
_declare(_same, 1, "neg abs sign", "unary arithmetic")
_declare(_bits_only, 1, "not bitnot", "logical (i1) or bitwise complement")
_declare(_test, 1, "is_nan is_inf is_finite", "classification of one float")
_declare(_same, 2, "add sub mul max min", "binary arithmetic")
_declare(_same, 2, "div rem mod", "quotient or remainder", cost=4)
_declare(_float_only, 2, "pow atan2", "elementary function of two floats", cost=10)
_declare(_same, 2, "ipow", "integer power", cost=10)
_declare(_bits_only, 2, "and or xor shl shr", "bitwise or logical")
_declare(_index_only, 2, "floordiv ceildiv", "quotient rounded down or up")
_declare(_compare, 2, "eq ne lt le gt ge", "a comparison")
_declare(_float_only, 3, "fma", "a * b + c rounded once")
_declare(_words, 3, "dot4", "c plus four products: bytes of a, unsigned, and of b, signed; wraps")
_declare(_select, 3, "select", "the second operand where the first is true, else the third")
_declare(_cast, 1, "cast", "numeric conversion")
_declare(_bitcast, 1, "bitcast", "the same bits read as another type")
_declare(_constant, 0, "constant", "a number")
_declare(_asked_vector, 1, "broadcast", "one scalar in every lane")
_declare(_asked_vector, 0, "lanes", "the lane numbers 0, 1, 2, ...")
_declare(_extract, 1, "extract", "one lane")
_declare(_shuffle, 2, "shuffle", "lanes selected from two vectors")
_declare(_call, None, "call", "a scalar function by name")
_declare(_load, None, "load", "read a buffer", pure=False)
_declare(_store, None, "store", "write a buffer", pure=False)
_declare(_prefetch, None, "prefetch", "fetch a cache line that is read soon", pure=False)
_declare(_alloc, None, "alloc", "a private buffer", pure=False)
_declare(_view, None, "view", "a part of a buffer", pure=False)
_declare(_invoke, None, "invoke", "a call of another kernel", pure=False)
_declare(_for, None, "for", "a loop", pure=False)
_declare(_if, 1, "if", "a branch", pure=False)

SCALAR_OPS = tuple(
    kind
    for kind, d in KERNEL_OPS.items()
    if d.rule in (_float_only, _same, _bits_only, _test, _index_only, _compare, _select)
)


def is_pure(op: Op) -> bool:
    return definition(op).pure


def count_operand(op: Op):
    """Return the ``count`` value of a vector load or store, or None if all lanes are accessed."""
    buffer_at = 1 if op.kind == "kernel.store" else 0
    rank = op.operands[buffer_at].type.rank
    rest = op.operands[buffer_at + 1 :]
    return rest[rank] if len(rest) > rank else None


def access(op: Op):
    """Return ``(buffer, indices)`` of a load, store or prefetch."""
    buffer_at = 1 if op.kind == "kernel.store" else 0
    buffer = op.operands[buffer_at]
    return buffer, op.operands[buffer_at + 1 : buffer_at + 1 + buffer.type.rank]


def lane_axis(op: Op) -> int:
    """Return the index along which the lanes of a vector load or store advance (non-negative)."""
    buffer, _ = access(op)
    return op.get("axis", -1) % buffer.type.rank
