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
from core_compiler.lowering.element_expressions import CannotLower, Node, Puller
from core_compiler.ops.affine import (
    ZERO,
    Axis,
    Clamped,
    Data,
    Lin,
    Quotient,
    Remainder,
    axis_index,
    split_wanted,
)
from core_compiler.ops.base import definition
from core_compiler.ops.hooks import Part

#: A row value of at least this cost is kept in scratch (or read back from an output) instead.
_STAGE_COST = 4


@dataclass(frozen=True)
class Store:
    """An output: ``node`` is the element of ``value``, output number ``output`` of the group."""

    output: int
    value: Value
    node: Node
    address: Lin


@dataclass(eq=False)
class Phase:
    """A sweep over a row: the loops of a reduction nest, or the final sweep (``heavy`` None).

    ``keep``: nodes that later phases read again, with the axis they run along.
    """

    heavy: Node | None
    stores: list[Store] = field(default_factory=list)
    keep: dict[Value, Node] = field(default_factory=dict)
    reuse: dict[Node, Value] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Node, ...]:
        stored = tuple(s.node for s in self.stores)
        return stored if self.heavy is None else (*self.heavy.heavy.terms, *stored)


@dataclass(eq=False)
class Plan:
    """The loops of a group.

    ``rows`` are the parallel axes, outermost first, and ``inner`` the axes of the last sweep. The
    plan also has the phases of a row in order, and the outputs with one element per row. ``parts``:
    outputs of which only a box is written -> the ops that replace it.
    """

    block: Block
    parts: dict[Value, Op]
    puller: Puller
    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    phases: tuple[Phase, ...]
    row_stores: tuple[Store, ...]

    @property
    def heavies(self) -> tuple[Node, ...]:
        return tuple(p.heavy for p in self.phases if p.heavy is not None)


@dataclass(frozen=True)
class Space:
    """``axes`` in loop order; ``dims``: each dimension of the root as an expression of them."""

    axes: tuple[Axis, ...]
    dims: tuple[Lin, ...]

    @staticmethod
    def of(shape: Sequence[int], order) -> Space:
        order = tuple(range(len(shape))) if order is None else order
        dims: list[Lin] = [ZERO] * len(shape)
        axes: list[Axis] = []
        for dim in order:
            if shape[dim] != 1:
                axes.append(Axis(len(axes), shape[dim]))
                dims[dim] = axis_index(axes[-1])
        return Space(tuple(axes), tuple(dims))

    def replaced(self, change: dict[Axis, tuple[list[int], Callable]]) -> Space:
        """Replace each axis of ``change`` by axes of the given sizes, numbered in order.

        The function returns the old index in terms of the new ones.
        """
        axes: list[Axis] = []
        env: dict[Axis, Lin] = {}
        for axis in self.axes:
            sizes, make = change.get(axis, ([axis.size], lambda i: i))
            made = [Axis(len(axes) + n, size) for n, size in enumerate(sizes)]
            axes += made
            env[axis] = make(*map(axis_index, made))
        return Space(tuple(axes), tuple(substitute(d, env) for d in self.dims))

    def split(self, axis: Axis, factor: int) -> Space:
        return self.replaced({axis: ([axis.size // factor, factor], lambda a, b: a * factor + b)})

    def merged(self, first: Axis) -> Space:
        """Merge ``first`` and the next axis."""
        place = self.axes.index(first)
        second = self.axes[place + 1]
        whole = Axis(first.number, first.size * second.size)
        index = axis_index(whole)
        env = {first: index // second.size, second: index % second.size}
        axes = [*self.axes[:place], whole]
        for axis in self.axes[place + 2 :]:
            axes.append(Axis(axis.number - 1, axis.size))
            env[axis] = axis_index(axes[-1])
        return Space(tuple(axes), tuple(substitute(d, env) for d in self.dims))


def substitute(e: Lin, env: dict[Axis, Lin]) -> Lin:
    """Return ``e`` with axes replaced by expressions (axes missing in ``env`` stay)."""
    total = Lin((), e.constant)
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
    makers, users, parts = block.producers(), block.users(), {}
    for value in block.outputs:
        op = makers.get(value)
        if op is None or not isinstance(definition(op).lower, Part):
            continue
        before = makers.get(op.operands[0])
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
    outputs.sort(key=lambda item: (-_written(item[1], parts).type.elements, -item[0]))
    return list(dict.fromkeys(v for _, v in outputs))


def _written(value: Value, parts: dict[Value, Op]) -> Value:
    """Return the tensor whose elements a kernel stores for an output: the box, if partial."""
    return parts[value].operands[1] if value in parts else value


def _plan_for(block: Block, root: Value) -> Plan:
    box = _written(root, written_parts(block))
    space = Space.of(box.type.shape, root.type.order)
    for _ in range(24):
        plan = _attempt(block, root, space)
        wanted = next((w for e in _lins(plan) if (w := split_wanted(e)) is not None), None)
        if wanted is None or wanted[0] not in space.axes:
            break
        space = space.split(*wanted)
    merging = True
    while merging:
        merging = False
        for first, second in zip(space.axes, space.axes[1:], strict=False):
            same_side = (first in plan.rows) == (second in plan.rows)
            if same_side and second.size and all(_mergeable(e, first, second) for e in _lins(plan)):
                space = space.merged(first)
                plan = _attempt(block, root, space)
                merging = True
                break
    _stage(plan)
    return plan


def _lins(plan: Plan):
    for phase in plan.phases:
        for store in phase.stores:
            yield store.address
        for root in phase.roots:
            for node in root.walk(through_heavy=True):
                yield from node.lins()
        if phase.heavy is not None:
            yield from phase.heavy.lins()
    for store in plan.row_stores:
        yield store.address
        for node in store.node.walk(through_heavy=True):
            yield from node.lins()


def _mergeable(e: Lin, first: Axis, second: Axis) -> bool:
    """Return whether ``e`` uses the axes only as ``first * size(second) + second``."""
    for atom, _ in e.terms:
        if isinstance(atom, Quotient | Remainder | Clamped):
            if not _mergeable(atom.of, first, second):
                return False
        elif isinstance(atom, Data) and not all(_mergeable(i, first, second) for i in atom.index):
            return False
    return e.coefficient(first) == e.coefficient(second) * second.size


def _attempt(block: Block, root: Value, space: Space) -> Plan:
    puller, parts = Puller(block), written_parts(block)
    root_node = puller.pull(_written(root, parts), space.dims)
    top = {root: root_node}
    for value in block.outputs:
        box = _written(value, parts)
        if value is not root and box.type.shape == _written(root, parts).type.shape:
            top[value] = puller.pull(box, space.dims)
    heavies = _heavies(top.values())
    rows = _row_axes(heavies, space)
    _pull_row_outputs(block, puller, top, rows, parts)
    heavies = _heavies(top.values())
    rows = _row_axes(heavies, space)
    inner = tuple(a for a in space.axes if a not in rows)
    phases = [Phase(h) for h in heavies]
    row_stores: list[Store] = []
    last = Phase(None)
    for number, value in enumerate(block.outputs):
        if value in block.arguments:
            raise CannotLower("work", "{0} is an input and an output: no kernel is needed", value)
        store, phase = _place_output(number, value, puller, parts, phases, rows, space)
        if phase is None and store.address.axes <= set(rows):
            row_stores.append(store)
        else:
            (phase or last).stores.append(store)
    if last.stores:
        phases.append(last)
    _check_fusion(heavies)
    return Plan(block, parts, puller, rows, inner, tuple(phases), tuple(row_stores))


def _heavies(roots) -> list[Node]:
    """Return the reduction nests in execution order, without those inside another's loops."""
    found: dict[Node, None] = {}

    def visit(node: Node):
        for child in node.inputs:
            visit_once(child)
        if node.heavy is not None:
            for term in node.heavy.terms:
                visit_rows(term, frozenset(node.heavy.axes))
            found.setdefault(node)

    seen: set[Node] = set()

    def visit_once(node: Node):
        if node not in seen:
            seen.add(node)
            visit(node)

    def visit_rows(node: Node, loops: frozenset):
        """Collect nodes below a reduction nest that do not depend on its loops: also row values."""
        for below in node.walk():
            if below.heavy is not None:
                if not loops & below.axes:
                    visit_once(below)
                else:
                    for term in below.heavy.terms:
                        visit_rows(term, loops | frozenset(below.heavy.axes))

    for root in roots:
        visit_once(root)
    return list(found)


def _row_axes(heavies: list[Node], space: Space) -> tuple[Axis, ...]:
    if not heavies:
        return space.axes
    rows = [set(h.axes) & set(space.axes) for h in heavies]
    for node, axes in zip(heavies, rows, strict=True):
        if axes != rows[0]:
            raise CannotLower(
                "the same rows",
                "they reduce different rows: {0} over {0:reduces}, {1} over {1:reduces}",
                heavies[0].op,
                node.op,
            )
        if not node.axes <= set(space.axes):
            raise CannotLower(
                "loops side by side",
                "{0} would run inside another op's loop: it depends on more than the kernel's rows",
                node.op,
            )
    return tuple(a for a in space.axes if a in rows[0])


def _pull_row_outputs(block, puller: Puller, top, rows, parts: dict[Value, Op]) -> None:
    """Pull the remaining outputs with the shape of the rows at the row's index."""
    reached = {value for value, _ in puller.nodes}
    shape = tuple(a.size for a in rows)
    for value in block.outputs:
        box = _written(value, parts)
        wide = [d for d in box.type.shape if d != 1]
        if value in top or box in reached:
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
        top[value] = puller.pull(box, index)


def _place_output(number, value, puller, parts: dict[Value, Op], phases, rows, space):
    """Return the node that is an output's element, and its phase (None: the last)."""
    box = _written(value, parts)
    begin: Sequence[Lin] = [ZERO] * value.type.rank
    if value in parts:
        declared = definition(parts[value])
        begin = declared.lower.starts(puller, declared.view(parts[value]))

    def address(index, shape) -> Lin:
        total = ZERO
        for i, stride in zip(index, ordered_strides(shape, value.type.order), strict=True):
            total = total + i * stride
        return total

    def store(node, index):
        moved = [i + start for i, start in zip(index, begin, strict=True)]
        return Store(number, value, node, address(moved, value.type.shape))

    candidates = [
        (address(index, box.type.shape), index, node)
        for (v, index), node in puller.nodes.items()
        if v is box
    ]
    for place, index, node in candidates:
        over = set(rows) if place.axes <= set(rows) else set(space.axes)
        if place.axes <= over and _is_onto(place, box, over):
            return store(node, index), None
    for place, index, node in candidates:
        for phase in phases:
            loops = set(phase.heavy.heavy.axes)
            one_sweep = phase.heavy.heavy.form in ("lanes", "sequence")
            if (
                one_sweep
                and _is_onto(place, box, set(rows) | loops)
                and any(n is node for t in phase.heavy.heavy.terms for n in t.walk())
            ):
                return store(node, index), phase
    raise CannotLower(
        "each output element once",
        "{0} has other readers, and this kernel would not visit each of its elements exactly once",
        puller.makers.get(value, value),
    )


def _is_onto(address: Lin, value: Value, axes: set[Axis]) -> bool:
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


def _check_fusion(heavies: list[Node]) -> None:
    """Check that products, convolutions and windows are alone and have simple operands."""
    for node in heavies:
        loops = frozenset(node.heavy.axes)
        for term in node.heavy.terms:
            for part in term.walk():
                if part.heavy is not None and part.op is not node.op and part.axes & loops:
                    raise CannotLower(
                        "loops side by side",
                        "{0} would run again inside each step of {1}: a reduction inside another's "
                        "loop",
                        part.op,
                        node.op,
                    )
        if node.heavy.form in ("contraction", "convolution", "window"):
            _check_once(node, heavies)
            others = [h for h in heavies if h.op is not node.op]
            if others:
                raise CannotLower(
                    "a product alone",
                    "{0} cannot share a kernel with {1}: each has its own loops",
                    node.op,
                    others[0].op,
                )
            for term in node.heavy.terms:
                for part in term.walk():
                    own = part.op is node.op or part.function == "cast"
                    if part.kind == "compute" and not own:
                        raise CannotLower(
                            "plain operands",
                            "{0} feeds {1}, which rereads its operands for each output: the "
                            "arithmetic would run again",
                            part.op,
                            node.op,
                        )


def _check_once(node: Node, heavies: list[Node]) -> None:
    """Refuse a product whose elements a kernel would compute more than once."""
    if any(h.op is node.op for h in heavies if h is not node):
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


def _position(node: Node, rows: set[Axis]) -> tuple[Lin, Axis, int] | None:
    """Return (row part, the axis inside the row, its coefficient) of a node's position.

    The position is row-major, with exactly one axis inside the row.
    """
    if node.value is None or node.value.type.rank != len(node.index):
        return None
    place = ZERO
    for i, stride in zip(node.index, ordered_strides(node.value.type.shape, None), strict=True):
        place = place + i * stride
    inside = [(a, c) for a, c in place.terms if not (a.axes <= rows)]
    if len(inside) != 1:
        return None
    axis, c = inside[0]
    if not isinstance(axis, Axis):
        return None
    return place - axis_index(axis) * c, axis, c


def _stage(plan: Plan) -> None:
    """Mark expensive row values of earlier phases that a later phase reads back."""
    rows = set(plan.rows)
    known: dict[Value, tuple] = {}
    for phase in plan.phases:
        if phase.heavy is not None and phase.heavy.heavy.form not in ("lanes", "sequence"):
            continue
        for root in phase.roots:
            _reuse(root, phase, known, rows)
        for root in phase.roots:
            for node in root.walk():
                place = _position(node, rows)
                if place is not None and node.value not in known:
                    known[node.value] = (place, node, phase)


def _reuse(node: Node, phase: Phase, known, rows) -> None:
    if node in phase.reuse or node.heavy is not None:
        return
    place = _position(node, rows) if node.value in known else None
    if place is not None and node.kind != "load":
        (row, axis, c), first, owner = known[node.value]
        same = place[0] == row and place[1].size == axis.size and place[2] == c
        # A value that is constant along the row (a broadcast number) is not kept for each position.
        same = same and all(sum(a not in rows for a in n.axes) == 1 for n in (node, first))
        if same and owner is not phase and cost(node) >= _STAGE_COST:
            owner.keep[node.value] = first
            phase.reuse[node] = node.value
            return
    for child in node.inputs:
        _reuse(child, phase, known, rows)
