"""Calls, loops and branches."""

from __future__ import annotations

from core_compiler.frontends.stablehlo.table import CALLS, Context, NotSupported, op
from core_compiler.frontends.stablehlo.table import call as call_to
from core_compiler.ir import Block, Value
from core_compiler.ops.builder import Builder


@op("func.call")
def call(b, *operands):
    b.importer.take(b)
    return tuple(b.importer.call(b.attr("callee"), operands, b.node))


@op("composite")
def composite(b, *operands):
    """Inline an op that has its own definition as a function."""
    b.importer.take(b)
    return tuple(b.importer.call(b.attr("decomposition"), operands, b.node))


@op("map")
def map_(b, *xs):
    """Apply a function of scalars to every element."""
    return b.lifted(0, xs)


@op("while")
def while_(b, *carried):
    blocks = [b.region(i, [Value(v.type) for v in carried]) for i in range(2)]
    if not carried:
        raise NotSupported("a loop without carried values")
    return b.op("core.while", carried, regions=tuple(blocks))


@op("if")
def if_(b, condition):
    known = b.constant_of(condition)
    if known is not None:
        return _taken(b, 0 if bool(known) else 1)
    blocks = [b.region(i, []) for i in range(2)]
    return b.op("core.if", (condition,), regions=tuple(blocks))


@op("case")
def case(b, index):
    """Select a branch by its number; the last one if it is out of range."""
    count = len(b.operation.regions)
    known = b.constant_of(index)
    if known is not None:
        chosen = int(known)
        return _taken(b, chosen if 0 <= chosen < count else count - 1)
    if count == 1:
        return _taken(b, 0)
    return _among(b, b, index, list(range(count)))


def _taken(b: Context, branch: int) -> tuple[Value, ...]:
    """Inline a branch with a known condition."""
    made = b.region(branch, [])
    b.ops += made.ops
    return made.outputs


def _among(b: Context, builder: Builder, index: Value, left: list[int]):
    """Select one of the branches ``left`` by ``index``, as nested ``if`` ops."""
    first, *others = left
    condition = builder.eq(index, builder.constant(first, index.type.dtype))
    then = b.region(first, [])
    if len(others) == 1:
        other = b.region(others[0], [])
    else:
        inner = Builder(b.weights, b.origin)
        made = _among(b, inner, index, others)
        outputs = made if isinstance(made, tuple) else (made,)
        other = Block((), tuple(inner.ops), outputs)
    return builder.op("core.if", (condition,), regions=(then, other))


@op("sdy.sharding_constraint")
@call_to(
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
)
def annotation(b, *operands):
    """Return the operand of an annotation, which only concerns several devices."""
    return operands


@call_to("shape_assertion")
def shape_assertion(b, condition, *_numbers):
    known = b.constant_of(condition)
    if known is not None and not bool(known):
        raise NotSupported(str(b.attr("error_message", "sizes that the program rejects"))[:300])
    return ()


@op("custom_call")
def custom_call(b, *operands):
    target = b.attr("call_target_name")
    if target not in CALLS:
        raise NotSupported(f"a custom call of {target}")
    return CALLS[target](b, *operands)
