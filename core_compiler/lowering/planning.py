"""The planner of a group's loops: one iteration space, its row axes, and the staged values.

The space starts as the axes of the group's *root* output in memory order. Axes are split if a
reshape needs it and merged again if every address allows it, so that equal access patterns yield
equal kernels, whatever the ranks of the tensors were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from core_compiler.ir import Block, Op, Value
from core_compiler.ir.types import ordered_strides
from core_compiler.kernel_ir.ops import definition as kernel_op
from core_compiler.lowering.element_expressions import CannotLower, Inliner, Node
from core_compiler.ops.affine import (
    ZERO,
    AffineExpr,
    Axis,
    Clamped,
    Data,
    Quotient,
    Remainder,
    axis_index,
    find_axis_split,
)
from core_compiler.ops.base import definition
from core_compiler.ops.hooks import Part

#: A row value of at least this cost is kept in scratch (or read back from an output) instead.
_STAGE_COST = 4
#: A product computes an operand itself at most so often: more arithmetic costs more than memory.
MOST_REPEATS = 4


@dataclass(frozen=True)
class Store:
    """An output: ``node`` is the element of ``value``, output number ``output`` of the group."""

    output: int
    value: Value
    node: Node
    address: AffineExpr


@dataclass(eq=False)
class Phase:
    """A sweep over a row: the loops of a reduction nest, or the final sweep (``nest`` None).

    ``keep``: nodes that later phases read again, with the axis they run along.
    """

    nest: Node | None
    stores: list[Store] = field(default_factory=list)
    keep: dict[Value, Node] = field(default_factory=dict)
    reuse: dict[Node, Value] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Node, ...]:
        stored = tuple(s.node for s in self.stores)
        return stored if self.nest is None else (*self.nest.nest.terms, *stored)


@dataclass(eq=False)
class Plan:
    """The loops of a group.

    ``rows`` are the parallel axes, outermost first, and ``inner`` the axes of the last sweep. The
    plan also has the phases of a row in order, and the outputs with one element per row. ``parts``:
    outputs of which only a box is written -> the ops that replace it.
    """

    block: Block
    parts: dict[Value, Op]
    inliner: Inliner
    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    phases: tuple[Phase, ...]
    row_stores: tuple[Store, ...]

    @property
    def nests(self) -> tuple[Node, ...]:
        return tuple(p.nest for p in self.phases if p.nest is not None)


@dataclass(frozen=True)
class IterationSpace:
    """``axes`` in loop order; ``dims``: each dimension of the root as an expression of them."""

    axes: tuple[Axis, ...]
    dims: tuple[AffineExpr, ...]

    @staticmethod
    def of(shape: Sequence[int], order) -> IterationSpace:
        order = tuple(range(len(shape))) if order is None else order
        dims: list[AffineExpr] = [ZERO] * len(shape)
        axes: list[Axis] = []
        for dim in order:
            if shape[dim] != 1:
                axes.append(Axis(len(axes), shape[dim]))
                dims[dim] = axis_index(axes[-1])
        return IterationSpace(tuple(axes), tuple(dims))

    def replaced(self, change: dict[Axis, tuple[list[int], Callable]]) -> IterationSpace:
        """Replace each axis of ``change`` by axes of the given sizes, numbered in order.

        The function returns the old index in terms of the new ones.
        """
        axes: list[Axis] = []
        env: dict[Axis, AffineExpr] = {}
        for axis in self.axes:
            sizes, make = change.get(axis, ([axis.size], lambda i: i))
            made = [Axis(len(axes) + n, size) for n, size in enumerate(sizes)]
            axes += made
            env[axis] = make(*map(axis_index, made))
        return IterationSpace(tuple(axes), tuple(substitute(d, env) for d in self.dims))

    def split(self, axis: Axis, factor: int) -> IterationSpace:
        return self.replaced({axis: ([axis.size // factor, factor], lambda a, b: a * factor + b)})

    def merged(self, first: Axis) -> IterationSpace:
        """Merge ``first`` and the next axis."""
        position = self.axes.index(first)
        second = self.axes[position + 1]
        whole = Axis(first.number, first.size * second.size)
        index = axis_index(whole)
        env = {first: index // second.size, second: index % second.size}
        axes = [*self.axes[:position], whole]
        for axis in self.axes[position + 2 :]:
            axes.append(Axis(axis.number - 1, axis.size))
            env[axis] = axis_index(axes[-1])
        return IterationSpace(tuple(axes), tuple(substitute(d, env) for d in self.dims))


def substitute(e: AffineExpr, env: dict[Axis, AffineExpr]) -> AffineExpr:
    """Return ``e`` with axes replaced by expressions (axes missing in ``env`` stay)."""
    total = AffineExpr((), e.constant)
    parts = []
    for atom, c in e.terms:
        if isinstance(atom, Axis):
            parts.append(env.get(atom, axis_index(atom)) * c)
        elif isinstance(atom, Quotient):
            parts.append((substitute(atom.of, env) // atom.by) * c)
        elif isinstance(atom, Remainder):
            parts.append((substitute(atom.of, env) % atom.by) * c)
        else:
            raise CannotLower(
                "indices from the loops", "the iteration space has an index read from data"
            )
    # Use a single combination, so that quotient and remainder are recognised.
    from core_compiler.ops.affine import combine

    return combine(
        (t for p in parts for t in p.terms), total.constant + sum(p.constant for p in parts)
    )


def make_plan(block: Block) -> Plan:
    """Return the plan of a block; raise :class:`CannotLower` with the reason if there is none."""
    reasons: list[CannotLower] = []
    for root in _root_candidates(block, written_parts(block)):
        try:
            return _plan_for(block, root)
        except CannotLower as error:
            reasons.append(error)
    raise reasons[0] if reasons else CannotLower("work", "there is nothing to compute")


def written_parts(block: Block) -> dict[Value, Op]:
    """Return the outputs of which a kernel writes only a box, over an otherwise unused operand.

    The kernel must not read such an output either; if it does, the kernel is refused, because it
    would write all of it.
    """
    producers, users, parts = block.producers(), block.users(), {}
    for value in block.outputs:
        op = producers.get(value)
        if op is None or not isinstance(definition(op).lower, Part):
            continue
        before = producers.get(op.operands[0])
        if before is not None and isinstance(definition(before).lower, Part):
            raise CannotLower(
                "a part alone", "{0} and {1} each write a part of the same value", op, before
            )
        if op.operands[0] not in block.arguments:
            continue
        old, kept = op.operands[0], value.type.order == op.operands[0].type.order
        if not kept or not value.type.elements or op.operands.count(old) > 1:
            continue
        others = [*users.get(value, ()), *(o for o in users[old] if o is not op)]
        if others or block.outputs.count(value) > 1:
            raise CannotLower(
                "a part alone",
                "{0} writes a part of its operand in place, and {1} also reads it",
                op,
                others[0] if others else "the caller",
            )
        parts[value] = op
    return parts


def _root_candidates(block: Block, parts: dict[Value, Op]) -> list[Value]:
    """Return the outputs, the largest first (the last of equals first).

    The others are stored in the loops of the first.
    """
    outputs = list(enumerate(block.outputs))
    outputs.sort(key=lambda item: (-_written_tensor(item[1], parts).type.elements, -item[0]))
    return list(dict.fromkeys(v for _, v in outputs))


def _written_tensor(value: Value, parts: dict[Value, Op]) -> Value:
    """Return the tensor whose elements a kernel stores for an output: the box, if partial."""
    return parts[value].operands[1] if value in parts else value


def _plan_for(block: Block, root: Value) -> Plan:
    box = _written_tensor(root, written_parts(block))
    space = IterationSpace.of(box.type.shape, root.type.order)
    for _ in range(24):
        plan = _plan_in_space(block, root, space)
        axis_split = next(
            (w for e in _index_expressions(plan) if (w := find_axis_split(e)) is not None), None
        )
        if axis_split is None or axis_split[0] not in space.axes:
            break
        space = space.split(*axis_split)
    merging = True
    while merging:
        merging = False
        for first, second in zip(space.axes, space.axes[1:], strict=False):
            same_side = (first in plan.rows) == (second in plan.rows)
            if (
                same_side
                and second.size
                and all(_mergeable(e, first, second) for e in _index_expressions(plan))
            ):
                space = space.merged(first)
                plan = _plan_in_space(block, root, space)
                merging = True
                break
    _check_columns(plan)
    _stage_row_values(plan)
    return plan


def _index_expressions(plan: Plan):
    for phase in plan.phases:
        for store in phase.stores:
            yield store.address
        for root in phase.roots:
            for node in root.walk(through_nests=True):
                yield from node.index_expressions()
        if phase.nest is not None:
            yield from phase.nest.index_expressions()
    for store in plan.row_stores:
        yield store.address
        for node in store.node.walk(through_nests=True):
            yield from node.index_expressions()


def _mergeable(e: AffineExpr, first: Axis, second: Axis) -> bool:
    """Return whether ``e`` uses the axes only as ``first * size(second) + second``."""
    for atom, _ in e.terms:
        if isinstance(atom, Quotient | Remainder | Clamped):
            if not _mergeable(atom.of, first, second):
                return False
        elif isinstance(atom, Data) and not all(_mergeable(i, first, second) for i in atom.index):
            return False
    return e.coefficient(first) == e.coefficient(second) * second.size


def _plan_in_space(block: Block, root: Value, space: IterationSpace) -> Plan:
    inliner, parts = Inliner(block), written_parts(block)
    root_node = inliner.inline(_written_tensor(root, parts), space.dims)
    root_nodes = {root: root_node}
    for value in block.outputs:
        box = _written_tensor(value, parts)
        if value is not root and box.type.shape == _written_tensor(root, parts).type.shape:
            root_nodes[value] = inliner.inline(box, space.dims)
    nests = _find_nests(root_nodes.values())
    rows = _row_axes(nests, space)
    _inline_row_outputs(block, inliner, root_nodes, rows, parts)
    nests = _find_nests(root_nodes.values())
    rows = _row_axes(nests, space)
    inner = tuple(a for a in space.axes if a not in rows)
    phases = [Phase(h) for h in nests]
    row_stores: list[Store] = []
    last = Phase(None)
    for number, value in enumerate(block.outputs):
        if value in block.arguments:
            raise CannotLower("work", "{0} is an input and an output: no kernel is needed", value)
        store, phase = _place_output(number, value, inliner, parts, phases, rows, space)
        if phase is None and store.address.axes <= set(rows):
            row_stores.append(store)
        else:
            (phase or last).stores.append(store)
    if last.stores:
        phases.append(last)
    _check_fusion(nests)
    return Plan(block, parts, inliner, rows, inner, tuple(phases), tuple(row_stores))


def _find_nests(roots) -> list[Node]:
    """Return the reduction nests in execution order, without those inside another's loops."""
    found: dict[Node, None] = {}

    def visit(node: Node):
        for child in node.inputs:
            visit_once(child)
        if node.nest is not None:
            for term in node.nest.terms:
                visit_rows(term, frozenset(node.nest.axes))
            found.setdefault(node)

    seen: set[Node] = set()

    def visit_once(node: Node):
        if node not in seen:
            seen.add(node)
            visit(node)

    def visit_rows(node: Node, loops: frozenset):
        """Collect nodes below a reduction nest that do not depend on its loops: also row values."""
        for below in node.walk():
            if below.nest is not None:
                if not loops & below.axes:
                    visit_once(below)
                else:
                    for term in below.nest.terms:
                        visit_rows(term, loops | frozenset(below.nest.axes))

    for root in roots:
        visit_once(root)
    return list(found)


def _row_axes(nests: list[Node], space: IterationSpace) -> tuple[Axis, ...]:
    if not nests:
        return space.axes
    rows = [set(h.axes) & set(space.axes) for h in nests]
    for node, axes in zip(nests, rows, strict=True):
        if axes != rows[0]:
            raise CannotLower(
                "the same rows",
                "they reduce different rows: {0} over {0:reduces}, {1} over {1:reduces}",
                nests[0].op,
                node.op,
            )
        if not node.axes <= set(space.axes):
            raise CannotLower(
                "loops side by side",
                "{0} would run inside another op's loop: it depends on more than the kernel's rows",
                node.op,
            )
    return tuple(a for a in space.axes if a in rows[0])


def _inline_row_outputs(block, inliner: Inliner, root_nodes, rows, parts: dict[Value, Op]) -> None:
    """Inline the remaining outputs with the shape of the rows at the row's index."""
    reached = {value for value, _ in inliner.nodes}
    shape = tuple(a.size for a in rows)
    for value in block.outputs:
        box = _written_tensor(value, parts)
        wide = [d for d in box.type.shape if d != 1]
        if value in root_nodes or box in reached:
            continue
        if prod(wide) != prod(shape):
            raise CannotLower(
                "outputs of one shape",
                "{0} has other readers and {1} elements, but this kernel has {2} rows: the outputs "
                "have different shapes",
                block.producers().get(value, value),
                prod(wide),
                prod(shape),
            )
        index, position = [], ZERO
        for axis in rows:
            position = position * axis.size + axis_index(axis)
        from core_compiler.ops.index_maps import unravel

        index = unravel(position, box.type.shape)
        root_nodes[value] = inliner.inline(box, index)


def _place_output(number, value, inliner, parts: dict[Value, Op], phases, rows, space):
    """Return the node that is an output's element, and its phase (None: the last)."""
    box = _written_tensor(value, parts)
    begin: Sequence[AffineExpr] = [ZERO] * value.type.rank
    if value in parts:
        declared = definition(parts[value])
        begin = declared.lower.starts(inliner, declared.view(parts[value]))

    def address(index, shape) -> AffineExpr:
        total = ZERO
        for i, stride in zip(index, ordered_strides(shape, value.type.order), strict=True):
            total = total + i * stride
        return total

    def store(node, index):
        moved = [i + start for i, start in zip(index, begin, strict=True)]
        return Store(number, value, node, address(moved, value.type.shape))

    candidates = [
        (address(index, box.type.shape), index, node)
        for (v, index), node in inliner.nodes.items()
        if v is box
    ]
    for location, index, node in candidates:
        over = set(rows) if location.axes <= set(rows) else set(space.axes)
        if location.axes <= over and _is_onto(location, box, over):
            return store(node, index), None
    for location, index, node in candidates:
        for phase in phases:
            loops = set(phase.nest.nest.axes)
            one_sweep = phase.nest.nest.form in ("lanes", "sequence")
            if (
                one_sweep
                and _is_onto(location, box, set(rows) | loops)
                and any(n is node for t in phase.nest.nest.terms for n in t.walk())
            ):
                return store(node, index), phase
    raise CannotLower(
        "each output element once",
        "{0} has other readers, and this kernel would not visit each of its elements exactly once",
        inliner.producers.get(value, value),
    )


def _is_onto(address: AffineExpr, value: Value, axes: set[Axis]) -> bool:
    """Return whether ``address`` visits every element of a tensor like ``value`` exactly once."""
    if address.constant or any(not isinstance(a, Axis) for a, _ in address.terms):
        return False
    step = 1
    terms: Sequence[Any] = address.terms  # (Axis, coefficient), as checked above
    for axis, c in sorted(terms, key=lambda t: t[1]):
        if c != step:
            return False
        step *= axis.size
    wide = {a for a in axes if a.size != 1}
    return (step == max(value.type.elements, 0) and set(address.axes) == wide) or (
        value.type.elements == 0 and set(address.axes) <= wide
    )


def _check_fusion(nests: list[Node]) -> None:
    """Check that products, convolutions and windows are alone and have simple operands.

    An operand that a product of few rows reads may be computed, once for each row.
    """
    for node in nests:
        loops = frozenset(node.nest.axes)
        for term in node.nest.terms:
            for part in term.walk():
                if part.nest is not None and part.op is not node.op and part.axes & loops:
                    raise CannotLower(
                        "loops side by side",
                        "{0} would run again inside each step of {1}: a reduction inside another's "
                        "loop",
                        part.op,
                        node.op,
                    )
        if node.nest.form in ("contraction", "convolution", "window"):
            _check_computed_once(node, nests)
            others = [h for h in nests if h.op is not node.op]
            if others:
                raise CannotLower(
                    "a product alone",
                    "{0} cannot share a kernel with {1}: each has its own loops",
                    node.op,
                    others[0].op,
                )
            for term in node.nest.terms:
                few = node.nest.form == "contraction" and _repeats(node, term) <= MOST_REPEATS
                for part in term.walk():
                    own = part.op is node.op or part.function == "cast"
                    if part.kind == "compute" and not own and not few:
                        raise CannotLower(
                            "plain operands",
                            "{0} feeds {1}, which rereads its operands for each output: the "
                            "arithmetic would run again",
                            part.op,
                            node.op,
                        )


def _repeats(node: Node, term: Node) -> int:
    """Return how often a product reads each element of a term."""
    return prod(axis.size for axis in node.axes - term.axes)


def _check_columns(plan: Plan) -> None:
    """Check that the columns of a product's computed operand are adjacent where it loads them."""
    for node in plan.nests:
        for term in node.nest.terms if node.nest.form == "contraction" else ():
            parts = list(term.walk())
            computed = next(
                (p for p in parts if p.kind == "compute" and p.function != "cast"), None
            )
            loads = [p.address for p in parts if p.kind == "load"]
            if computed is not None and not (
                plan.rows and all(_is_adjacent(a, plan.rows[-1]) for a in loads)
            ):
                raise CannotLower(
                    "columns side by side",
                    "{0} feeds {1}, whose columns it would read one by one",
                    computed.op,
                    node.op,
                )


def _is_adjacent(address: AffineExpr, axis: Axis) -> bool:
    """Return whether an address stays or advances by one with ``axis``."""
    return all(part is axis and c == 1 for part, c in address.terms if axis in part.axes)


def _check_computed_once(node: Node, nests: list[Node]) -> None:
    """Refuse a product whose elements a kernel would compute more than once."""
    if any(h.op is node.op for h in nests if h is not node):
        raise CannotLower(
            "each product once",
            "{0} is read at several indices: each read would recompute it",
            node.op,
        )
    elements = node.op.result.type.elements if node.op is not None else 0
    computed = prod(axis.size for axis in node.axes)
    if computed > elements > 0:
        raise CannotLower(
            "each product once",
            "{0} has {1} elements, but this kernel would compute {2}: its readers visit some "
            "elements twice, or positions outside it",
            node.op,
            elements,
            computed,
        )


# -- staging ---------------------------------------------------------------------------------------


def cost(node: Node) -> int:
    """Return the cost of recomputing a node: 1 for a load, the declared cost for an op."""
    total = 0
    for part in node.walk():
        if part.kind == "load":
            total += 1
        elif part.kind in ("compute", "choose"):
            formula = not isinstance(part.function, str)
            known = part.kind == "choose" or formula
            total += (
                _STAGE_COST
                if formula
                else 1
                if known
                else kernel_op(f"kernel.{part.function}").cost
            )
    return total


def _position(node: Node, rows: set[Axis]) -> tuple[AffineExpr, Axis, int] | None:
    """Return (row part, the axis inside the row, its coefficient) of a node's position.

    The position is row-major, with exactly one axis inside the row.
    """
    if node.value is None or node.value.type.rank != len(node.index):
        return None
    position = ZERO
    for i, stride in zip(node.index, ordered_strides(node.value.type.shape, None), strict=True):
        position = position + i * stride
    inside = [(a, c) for a, c in position.terms if not (a.axes <= rows)]
    if len(inside) != 1:
        return None
    axis, c = inside[0]
    if not isinstance(axis, Axis):
        return None
    return position - axis_index(axis) * c, axis, c


def _stage_row_values(plan: Plan) -> None:
    """Mark expensive row values of earlier phases that a later phase reads back."""
    rows = set(plan.rows)
    known: dict[Value, tuple] = {}
    for phase in plan.phases:
        if phase.nest is not None and phase.nest.nest.form not in ("lanes", "sequence"):
            continue
        for root in phase.roots:
            _mark_reuse(root, phase, known, rows)
        for root in phase.roots:
            for node in root.walk():
                position = _position(node, rows)
                if position is not None and node.value not in known:
                    known[node.value] = (position, node, phase)


def _mark_reuse(node: Node, phase: Phase, known, rows) -> None:
    if node in phase.reuse or node.nest is not None:
        return
    position = _position(node, rows) if node.value in known else None
    if position is not None and node.kind != "load":
        (row, axis, c), first, owner = known[node.value]
        same = position[0] == row and position[1].size == axis.size and position[2] == c
        # A value that is constant along the row (a broadcast number) is not kept for each position.
        same = same and all(sum(a not in rows for a in n.axes) == 1 for n in (node, first))
        if same and owner is not phase and cost(node) >= _STAGE_COST:
            owner.keep[node.value] = first
            phase.reuse[node] = node.value
            return
    for child in node.inputs:
        _mark_reuse(child, phase, known, rows)
