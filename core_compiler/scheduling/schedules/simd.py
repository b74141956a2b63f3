"""Steps shared by the elementwise and row schedules: full vectors first, lanes in registers."""

from __future__ import annotations

from core_compiler.ir import Function, Op, Value
from core_compiler.kernel_ir.ops import INDEPENDENT, access
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.scheduling.transforms.edit import (
    Copier,
    Refused,
    constant_of,
    find_loop,
    has_loop,
    loops,
    need,
    producers,
    rebuild,
)
from core_compiler.scheduling.transforms.vectorise import _Lanes, strides, vectorise


def full_and_rest(function: Function, loop: str, width: int) -> Function:
    """Split ``for i in [0, n)`` at the last multiple of ``width``.

    The remainder is the loop ``<loop>_rest``.
    """
    defs, op = producers(function), find_loop(function, loop)
    need(loop_kind(op) in INDEPENDENT, f"iterations of {loop} are sequential")
    need(constant_of(For.of(op).lower, defs) == 0, f"{loop} does not start at 0")
    need(constant_of(For.of(op).step, defs) == 1, f"{loop} does not step by 1")
    need(not For.of(op).init, f"{loop} carries values")
    need(not has_loop(function, f"{loop}_rest"), f"{loop} was already split")
    (region,) = op.regions
    iv = region.arguments[0]

    def hook(copier: Copier, op: Op) -> None:
        kb, count = copier.kb, copier[For.of(op).upper]
        main = kb.mul(kb.floordiv(count, width), width)
        with kb.loop(loop, 0, main, loop=For.of(op).loop) as i:
            copier.env[iv] = i
            copier.block(region)
        with kb.loop(f"{loop}_rest", 0, kb.sub(count, main), loop=For.of(op).loop) as i:
            copier.env[iv] = kb.add(main, i)
            copier.block(region)

    return rebuild(function, {op: hook})


def vectors(
    function: Function, loop: str, width: int, together: int = 1, at_the_end: int = 1
) -> Function:
    """Run ``together`` vectors of ``width`` lanes at a time, then single ones.

    The last vector has a count. Several vectors at once hide the latency of long chains of
    arithmetic. The remainder is loop ``<loop>_rest``, with ``at_the_end`` vectors at a time.
    """
    op = find_loop(function, loop)
    count, lanes = constant_of(op.operands[1], producers(function)), width * together
    if count is not None and count % lanes == 0:
        return vectorise(function, loop, lanes)
    cut = full_and_rest(function, loop, lanes)
    return vectorise(vectorise(cut, loop, lanes), f"{loop}_rest", width * at_the_end)


def vectors_at_once(function: Function, most: int = 4) -> int:
    """Return how many vectors to run together: ``most`` of 32-bit lanes, fewer of wider ones."""
    bits = [
        getattr(value.type, "bits", 32)
        for op in function.body.walk()
        if op.kind in ("kernel.load", "kernel.cast")
        for value in op.results
    ]
    return max(1, most * 32 // max([32, *bits]))


def reductions(function: Function) -> list[str]:
    """Return the names of the 32-lane accumulators of a kernel, in program order."""
    return [
        str(op.result.name)
        for op in function.body.walk()
        if op.kind == "kernel.alloc"
        and op.result.type.space == "register"
        and op.result.type.shape == (32,)
    ]


def lanes_in_vectors(function: Function, lanes: str, width: int) -> Function:
    """Keep the 32 lanes of a reduction in ``32 / width`` vectors that the loop carries.

    The tree over the lanes becomes shuffles. The loop over full groups of 32 comes first, then one
    group with a count: lanes beyond it keep their values.
    """
    return _LanesInVectors(function, lanes, width).transformed()


class _LanesInVectors:
    def __init__(self, function: Function, lanes: str, width: int):
        need(32 % width == 0 and width > 1, f"{width} lanes do not divide 32")
        self.function, self.width = function, width
        found = [
            op
            for op in function.body.walk()
            if op.kind == "kernel.alloc" and op.result.name == lanes
        ]
        need(len(found) == 1, f"{function.name} has no accumulator {lanes!r}")
        self.memory = found[0].result
        self.defs = producers(function)
        self.vectors: list[Value] = []
        self._find_loops()

    def _touches(self, op: Op) -> bool:
        return any(
            o.kind in ("kernel.load", "kernel.store") and access(o)[0] is self.memory
            for o in op.walk()
        )

    def _find_loops(self) -> None:
        """Find the loops that use the accumulator, by purpose."""
        using = [op for op in loops(self.function) if self._touches(op)]
        inner = [op for op in using if not any(o is not op and o in using for o in op.walk())]
        need(len(inner) >= 3, "expected loops that fill, add to and combine the accumulator")
        self.start, self.body, *self.tree = inner
        outer = [
            op
            for op in using
            if self.body in op.regions[0].ops and constant_of(op.operands[2], self.defs) == 32
        ]
        need(len(outer) == 1, "expected one loop over groups of 32 terms")
        (self.groups,) = outer

    def transformed(self) -> Function:
        first, *others = self.tree
        hooks = {
            self.defs[self.memory]: _drop,
            self.start: self._start,
            self.groups: self._sum,
            first: self._combine,
            **dict.fromkeys(others, _drop),
        }
        inside = {o for op in (self.start, self.groups, *self.tree) for o in op.walk()}
        for op in self.function.body.walk():
            if op.kind in ("kernel.load", "kernel.store") and access(op)[0] is self.memory:  # noqa: SIM102
                if op not in inside:
                    need(op.kind == "kernel.load", "the accumulator is stored to elsewhere")
                    hooks[op] = self._result
        return rebuild(self.function, hooks)

    def _start(self, copier: Copier, op: Op) -> None:
        """Start all lanes from the value that the loop stores."""
        (store,) = (o for o in op.walk() if o.kind == "kernel.store")
        copier.ops(o for o in op.regions[0].ops if o is not store)
        value = copier.kb.broadcast(copier[store.operands[0]], self.width)
        self.vectors = [value] * (32 // self.width)

    def _sum(self, copier: Copier, op: Op) -> None:
        kb, (region,) = copier.kb, op.regions
        lower, upper = (copier[v] for v in op.operands[:2])
        span = kb.sub(upper, lower)
        main = kb.add(lower, kb.mul(kb.floordiv(span, 32), 32))
        with kb.loop(For.of(op).name, lower, main, 32, init=self.vectors) as (k, *acc):
            copier.env[region.arguments[0]] = k
            kb.carry(*self._group(copier, region, acc, None))
        copier.env[region.arguments[0]] = main
        self.vectors = self._group(copier, region, list(kb.results), kb.sub(upper, main))

    def _group(self, copier: Copier, region, acc: list[Value], count: Value | None) -> list[Value]:
        """Add one group of 32 terms to the lanes; of the last group only ``count`` terms."""
        copier.ops(o for o in region.ops if o is not self.body)
        sums = []
        for number, vector in enumerate(acc):
            first_lane = number * self.width
            here = None if count is None else copier.kb.sub(count, first_lane)
            sums.append(self._vector(copier, first_lane, vector, here))
        return sums

    def _vector(self, copier: Copier, first_lane: int, acc: Value, count: Value | None) -> Value:
        kb, (body,) = copier.kb, self.body.regions
        lane = body.arguments[0]
        copier.env[lane] = kb.index(first_lane)
        steps = strides(self.body, lane, self.defs)
        walker = _Lanes(copier, steps, self.width, False, {lane}, self.defs)
        walker.count = count
        total = acc
        for op in body.ops:
            mine = op.kind in ("kernel.load", "kernel.store") and access(op)[0] is self.memory
            if mine and op.kind == "kernel.load":
                copier.env[op.result] = total
                walker.varying.add(op.result)
            elif mine:
                total = walker.vector(op.operands[0])
            else:
                walker.op(op)
        if count is None:
            return total
        numbers = kb.lanes(self.width)
        limit = kb.broadcast(kb.cast(count, "i64"), self.width)
        return kb.select(kb.lt(numbers, limit), total, acc)

    def _combine(self, copier: Copier, op: Op) -> None:
        """Emit the tree: lane l with lane l + half, for half = 16, 8, 4, 2, 1."""
        kb = copier.kb
        (store,) = (o for o in op.walk() if o.kind == "kernel.store")
        kind = self.defs[store.operands[0]].kind.removeprefix("kernel.")
        parts = self.vectors
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [kb.op(kind, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        (whole,) = parts
        half = self.width // 2
        while half:
            mask = tuple((lane + half) % self.width for lane in range(self.width))
            whole = kb.op(kind, whole, kb.shuffle(whole, whole, mask=mask))
            half //= 2
        self.whole = kb.extract(whole, lane=0)

    def _result(self, copier: Copier, op: Op) -> None:
        copier.env[op.result] = self.whole


def _drop(copier: Copier, op: Op) -> None:
    """Remove an op."""


def is_legal(step, function: Function, *args) -> bool:
    """Return whether a step is legal, so that schedules can choose."""
    try:
        step(function, *args)
    except Refused:
        return False
    return True
