"""Which e-node stands for each class: the one whose ops, shared ones counted once, cost least.

Costs are those of a :class:`core_compiler.hardware.costs.CostModel`, in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.errors import InternalError
from core_compiler.hardware.costs import CostModel
from core_compiler.ir import Op, Value
from core_compiler.ops.base import definition
from core_compiler.passes.saturation.egraph import Classes, Node

#: Constants up to this many bytes are folded whatever they are made of (as fold_constants does).
_SMALL = 256


class Prices:
    """What an op costs among others; ``makers``: the ops that each make a value.

    Elementwise ops read what a broadcast repeats where it lies.  An op on constants alone costs 1
    where it is worth a constant of its own: constant folding makes it one.
    """

    def __init__(self, makers: Mapping[Value, Sequence[Op]], model: CostModel):
        self.makers, self.model = makers, model
        self.constants = _constants(makers)
        self._read: dict[Value, int] = {}

    def of(self, op: Op) -> int:
        """The price of ``op`` in bytes."""
        made = self.constants.get(op.results[0]) if op.kind != "core.constant" else None
        if made is not None and op.results[0].type.bytes <= max(_SMALL, made):
            return 1
        return self.model.price(op, self.read)

    def read(self, value: Value) -> int:
        """The bytes that the elements of ``value`` take where they lie."""
        if value not in self._read:
            self._read[value] = least = value.type.bytes
            for op in self.makers.get(value, ()):
                if op.kind == "core.broadcast":
                    least = min(least, self.read(op.operands[0]))
            self._read[value] = least
        return self._read[value]


def total(ops: Iterable[Op], model: CostModel) -> int:
    """What ops cost together, in bytes."""
    ops = list(ops)
    prices = Prices({v: (op,) for op in ops for v in op.results}, model)
    return sum(map(prices.of, ops))


def _constants(makers: Mapping[Value, Sequence[Op]]) -> dict[Value, int]:
    """The values that depend on constants alone, with the bytes of those."""
    made: dict[Value, int] = {}
    readers: dict[Value, dict[Value, None]] = {}
    for value, ops in makers.items():
        for op in ops:
            for operand in op.operands:
                readers.setdefault(operand, {})[value] = None
    work = deque(makers)
    waiting = set(work)
    while work:
        value = work.popleft()
        waiting.discard(value)
        found = [bytes_ for op in makers[value] if (bytes_ := _made_of(op, made)) is not None]
        if found and (value not in made or min(found) < made[value]):
            made[value] = min(found)
            for reader in readers.get(value, ()):
                if reader not in waiting:
                    waiting.add(reader)
                    work.append(reader)
    return made


def _made_of(op: Op, made: Mapping[Value, int]) -> int | None:
    if op.kind == "core.constant":
        return op.result.type.bytes
    fixed = op.operands and not op.regions and "random" not in definition(op).traits
    known = fixed and len(op.results) == 1 and all(v in made for v in op.operands)
    static = known and op.result.type.is_static
    return sum(made[v] for v in op.operands) if static else None


# -- choosing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The e-node that makes a class (None: it is an argument); what it costs with all that it
    needs, and which places of the choice's prices these are (a bit each)."""

    node: Node | None
    total: int
    needs: int = 0


@dataclass
class _Search:
    """Greedy on the acyclic graph (``greedy-dag`` of the extraction gym): a class takes the e-node
    that costs least with everything below it, until none changes its choice.

    Of equal ones the earliest wins: that of the block before one that a rule made.  ``shared``:
    what several need counts once; else each time, and then a class always costs more than what it
    needs, so that no circle can be chosen.
    """

    classes: Classes
    prices: Mapping[int, int]
    shared: bool
    made: dict[int, Choice]
    #: Class -> its place; an op of several results has one of its own, after them.
    places: dict[int | Op, int] = field(default_factory=dict)
    #: Of each place, what the choice for it costs by itself.
    own: list[int] = field(default_factory=list)

    def run(self) -> dict[int, Choice]:
        readers = self.classes.readers()
        numbers = sorted(self.classes.values)
        self.places = {number: i for i, number in enumerate(numbers)}
        self.own = [0] * len(numbers)
        work, waiting = deque(numbers), set(numbers)
        while work:
            number = work.popleft()
            waiting.discard(number)
            held = self.made.get(number)
            if held is not None and held.node is None:
                continue
            best = self._best(number)
            if best is None or (held is not None and not _better(best, held)):
                continue
            self.made[number] = best
            self._enter(number, best)
            for reader in readers.get(number, ()):
                if reader not in waiting:
                    waiting.add(reader)
                    work.append(reader)
        return self.made

    def _best(self, number: int) -> Choice | None:
        best: Choice | None = None
        for node in self.classes.nodes[number]:
            below = [self.made.get(operand) for operand in node.operands]
            found = [choice for choice in below if choice is not None]
            if len(found) < len(below):
                continue
            choice = self._with(number, node, found)
            if choice is not None and (best is None or _better(choice, best)):
                best = choice
        return best

    def _with(self, number: int, node: Node, below: list[Choice]) -> Choice | None:
        """``node`` on these choices for its operands; None where it would need itself."""
        price, bit = self.prices[node.order], 1 << self.places[number]
        if not self.shared:
            return Choice(node, price + sum(choice.total for choice in below))
        below.sort(key=lambda choice: -choice.total)
        cost, needs = (below[0].total, below[0].needs) if below else (0, 0)
        for choice in below[1:]:
            more = choice.needs & ~needs
            cost += sum(self.own[place] for place in _bits(more))
            needs |= more
        if needs & bit:
            return None
        if node.whole is None:
            return Choice(node, cost + price, needs | bit)
        one = 1 << self._place(node.whole)
        return Choice(node, cost if needs & one else cost + price, needs | bit | one)

    def _place(self, op: Op) -> int:
        if op not in self.places:
            self.places[op] = len(self.own)
            self.own.append(0)
        return self.places[op]

    def _enter(self, number: int, choice: Choice) -> None:
        assert choice.node is not None
        price = self.prices[choice.node.order]
        whole = choice.node.whole
        if whole is None:
            self.own[self.places[number]] = price
        else:
            self.own[self._place(whole)] = price


def _better(one: Choice, other: Choice) -> bool:
    assert one.node is not None and other.node is not None
    return (one.total, one.node.order) < (other.total, other.node.order)


def _bits(of: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while of:
        low = of & -of
        yield low.bit_length() - 1
        of ^= low


def choices(
    classes: Classes, prices: Mapping[int, int], given: Collection[int], roots: Sequence[int]
) -> Iterator[tuple[dict[int, Choice], list[int]]]:
    """Ways to choose, each with the classes that it needs in order: the greedy one on shared costs
    where it meets no circle, and the one that counts what is shared each time.

    ``prices``: what each e-node costs, by its order; ``given``: classes that are arguments.
    """
    for shared in (True, False):
        start = {number: Choice(None, 0) for number in given}
        made = _Search(classes, prices, shared, start).run()
        order = in_order(made, roots)
        if order is not None:
            yield made, order
        elif not shared:
            raise InternalError("the classes of a block need each other in a circle")


def in_order(made: Mapping[int, Choice], roots: Sequence[int]) -> list[int] | None:
    """The classes that the roots need, each after those that it needs; None of a circle."""
    done: dict[int, bool] = {}  # False: on the way
    order: list[int] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        number, entered = stack.pop()
        if entered:
            done[number] = True
            order.append(number)
            continue
        if number in done:
            if not done[number]:
                return None
            continue
        done[number] = False
        stack.append((number, True))
        node = made[number].node
        for operand in reversed(node.operands if node is not None else ()):
            if not done.get(operand):
                stack.append((operand, False))
    return order
