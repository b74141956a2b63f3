"""Vectorisation of scalar loops by stride analysis."""

from __future__ import annotations

from collections.abc import Mapping

from core_compiler.ir import DType, Function, Op, Value, VectorType, dtype, vector
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir import scalars
from core_compiler.kernel_ir.ops import INDEPENDENT, access, element
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    constant_of,
    depends_on,
    expect,
    find_loop,
    need,
    producers,
    rebuild,
)

I64 = dtype("i64")


def vectorise(
    function: Function, loop: str, width: int, pad: int | None = None, rest: bool = False
) -> Function:
    """Run ``width`` iterations of an independent loop at once.

    Loads and stores whose index advances by one with the loop become vector accesses, invariant
    ones are broadcast to the lanes, and arithmetic is done per lane; an index used as a number
    counts up from lane to lane. If the trip count is not a multiple of ``width``, the accesses
    carry a count. Memory of a single iteration becomes that of all lanes, side by side. With
    ``pad`` the loop runs ``pad`` iterations regardless of its bound: the extra lanes load +0, and
    store into a private buffer with room for them. With ``rest`` only a last, partial vector
    carries a count (loop ``<loop>_rest``). Refused are other strides, conditions and loop bounds
    that differ between lanes, and values carried by the loop.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {loop} are sequential")
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    low = constant_of(op.operands[0], defs)
    need(not For.of(op).init, f"{loop} carries values")
    count = constant_of(op.operands[1], defs)
    whole = low is not None and count is not None and (count - low) % width == 0
    whole = whole or (low == 0 and _is_multiple(op.operands[1], width, defs))
    span = _length(op, defs)
    whole = whole or (span is not None and span % width == 0)
    iv = For.of(op).index
    if pad is not None:
        need(low == 0 and pad % width == 0, f"{loop} cannot be padded to {pad}")
        _check_room(op, iv, pad)
    steps = strides(op, iv, defs)

    def hook(copier: Copier, op: Op) -> None:
        kb = copier.kb
        lanes = _Lanes(copier, steps, width, pad is not None, {iv}, defs)
        lanes.limits = _limits(op, steps)
        lower, upper = copier[For.of(op).lower], copier[For.of(op).upper]
        end = upper if pad is None else kb.index(pad)
        full = kb.mul(kb.floordiv(kb.sub(upper, lower), width), width)
        cut = kb.add(lower, full) if rest and not whole else None
        parts = [(loop, lower, end, whole)]
        if cut is not None:
            parts = [(loop, lower, cut, True), (f"{loop}_rest", cut, upper, False)]
        for name, start, stop, all_lanes in parts:
            with kb.loop(name, start, stop, width, loop=For.of(op).loop) as base:
                copier.env[iv] = base
                left = kb.sub(upper, base) if span is None or span > width else kb.index(span)
                lanes.count = None if all_lanes else kb.min(width, left)
                lanes.block(op.regions[0])

    return rebuild(function, {op: hook})


def _length(loop: Op, defs) -> int | None:
    """Return the trip count if the upper bound is the lower one plus a constant."""
    lower, end = loop.operands[0], defs.get(loop.operands[1])
    if end is None or end.kind != "kernel.add" or lower not in end.operands:
        return None
    return next((constant_of(v, defs) for v in end.operands if v is not lower), None)


def _limits(loop: Op, steps: Mapping[Value, int | None]) -> set[Value]:
    """Return conditions ``index < limit`` of branches without an else part.

    The index advances by one from lane to lane, so the lanes that take such a branch are the first
    ones.
    """
    found = {
        op.result
        for op in loop.walk()
        if op.kind == "kernel.lt"
        and steps.get(op.operands[0]) == 1
        and steps.get(op.operands[1], 0) == 0
    }
    for op in loop.walk():
        branch = op.kind == "kernel.if" and not op.results and not op.regions[1].ops
        found -= {v for v in op.operands if not branch}
    return found


def _check_room(loop: Op, iv: Value, pad: int) -> None:
    for op in loop.walk():
        if op.kind == "kernel.store":
            memory, where = access(op)
            need(memory.type.space in ("scratch", "register"), f"{memory.name} is not private")
            extents = [d for d, v in zip(memory.type.shape, where, strict=True) if v is iv]
            need(
                len(extents) == 1 and isinstance(extents[0], int) and extents[0] >= pad,
                f"{memory.name} has no room for {pad} lanes",
            )


def _is_multiple(value: Value, width: int, defs) -> bool:
    """Return whether a trip count is a multiple of ``width``: a constant, or a product with one."""
    count = constant_of(value, defs)
    if count is not None:
        return count % width == 0
    op = defs.get(value)
    product = op is not None and op.kind == "kernel.mul" and value in op.results
    return product and any(_is_multiple(v, width, defs) for v in op.operands)


def strides(loop: Op, iv: Value, defs) -> dict[Value, int | None]:
    """Return the step of each index value in ``loop`` per step of ``iv`` (None: not affine)."""
    steps: dict[Value, int | None] = {iv: 1}
    for op in loop.walk():
        if op is loop or len(op.results) != 1 or op.result.type is not INDEX:
            continue
        if op.kind not in ("kernel.for", "kernel.if"):
            parts = [steps.get(v, 0) for v in op.operands]
            steps[op.result] = _advance(op, parts, defs)
    return steps


def _advance(op: Op, parts: list, defs) -> int | None:
    if all(p == 0 for p in parts):
        return 0
    if None in parts:
        return None
    if op.kind == "kernel.add":
        return parts[0] + parts[1]
    if op.kind == "kernel.sub":
        return parts[0] - parts[1]
    if op.kind == "kernel.mul":
        for mine, other in ((0, 1), (1, 0)):
            factor = constant_of(op.operands[other], defs)
            if parts[other] == 0 and factor is not None:
                return parts[mine] * factor
    return None


class _Lanes:
    """Emits the body of the loop with lane-dependent values as vectors."""

    def __init__(
        self,
        copier: Copier,
        steps,
        width: int,
        padded: bool,
        moving: set[Value],
        defs: Mapping[Value, Op],
    ):
        self.copier, self.steps, self.width, self.padded = copier, steps, width, padded
        self.count: Value | None = None
        self.varying: set[Value] = set()  # old values whose new ones are vectors
        self.moving, self.defs = moving, defs
        self.limits: set[Value] = set()  # conditions of branches that become counts
        self.own: set[Value] = set()  # memory that is separate for each lane

    def block(self, block) -> None:
        for op in block.ops:
            self.op(op)

    def vector(self, value: Value) -> Value:
        """Return the vector of an old value: as it is, or broadcast to the lanes."""
        new = self.copier[value]
        if isinstance(new.type, VectorType):
            return new
        need(self.steps.get(value, 0) == 0, f"{value} differs from lane to lane")
        need(isinstance(new.type, DType), f"{value} is not an element")
        return self.copier.kb.broadcast(new, self.width)

    def op(self, op: Op) -> None:
        kb, copier = self.copier.kb, self.copier
        kb.origin = op.origin
        if op.kind == "kernel.load":
            self._load(op)
        elif op.kind == "kernel.store":
            self._store(op)
        elif op.kind == "kernel.for":
            self._for(op)
        elif op.kind == "kernel.if":
            self._if(op)
        elif op.results and op.results[0] in self.limits:
            return  # a branch's condition, which becomes a count
        elif op.kind == "kernel.alloc":
            self._alloc(op)
        elif op.kind in ("kernel.invoke", "kernel.view"):
            need(False, f"{op.kind} cannot run lane by lane")
        elif (
            op.kind == "kernel.cast"
            and self.steps.get(op.operands[0])
            and self._emit_lane_numbers(op)
        ):
            return
        elif not any(v in self.varying for v in op.operands):
            bad = [v for v in op.operands if self.steps.get(v, 0) != 0]
            need(not bad or op.result.type is INDEX, f"{op} differs from lane to lane")
            copier.copy(op)
        elif op.kind == "kernel.select" and self._selects_whole_vectors(op):
            condition, *sides = op.operands  # one condition selects between whole vectors
            need(not depends_on([condition], self.moving, self.defs), "a condition varies")
            args = [copier[condition], *(self.vector(v) for v in sides)]
            self._define(op, kb._append(op.kind, args, op.attributes)[0])
        else:
            need(op.result.type is not INDEX, "an index is read from data in each lane")
            name, lane = op.kind.removeprefix("kernel."), element(op.operands[-1].type)
            need(scalars.has_lanes(name, lane), f"{op.kind} on {lane} has no vector form")
            args = [self.vector(v) for v in op.operands]
            self._define(op, kb._append(op.kind, args, op.attributes)[0])

    def _emit_lane_numbers(self, op: Op) -> bool:
        """Emit an index that advances from lane to lane as a number."""
        kb, step = self.copier.kb, self.steps[op.operands[0]]
        if op.result.type is not I64 or step is None:
            return False
        offsets = kb.lanes(self.width)
        if step != 1:
            offsets = kb.mul(offsets, kb.broadcast(kb.number(step, I64), self.width))
        base = kb.cast(self.copier[op.operands[0]], I64)
        self._define(op, kb.add(kb.broadcast(base, self.width), offsets))
        return True

    def _selects_whole_vectors(self, op: Op) -> bool:
        condition, *sides = op.operands
        return condition not in self.varying and any(v in self.varying for v in sides)

    def _define(self, op: Op, vector: Value) -> None:
        self.copier.env[op.result] = vector
        self.varying.add(op.result)

    def _axis(self, op: Op) -> int | None:
        """Return the position of the index that advances with the lanes, or None."""
        buffer, indices = access(op)
        steps = [self.steps.get(v, 0) for v in indices]
        moving = [axis for axis, step in enumerate(steps) if step != 0]
        if not moving:
            return None
        need(len(moving) == 1, f"{buffer.name} moves along {len(moving)} axes at once")
        need(steps[moving[0]] == 1, f"{buffer.name} is not read at stride one: {steps}")
        return moving[0]

    def _attributes(self, op: Op, axis: int) -> dict:
        rank = access(op)[0].type.rank
        return {} if axis == rank - 1 else {"axis": axis}

    def _alloc(self, op: Op) -> None:
        kind, sizes = op.result.type, [self.copier[v] for v in op.operands]
        need(kind.space != "shared", f"{op.result.name} is not private to an iteration")
        memory = self.copier.kb.alloc(
            (*kind.shape, self.width), kind.dtype, *sizes, space=kind.space, name=op.result.name
        )
        self.copier.env[op.result] = memory
        self.own.add(op.result)

    def _lane_indices(self, op: Op) -> list[Value]:
        """Return the indices of the lanes' own elements, of which ``op`` accesses one per lane."""
        buffer, indices = access(op)
        need(
            all(self.steps.get(v, 0) == 0 for v in indices),
            f"lanes access different elements of {buffer.name}",
        )
        return [*(self.copier[v] for v in (buffer, *indices)), self.copier.kb.index(0)]

    def _load(self, op: Op) -> None:
        if access(op)[0] in self.own:
            vector_type = vector(self.width, op.result.type)
            (loaded,) = self.copier.kb._append(
                "kernel.load", self._lane_indices(op), {}, (vector_type,)
            )
            self._define(op, loaded)
            return
        axis = self._axis(op)
        if axis is None:
            self.copier.copy(op)
            return
        operands = [self.copier[v] for v in op.operands]
        operands += [] if self.count is None else [self.count]
        vector_type = vector(self.width, op.result.type)
        kb = self.copier.kb
        (loaded,) = kb._append(
            "kernel.load", operands, self._attributes(op, axis), (vector_type,), name=op.result.name
        )
        self._define(op, loaded)

    def _store(self, op: Op) -> None:
        if access(op)[0] in self.own:
            operands = [self.vector(op.operands[0]), *self._lane_indices(op)]
            self.copier.kb._append("kernel.store", operands, {})
            return
        axis = expect(self._axis(op), f"all lanes store to one element of {access(op)[0].name}")
        value = self.vector(op.operands[0])
        operands = [value, *(self.copier[v] for v in op.operands[1:])]
        operands += [] if self.count is None or self.padded else [self.count]
        self.copier.kb._append("kernel.store", operands, self._attributes(op, axis))

    def _for(self, op: Op) -> None:
        kb, copier, (region,) = self.copier.kb, self.copier, op.regions
        for bound in For.of(op).bounds:
            need(
                self.steps.get(bound, 0) == 0,
                f"bounds of {For.of(op).name} differ from lane to lane",
            )
        init = [self._carried(v) for v in For.of(op).init]
        bounds = [copier[v] for v in For.of(op).bounds]
        with kb.loop(For.of(op).name, *bounds, loop=For.of(op).loop, init=init) as got:
            got = got if init else (got,)
            copier.env.update(zip(region.arguments, got, strict=True))
            self.varying.update(v for v in region.arguments[1:] if v.type is not INDEX)
            self.block(region)
            if init:
                kb.carry(*map(self._carried, region.outputs))
        copier.env.update(zip(op.results, kb.results, strict=True))
        self.varying.update(v for v in op.results if v.type is not INDEX)

    def _carried(self, value: Value) -> Value:
        """Return a value that a loop carries: an index is the same in all lanes."""
        if value.type is not INDEX:
            return self.vector(value)
        need(self.steps.get(value, 0) == 0, f"{value} differs from lane to lane")
        return self.copier[value]

    def _emit_counted_branch(self, op: Op) -> None:
        """Emit a branch taken by the lanes below a limit as its body with a count."""
        index, limit = self.defs[op.operands[0]].operands
        before = self.count
        left = self.copier.kb.sub(self.copier[limit], self.copier[index])
        self.count = left if before is None else self.copier.kb.min(before, left)
        self.block(op.regions[0])
        self.count = before

    def _if(self, op: Op) -> None:
        kb, copier = self.copier.kb, self.copier
        condition = op.operands[0]
        if condition in self.limits:
            self._emit_counted_branch(op)
            return
        need(condition not in self.varying, "only some lanes take a branch")
        if not op.results:
            with kb.branch(copier[condition]):
                self.block(op.regions[0])
            need(not op.regions[1].ops, "a branch with an else part")
            return

        def side(region):
            def build():
                self.block(region)
                return tuple(self.vector(v) for v in region.outputs)

            return build

        results = kb.choose(copier[condition], *(side(r) for r in op.regions))
        copier.env.update(zip(op.results, results, strict=True))
        self.varying.update(op.results)
