"""Control flow and grouping: ops with regions.

``core.if`` and ``core.while`` pass their operands to the regions as arguments; a region may also
read values of the enclosing blocks. ``core.group`` is isolated: it sees only its arguments.
"""

from __future__ import annotations

from core_compiler.ir import Block, Op
from core_compiler.ops import typed
from core_compiler.ops.base import Attr, OpDef, agrees, declare
from core_compiler.ops.costs import cost
from core_compiler.ops.precision import REGION
from core_compiler.ops.rules import BOOL, need, need_dtype, need_rank
from core_compiler.support.errors import InternalError


def _need_arguments(region: str, block: Block, types) -> None:
    """Check that the region's arguments have the operands' types."""
    found = [v.type for v in block.arguments]
    need(
        len(found) == len(types) and all(map(agrees, found, types)),
        f"region {region} takes ({_types(found)}), got ({_types(types)})",
    )


def _need_outputs(region: str, block: Block, types) -> None:
    found = [v.type for v in block.outputs]
    need(
        len(found) == len(types) and all(map(agrees, found, types)),
        f"region {region} returns ({_types(found)}), expected ({_types(types)})",
    )


def _types(types) -> str:
    return ", ".join(map(str, types))


def _need_scalar_bool(name: str, found) -> None:
    need_dtype(name, found, (BOOL,))
    need_rank(name, found, 0)


def _block_flops(block: Block) -> int:
    return sum(cost(op).flops for op in block.ops)


# -- if --------------------------------------------------------------------------------------------


def _if_rule(types, attributes, regions):
    condition, *captures = types
    then, other = regions
    _need_scalar_bool("condition", condition)
    _need_arguments("then", then, captures)
    _need_arguments("else", other, captures)
    made = [v.type for v in then.outputs]
    _need_outputs("else", other, made)
    return tuple(t.with_(order=None) for t in made)


def _if_execute(op: Op, arrays, run):
    condition, *captures = arrays
    return run(op.regions[0 if condition else 1], captures)


declare(
    OpDef(
        "core.if",
        "The outputs of the region then if condition is true, of the region else otherwise",
        ("condition", "*captures"),
        _if_rule,
        flops=lambda op: max(map(_block_flops, op.regions)),
        regions=("then", "else"),
        execute=_if_execute,
        precision=REGION,
    )
)


# -- while -----------------------------------------------------------------------------------------


def _while_rule(types, attributes, regions):
    condition, body = regions
    _need_arguments("condition", condition, types)
    _need_arguments("body", body, types)
    need(
        len(condition.outputs) == 1,
        f"region condition returns {len(condition.outputs)} values, expected one",
    )
    _need_scalar_bool("the output of region condition", condition.outputs[0].type)
    _need_outputs("body", body, types)
    trips = attributes["trips"]
    need(trips is None or trips >= 0, f"trips = {trips} is negative")
    return tuple(t.with_(order=None) for t in types)


def _while_execute(op: Op, arrays, run):
    condition, body = op.regions
    carried, trips = tuple(arrays), 0
    while run(condition, carried)[0]:
        carried, trips = run(body, carried), trips + 1
    declared = typed.While.of(op).trips
    if declared not in (None, trips):
        raise InternalError(f"{op} ran its body {trips} times, expected trips = {declared}")
    return carried


def _while_flops(op: typed.While) -> int:
    """Return the flops of all iterations if the trip count is known, else of one iteration."""
    condition, body = map(_block_flops, op.regions)
    trips = op.trips
    return condition + body if trips is None else (trips + 1) * condition + trips * body


declare(
    OpDef(
        "core.while",
        "Runs the region body on the carried values while the region condition is true",
        ("*carried",),
        _while_rule,
        attributes={"trips": Attr(int, None, "number of iterations; absent: depends on data")},
        flops=_while_flops,
        regions=("condition", "body"),
        execute=_while_execute,
        precision=REGION,
    )
)


# -- group -----------------------------------------------------------------------------------------


def _group_rule(types, attributes, regions):
    (body,) = regions
    _need_arguments("body", body, types)
    free = body.free_values()
    need(not free, f"the region reads {free[0] if free else None} from outside")
    return tuple(v.type for v in body.outputs)


declare(
    OpDef(
        "core.group",
        "Ops that become one kernel, created by the fusion passes; the semantics are its region's",
        ("*inputs",),
        _group_rule,
        flops=lambda op: _block_flops(op.regions[0]),
        regions=("body",),
        execute=lambda op, arrays, run: run(op.regions[0], arrays),
        precision=REGION,
    )
)
