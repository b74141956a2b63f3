"""Control flow in TOSA, whose regions can only access their arguments."""

from __future__ import annotations

from collections.abc import Sequence

from core_compiler.exporters.mlir.context import plain
from core_compiler.exporters.mlir.literals import type_text
from core_compiler.exporters.mlir.text import Ref, Region
from core_compiler.exporters.mlir.tosa.context import Tosa, op
from core_compiler.ir import Block
from core_compiler.ops import typed


def _region(
    b: Tosa, block: Block, own: int, given: Sequence[Ref], op: typed.If | typed.While, carried: bool
) -> Region:
    """Write a block with its outer values as extra arguments, which loops (``carried``) return."""
    outer = _outer(op)
    with b.writer.isolated([v.type for v in given]) as region:
        before = [b.env[v] for v in outer]
        b.env.update(zip(outer, region.arguments[own:], strict=True))
        made = b.block(block, region.arguments[:own])
        made = (*made, *region.arguments[own:]) if carried else made
        names, types = ", ".join(f"{v}" for v in made), ", ".join(type_text(v.type) for v in made)
        b.writer.end(f'"tosa.yield"({names}) : ({types}) -> ()')
        b.env.update(zip(outer, before, strict=True))
    return region


def _outer(op: typed.If | typed.While) -> list:
    """Return the values defined outside an op that its regions use, without its operands."""
    inside = dict.fromkeys(v for block in op.regions for v in block.free_values())
    return list(inside)


@op("if")
def if_(b: Tosa, op: typed.If, condition: Ref, *captures: Ref) -> tuple[Ref, ...]:
    given = [*captures, *(b.env[v] for v in _outer(op))]
    regions = [_region(b, block, len(captures), given, op, False) for block in op.regions]
    return b.regional("cond_if", [condition, *given], [plain(v.type) for v in op.results], regions)


@op("while")
def while_(b: Tosa, op: typed.While, *carried: Ref) -> tuple[Ref, ...]:
    given = [*carried, *(b.env[v] for v in _outer(op))]
    condition, body = op.regions
    regions = [
        _region(b, condition, len(carried), given, op, False),
        _region(b, body, len(carried), given, op, True),
    ]
    made = b.regional("while_loop", given, [v.type for v in given], regions)
    return made[: len(carried)]
