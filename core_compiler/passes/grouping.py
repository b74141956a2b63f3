"""Groups, the units that become kernels, and the shared mechanics of growing them.

A ``core.group`` holds a block of tensor ops that uses nothing but its arguments.  The kernel level
decides what may share a kernel (:func:`core_compiler.lowering.lower.join_refusal`); this module
decides what may merge without a cycle, and what to copy instead of share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from core_compiler.ir import Block, Op, Rewriter, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.kernel_ir import scalars
from core_compiler.lowering.lower import join_refusal
from core_compiler.ops import hooks, typed
from core_compiler.ops.base import definition
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import CONTROL_FLOW
from core_compiler.passes.layouts import is_free_view

GROUP = "core.group"


def members(unit: Op) -> tuple[Op, ...]:
    """Return the tensor ops of a unit: those of a group's block, else the op itself."""
    return unit.regions[0].ops if unit.kind == GROUP else (unit,)


def is_copied(op: Op | None) -> bool:
    """Return whether an op is copied into each kernel that reads it instead of being a kernel.

    These are constants of one element, iota, broadcasts (which only index their operand), and
    casts that widen (the operand is the smaller one to read, and products widen what they copy).
    """
    if op is None:
        return False
    if op.kind == "core.constant":
        return op.result.type.elements == 1
    return op.kind in ("core.iota", "core.broadcast") or is_widening(op)


def is_widening(op: Op) -> bool:
    """Return whether an op is a cast that keeps every value, to a wider dtype."""
    cast = typed.Cast.match(op)
    if cast is None:
        return False
    return scalars.is_widened(cast.x.type.dtype, cast.result.type.dtype)


def make_group(units: Sequence[Op], outputs: Iterable[Value], name: str = "") -> Op:
    """Return a ``core.group`` of ``units`` that still defines ``outputs``.

    ``units`` are ops and groups, in program order.  Existing groups keep the same ops defining the
    same values, except readers of a value that now comes from inside or arrives twice: an op can be
    tracked, and is recorded once.
    """
    outputs = tuple(outputs)
    arguments: dict[Value, Value] = {}
    inner: dict[Value, Value] = {}
    body: list[Op] = []

    def inside(value: Value) -> Value:
        if value not in inner and value not in arguments:
            arguments[value] = Value(value.type, value.name)
        return inner.get(value) or arguments[value]

    for unit in units:
        if unit.kind == GROUP:
            block = unit.regions[0]
            renamed: dict[Value, Value] = {}
            for argument, value in zip(block.arguments, unit.operands, strict=True):
                if value in inner or value in arguments:
                    renamed[argument] = inside(value)
                else:
                    arguments[value] = argument
            body += [op.substitute(renamed) for op in block.ops]
            made = [renamed.get(v, v) for v in block.outputs]
        else:
            renamed = {v: inside(v) for v in unit.uses()}
            made = [Value(v.type, v.name) for v in unit.results]
            body.append(unit.substitute(renamed).with_(results=tuple(made)))
        inner.update(zip(unit.results, made, strict=True))
    block = Block(tuple(arguments.values()), tuple(body), tuple(inner[v] for v in outputs))
    return Op(GROUP, tuple(arguments), outputs, {"name": name} if name else {}, (block,))


def flattened(unit: Op) -> tuple[Op, ...]:
    """Return a unit's ops expressed over the values outside it."""
    if unit.kind != GROUP:
        return (unit,)
    block = unit.regions[0]
    renamed = dict(zip(block.arguments, unit.operands, strict=True))
    renamed.update(zip(block.outputs, unit.results, strict=True))
    local = {
        v: renamed.setdefault(v, Value(v.type, v.name)) for op in block.ops for v in op.results
    }
    return tuple(
        op.substitute(renamed).with_(results=tuple(local[v] for v in op.results))
        for op in block.ops
    )


def cycle_refusal(pair: Pair, rewriter: Rewriter, position: dict[Op, int]) -> Refusal | None:
    """Return a refusal if another op lies on a path from the producer to the consumer."""
    inside = set(pair.units)
    end = position.get(pair.consumer, 1 << 60)
    stack = [u for v in pair.producer.results for u in rewriter.users(v) if u not in inside]
    seen = set()
    while stack:
        op = stack.pop()
        if op in seen or position.get(op, 0) >= end:
            continue
        seen.add(op)
        for value in op.results:
            for user in rewriter.users(value):
                if user in inside:
                    return refuse(
                        "no cycle",
                        "{0} is between them: it reads {1:value} and feeds {2:value}, so one "
                        "kernel would have to run before and after it",
                        op,
                        pair.producer,
                        user,
                    )
                stack.append(user)
    return None


def widening_refusal(pair: Pair, rewriter: Rewriter, position: dict[Op, int]) -> Refusal | None:
    """Return a refusal if f32 values would be kept instead of their narrow sources.

    That is the case if the producer precedes the loss of a training step and the consumer follows
    it. Values of the forward pass that only gradients need (the slope of gelu) are computed where
    they are read.  A step's first result is its loss, a scalar; other programs have no such
    boundary.
    """
    loss = rewriter.outputs[0] if rewriter.outputs else None
    made_by = rewriter.producer(loss) if loss is not None and not loss.type.rank else None
    if made_by is None:
        return None
    before, turn, after = (position.get(op, 0) for op in (pair.producer, made_by, pair.consumer))
    if not before <= turn < after:
        return None
    inner = {v for op in (pair.producer, *pair.views) for v in op.results}
    read = [v for v in dict.fromkeys(pair.consumer.operands) if v in inner and _is_float(v, 16)]
    made = [v for v in pair.consumer.results if _is_float(v, 32)]
    if not read or sum(v.type.bytes for v in made) <= sum(v.type.bytes for v in read):
        return None
    return refuse(
        "kept narrow",
        "{0:value} would be kept for the backward pass instead of {1:value}, which is narrower",
        pair.consumer,
        pair.producer,
    )


def epilogue_refusal(pair: Pair, rewriter: Rewriter) -> Refusal | None:
    """Return a refusal if ops on a product's result would be computed where they are read.

    As its epilogue they read the sums in registers. Padding reads what they make of them, which is
    smaller if they quantise it; positions in a table are computed before the table is read.
    """
    if family(pair.producer) != "map":
        return None
    reader = next((op for op in flattened(pair.consumer) if op.kind == "core.pad"), None)
    reader = reader or looks_up(pair.consumer, {v for op in pair.units[:-1] for v in op.results})
    if reader is None:
        return None
    products = (op for op, _ in feeders(pair.producer, rewriter) if family(op) == "contraction")
    product = next(products, None)
    if product is None:
        return None
    return refuse(
        "stored before it is read",
        "{0} follows the product {1}, before {2} reads what it makes",
        pair.producer,
        product,
        reader,
    )


def looks_up(unit: Op, values: Collection[Value]) -> Op | None:
    """Return the op of ``unit`` that reads elements at positions computed from ``values``."""
    known = set(values)
    for op in flattened(unit):
        if has_trait(op, "partial_read") and any(v in known for v in op.operands[1:]):
            return op
        if any(v in known for v in op.operands):
            known.update(op.results)
    return None


def _is_float(value: Value, bits: int) -> bool:
    return value.type.dtype.is_float and value.type.dtype.bits == bits


def absorb_copies(unit: Op, rewriter: Rewriter) -> Op | Refusal:
    """Return ``unit`` as a group with copies of the constants, iotas and broadcasts it reads.

    Returns a refusal if there is nothing to copy or the kernel level refuses.
    """
    ops = list(flattened(unit))
    made = {v for op in ops for v in op.results}
    copies: dict[Value, Op] = {}

    def visit(value: Value) -> None:
        producer = rewriter.producer(value)
        if value in made or value in copies or producer is None or not is_copied(producer):
            return
        for operand in producer.operands:
            visit(operand)
        copies[value] = producer

    for op in ops:
        for value in op.uses():
            visit(value)
    if not copies:
        return refuse("copies", "{0} has no operand that is copied", unit)
    refused = cached_join_refusal(tuple(copies.values()), ops, unit.results)
    if refused is not None:
        return refused.renamed(_members_by_value([(unit, ops)]))
    return make_group([*copies.values(), unit], unit.results)


def not_copied(op: Op) -> Refusal | None:
    """Return a refusal if an op is not copied into its readers."""
    if is_copied(op):
        return None
    return refuse(
        "copied ops",
        "{0} is not a constant of one element, iota or broadcast: it is not copied",
        op,
    )


#: The name of each family in a sentence.
FAMILY_WORDS = {
    "contraction": "a product or convolution",
    "reduction": "a reduction",
    "window": "a pooling",
    "map": "elementwise",
    "alone": "a kernel of its own",
}


def family(unit: Op) -> str:
    """Return the family of a unit, which is determined by its heaviest op.

    One of ``contraction``, ``reduction``, ``window``, ``map`` (elementwise ops and index maps) and
    ``alone``.
    """
    found = {_FAMILIES.get(type(definition(op).lower), "map") for op in members(unit)}
    return next(f for f in ("alone", "window", "contraction", "reduction", "map") if f in found)


_FAMILIES = {
    hooks.Contraction: "contraction",
    hooks.Convolution: "contraction",
    hooks.WeightGradient: "contraction",
    hooks.Reduction: "reduction",
    hooks.Window: "window",
    hooks.WindowGradient: "window",
    hooks.Scan: "alone",
    hooks.Custom: "alone",
}


def not_a_unit(op: Op) -> Refusal | None:
    """Return a refusal if an op is no work for a kernel (a constant, a free view, control flow)."""
    if op.kind == GROUP:
        return None
    if op.kind == "core.constant":
        return refuse("work for a kernel", "{0} is a constant: no kernel computes it", op)
    if op.kind in CONTROL_FLOW:
        return refuse("work for a kernel", "{0} is control flow: no kernel contains it", op)
    if is_free_view(op):
        return refuse("work for a kernel", "{0} is a free view: it moves no data", op)
    if definition(op).lower is None:
        return refuse("work for a kernel", "{0} has no lowering to loops", op)
    return None


def is_unit(op: Op) -> bool:
    """Return whether an op is work for a kernel (not a constant, a free view or control flow)."""
    return not_a_unit(op) is None


def feeder(value: Value, rewriter: Rewriter) -> tuple[Op, tuple[Op, ...]] | Refusal:
    """Return the unit that defines ``value``, and the free views in between.

    The views must have no other reader.
    """
    views: tuple[Op, ...] = ()
    producer = rewriter.producer(value)
    while producer is not None and is_free_view(producer):
        if not rewriter.has_one_use(producer.result):
            return refuse(
                "views read once",
                "{0} is a free view in between with several readers: {1}",
                producer,
                rewriter.users(producer.result) or "the caller",
            )
        views = (producer, *views)
        producer = rewriter.producer(producer.operands[0])
    if producer is None:
        return refuse("a producer", "{0} is defined outside this block", value)
    return not_a_unit(producer) or (producer, views)


def feeders(consumer: Op, rewriter: Rewriter) -> list[tuple[Op, tuple[Op, ...]]]:
    """Return the units that feed ``consumer``, in operand order, with the free views between."""
    found: dict[Op, tuple[Op, ...]] = {}
    for value in consumer.operands:
        fed = feeder(value, rewriter)
        if not isinstance(fed, Refusal):
            found.setdefault(*fed)
    return list(found.items())


def not_claimed(unit: Op, claims: Callable[[Op], bool]) -> Refusal | None:
    """Return a refusal if the target executes a unit whole."""
    return (
        refuse("not claimed", "the target executes {0} as a whole", unit) if claims(unit) else None
    )


#: The decision of a fusion about a pair: the merged group, or None to keep them separate.
Decide = Callable[["Pair", dict[Op, int]], Op | None]


@dataclass(frozen=True)
class Fusion:
    """A way to merge producers with their consumers.

    ``rule`` names the rewrites; ``kind_refusal(producer, consumer)`` refuses the pairs that a pass
    does not handle; the kernel level decides what may share a kernel.
    """

    rule: str
    kind_refusal: Callable[[Op, Op], Refusal | None]

    def refusal(
        self, pair: Pair, rewriter: Rewriter, position, claims: Callable[[Op], bool]
    ) -> Refusal | None:
        """Return the first condition that keeps two units separate, or None if they merge."""
        return (
            not_claimed(pair.producer, claims)
            or self.kind_refusal(pair.producer, pair.consumer)
            or refusal(pair, rewriter, position)
        )

    def apply(self, rewriter: Rewriter, claims, decide: Decide | None = None) -> int:
        """Merge producer/consumer units until nothing more fits; return the number of merges.

        Units that the target ``claims`` are kernels of their own and are not merged.  Free views
        between the two are merged too if they have no other reader.  Program order, first fit:
        deterministic.  ``decide`` replaces the conditions (to replay a recorded run).
        """

        def conditions(pair: Pair, position: dict[Op, int]) -> Op | None:
            if self.refusal(pair, rewriter, position, claims) is not None:
                return None
            return make_group(pair.units, pair.outputs(rewriter))

        count = 0
        position = {op: i for i, op in enumerate(rewriter.ops)}
        work = [op for op in reversed(rewriter.ops) if is_unit(op) and not claims(op)]
        while work:
            consumer = work.pop()
            if consumer not in rewriter:
                continue
            for producer, views in feeders(consumer, rewriter):
                pair = Pair(producer, views, consumer)
                group = (decide or conditions)(pair, position)
                if group is None:
                    continue
                (placed,) = rewriter.replace(pair.units, group, rule=self.rule, at=consumer)
                position[placed] = position[consumer]
                work.append(placed)
                count += 1
                break
        return count


@dataclass(frozen=True)
class Pair:
    """Two units that may merge, and the free views between them (without other readers)."""

    producer: Op
    views: tuple[Op, ...]
    consumer: Op

    @property
    def units(self) -> tuple[Op, ...]:
        return (self.producer, *self.views, self.consumer)

    def first(self) -> tuple[Op, ...]:
        return (*flattened(self.producer), *self.views)

    def outputs(self, rewriter: Rewriter) -> list[Value]:
        """Return the values that other ops still read."""
        inside = set(self.units)
        return [
            v
            for unit in self.units
            for v in unit.results
            if rewriter.is_output(v) or any(u not in inside for u in rewriter.users(v))
        ]


def refusal(pair: Pair, rewriter: Rewriter, position) -> Refusal | None:
    """Return why these two units may not share a kernel, or None if they may."""
    refused = (
        cycle_refusal(pair, rewriter, position)
        or widening_refusal(pair, rewriter, position)
        or epilogue_refusal(pair, rewriter)
    )
    if refused is not None:
        return refused
    first, second = pair.first(), flattened(pair.consumer)
    refused = cached_join_refusal(first, second, pair.outputs(rewriter))
    if refused is None:
        return None
    made = len(first) - len(pair.views)
    return refused.renamed(
        _members_by_value([(pair.producer, first[:made]), (pair.consumer, second)])
    )


def _members_by_value(units) -> dict[Value, Op]:
    """Map each value of the flattened ops to the op of the unit that it belongs to.

    The kernel level refers to flat ops; the user knows those of the module.
    """
    return {
        flat.results[0]: op
        for unit, ops in units
        for op, flat in zip(members(unit), ops, strict=True)
        if flat.results
    }


#: Answers of the kernel level by structure: equal blocks of a network ask the same question.
_JOINABLE: dict[str, bool] = {}


def cached_join_refusal(
    first: Sequence[Op], second: Sequence[Op], outputs: Sequence[Value] = ()
) -> Refusal | None:
    """Return ``join_refusal`` of the kernel level, evaluated once per structure."""
    key = _structure(first, second, outputs)
    if _JOINABLE.get(key):
        return None
    refused = join_refusal(first, second, outputs)
    if refused is None:
        _JOINABLE[key] = True
    return refused


def _structure(first, second, outputs) -> str:
    numbers: dict[Value, int] = {}

    def number(value: Value) -> str:
        return f"{numbers.setdefault(value, len(numbers))}:{value.type!r}"

    rows = [
        (
            op.kind,
            *map(number, op.operands),
            *map(repr, op.attributes.items()),
            *map(number, op.results),
        )
        for op in (*first, *second)
    ]
    return repr((len(first), rows, [number(v) for v in outputs]))
