"""Lowering of a group of tensor ops to an unscheduled kernel: plain loops that define the meaning.

``lower_group(op)`` lowers a ``core.group`` (or one op) to a kernel that is generic in sizes;
``join_refusal`` tests for the fusion passes whether ops fit one kernel. The order of accumulation
in the loops emitted here *is* the contract's (numerics): chunks of 256 for products and sequences,
32 lanes and chunks of 4096 for the last axis, windows row-major. Schedules may not change it.
"""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.ir import Block, Op, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.lowering import custom
from core_compiler.lowering.element_expressions import CannotLower
from core_compiler.lowering.emission import Emitter
from core_compiler.lowering.lowered import Lowered
from core_compiler.lowering.planning import Plan, make_plan
from core_compiler.ops.base import definition
from core_compiler.ops.builder import decomposed
from core_compiler.ops.hooks import Custom, Scan
from core_compiler.ops.traits import has_trait

GROUP = "core.group"


def expanded(block: Block) -> Block:
    """Return the block with attributes filled in and composites without a hook decomposed."""
    ops: list[Op] = []
    renamed: dict[Value, Value] = {}

    def append_op(op: Op) -> None:
        op = op.substitute(renamed)
        declared = definition(op)
        if declared.lower is not None or declared.decompose is None:
            ops.append(op.with_(attributes=_plain(declared.fill(op.attributes))))
            return
        inner = decomposed(op)
        renamed.update(zip(inner.arguments, op.operands, strict=True))
        for part in inner.ops:
            append_op(part if part.origin is not None else part.with_(origin=op.origin))
        for old, new in zip(op.results, inner.outputs, strict=True):
            renamed[old] = renamed.get(new, new)

    for op in block.ops:
        append_op(op)
    return Block(block.arguments, tuple(ops), tuple(renamed.get(v, v) for v in block.outputs))


def _plain(attributes: dict) -> dict:
    return {k: v for k, v in attributes.items() if v is not None}


def block_of(op: Op) -> Block:
    """Return the block of a group; a single op becomes a block, with new arguments."""
    if op.kind == GROUP:
        return op.regions[0]
    arguments = tuple(Value(v.type, v.name) for v in op.operands)
    results = tuple(Value(v.type, v.name) for v in op.results)
    return Block(arguments, (op.with_(operands=arguments, results=results),), results)


#: Largest number of ops in a kernel. Sample models reach 21; for a chain of hundreds, the compile
#: time exceeds the savings in memory traffic (60 gelus in one kernel: 39 s).
MOST_OPS = 96


def join_refusal(
    first: Sequence[Op], second: Sequence[Op], outputs: Sequence[Value] = ()
) -> Refusal | None:
    """Return None if the ops of both units fit one kernel, else a :class:`Refusal`.

    ``first`` feeds ``second`` (both in program order, in terms of outer values). ``outputs`` are
    results of either with other users (results without users in either are always outputs).
    """
    ops = [*first, *second]
    used = {v for op in ops for v in op.uses()}
    made = {v: None for op in ops for v in op.results}
    inputs = dict.fromkeys(v for op in ops for v in op.uses() if v not in made)
    results = dict.fromkeys([*outputs, *(v for v in made if v not in used)])
    block = Block(tuple(inputs), tuple(ops), tuple(results))
    try:
        block = expanded(block)
        for op in block.ops:
            if isinstance(definition(op).lower, Custom | Scan):
                return refuse("not alone", "{0} is a kernel of its own", op)
        if len(block.ops) > MOST_OPS:
            text = "the kernel would have {1} primitive ops, the limit is {2}"
            return refuse("size", text, second[0], len(block.ops), MOST_OPS)
        make_plan(block)
    except CannotLower as error:
        return error.refusal
    return None


def lower_group(op: Op, name: str | None = None) -> Lowered:
    """Return the unscheduled kernel of a group or of one op; raise :class:`CannotLower` otherwise.

    The same access pattern, dtypes and scalar ops yield an equal function, for all sizes.
    """
    block = expanded(block_of(op))
    if len(block.ops) >= 1 and isinstance(definition(block.ops[-1]).lower, Custom | Scan):
        return custom.lower(block, name or kernel_name(block))
    plan = make_plan(block)
    function, arguments = Emitter(plan, name or kernel_name(block), family(plan)).write()
    over = tuple(
        (block.outputs.index(v), block.arguments.index(part.operands[0]))
        for v, part in plan.parts.items()
    )
    return Lowered(function, arguments, over)


def kernel_name(block: Block) -> str:
    """Return a name like ``add_relu``: the computing ops, at most four, each once."""
    computing = [op for op in block.ops if op.operands and not has_trait(op, "shape_only")]
    names = list(dict.fromkeys(op.kind.split(".")[-1] for op in computing or block.ops[-1:]))
    return "_".join(names if len(names) <= 4 else [*names[:3], names[-1]])


def family(plan: Plan) -> str:
    """Return the kernel's family of schedules."""
    forms = {h.nest.form for h in plan.nests}
    if not forms:
        return "elementwise"
    for form in ("contraction", "convolution", "window"):
        if form in forms:
            return form
    return "rows"
