"""Extraction: choose an e-node for each class so that the total cost is least.

Shared ops count once.  Optimal extraction is NP-hard; these are two greedy searches and hill
climbing from each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from core_compiler.ir import Op
from core_compiler.passes.saturation.egraph import Classes, Node
from core_compiler.support.errors import InternalError

#: Class -> the e-node that defines it; None: it is an argument.
Taken = dict[int, Node | None]


def choose(
    classes: Classes, prices: Mapping[int, int], given: Collection[int], roots: Sequence[int]
) -> tuple[Taken, list[int]]:
    """Return the chosen e-nodes of the classes that the roots need, and these classes in order.

    ``prices``: the cost of each e-node, by its order; ``given``: classes that are arguments.  It is
    the best of three starting points, each improved class by class: the block as written, and the
    results of the greedy searches.  Its total price is at most that of the block.
    """
    first: Taken = {
        number: None if number in given else min(nodes, key=lambda node: node.order)
        for number, nodes in classes.nodes.items()
        if nodes or number in given
    }
    order = in_order(first, first) or []
    once, each = (_Search(classes, prices, given, order, shared).run() for shared in (True, False))
    climbs = [
        _Climb(classes, prices, begin, aside, roots)
        for begin, aside in ((first, once), (once, once), (each, each))
    ]
    for climb in climbs:
        climb.run()
    best = min(climbs, key=lambda climb: climb.cost)
    return best.node, best.order()


def in_order(
    node: Taken,
    starts: Iterable[int],
    known: Callable[[int], bool] = lambda number: False,
    above: int | None = None,
) -> list[int] | None:
    """Return the classes that ``starts`` need in topological order, or None.

    Those ``known`` (and their operands) are left out.  None if a class needs itself or the one
    ``above`` them all.
    """
    done: dict[int, bool] = {} if above is None else {above: False}  # False: on the current path
    order: list[int] = []
    stack = [(start, False) for start in reversed(list(starts))]
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
        if known(number):
            continue
        done[number] = False
        stack.append((number, True))
        stack += [
            (operand, False)
            for operand in reversed(_operands(node[number]))
            if not done.get(operand)
        ]
    return order


def _operands(node: Node | None) -> tuple[int, ...]:
    return node.operands if node is not None else ()


# -- greedy ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """The chosen e-node of a class, its total cost, and a bit set of the classes that it needs."""

    node: Node | None
    total: int
    needs: int = 0


@dataclass
class _Search:
    """Greedy search on the acyclic graph (``greedy-dag`` of the extraction gym).

    A class takes the e-node with the least total cost until no choice changes.  Of equal ones the
    earliest wins: the block's before one that a rule made.  ``shared``: a shared operand counts
    once, else each time.  Either way a class costs more than its operands, and costs only decrease,
    so no cycle is chosen.
    """

    classes: Classes
    prices: Mapping[int, int]
    given: Collection[int]
    order: Sequence[int]  # operands mostly come first
    shared: bool
    made: dict[int, _Choice] = field(default_factory=dict)
    #: Class -> its index; an op with several results has its own, after them.
    places: dict[int | Op, int] = field(default_factory=dict)
    #: The cost of each index's own choice.
    own: list[int] = field(default_factory=list)

    def run(self) -> Taken:
        readers = self.classes.readers()
        place = {number: i for i, number in enumerate(self.order)}
        self.places = {number: i for i, number in enumerate(self.order)}
        self.own = [0] * len(place)
        self.made = {number: _Choice(None, 0) for number in self.given}
        work = list(range(len(place)))  # a heap
        waiting = set(work)
        while work:
            number = self.order[heappop(work)]
            waiting.discard(place[number])
            best = None if number in self.given else self._best(number)
            if best is None or not _better(best, self.made.get(number)):
                continue
            self._enter(number, best)
            for reader in readers.get(number, ()):
                if place[reader] not in waiting:
                    waiting.add(place[reader])
                    heappush(work, place[reader])
        return {number: choice.node for number, choice in self.made.items()}

    def _best(self, number: int) -> _Choice | None:
        best: _Choice | None = None
        for node in self.classes.nodes[number]:
            below = [self.made[operand] for operand in node.operands if operand in self.made]
            if len(below) < len(node.operands):
                continue
            choice = self._with(number, node, below)
            if choice is not None and _better(choice, best):
                best = choice
        return best

    def _with(self, number: int, node: Node, below: list[_Choice]) -> _Choice | None:
        """Return ``node`` on these choices of its operands, or None if it would need itself."""
        price, bit = self.prices[node.order], 1 << self.places[number]
        if not self.shared:
            return _Choice(node, price + sum(choice.total for choice in below))
        below.sort(key=lambda choice: -choice.total)
        cost, needs = (below[0].total, below[0].needs) if below else (0, 0)
        for choice in below[1:]:
            cost += sum(self.own[place] for place in _bits(choice.needs & ~needs))
            needs |= choice.needs
        if needs & bit:
            return None
        if node.whole is None:
            return _Choice(node, cost + price, needs | bit)
        one = 1 << self._place(node.whole)
        return _Choice(node, cost if needs & one else cost + price, needs | bit | one)

    def _enter(self, number: int, choice: _Choice) -> None:
        assert choice.node is not None
        self.made[number] = choice
        whole = choice.node.whole
        place = self.places[number] if whole is None else self._place(whole)
        self.own[place] = self.prices[choice.node.order]

    def _place(self, op: Op) -> int:
        if op not in self.places:
            self.places[op] = len(self.own)
            self.own.append(0)
        return self.places[op]


def _better(one: _Choice, other: _Choice | None) -> bool:
    if other is None or other.node is None or one.node is None:
        return other is None
    return (one.total, one.node.order) < (other.total, other.node.order)


def _bits(of: int) -> Iterator[int]:
    """Yield the indices of the bits that are set."""
    while of:
        low = of & -of
        yield low.bit_length() - 1
        of ^= low


# -- climbing --------------------------------------------------------------------------------------


class _Climb:
    """A choice that is improved class by class, by the total cost of all needed classes.

    ``node``: the chosen e-node of each class, also of those not needed now.
    """

    def __init__(
        self,
        classes: Classes,
        prices: Mapping[int, int],
        begin: Taken,
        aside: Taken,
        roots: Sequence[int],
    ):
        """Start from ``begin``; ``aside`` holds the choice of classes that become needed later."""
        self.classes, self.prices, self.roots = classes, prices, roots
        self.node = dict(begin)
        order = self.order()
        self.node = begin | aside | {number: begin[number] for number in order}
        #: The position of a needed class in a topological order.
        self.place = {number: i for i, number in enumerate(order)}
        #: The e-node of an op with several results.
        self.whole = {
            node.whole: node
            for nodes in classes.nodes.values()
            for node in nodes
            if node.whole is not None
        }
        #: The number of uses of a class, or of an op with several results.
        self.users: dict[int | Op, int] = {}
        change: dict[int | Op, int] = {}
        self.cost = self._count(roots, 1, change)
        self.users = change

    def order(self) -> list[int]:
        """Return the classes that the roots need, in topological order."""
        found = in_order(self.node, self.roots)
        if found is None:
            raise InternalError("the classes of a block depend on each other in a cycle")
        return found

    def run(self) -> None:
        """Improve until no class has an e-node that lowers the total cost."""
        improved = True
        while improved:
            improved = False
            for number in list(self.place):
                for node in self.classes.nodes[number]:
                    held = self.node[number]
                    if self.users.get(number) and held is not None and node is not held:
                        improved |= self._try(number, held, node)

    def _try(self, number: int, held: Node, node: Node) -> bool:
        """Replace ``held`` by ``node`` for a class if that lowers the total cost."""
        change: dict[int | Op, int] = {}
        less = self._price(node) + self._count(_reads(node), 1, change)
        less -= self._price(held) - self._count(_reads(held), -1, change)
        if less >= 0 or not self._fits(number, node):
            return False
        settled = all(self._before(operand, number) for operand in node.operands)
        self.node[number] = node
        self.cost += less
        for unit, step in change.items():
            self.users[unit] = self.users.get(unit, 0) + step
        if not settled:
            self.place = {other: i for i, other in enumerate(self.order())}
        return True

    def _fits(self, number: int, node: Node) -> bool:
        """Return whether ``node`` does not depend on the class that it would define."""
        found = in_order(
            self.node, node.operands, lambda operand: self._before(operand, number), number
        )
        return found is not None

    def _before(self, operand: int, number: int) -> bool:
        """Return whether a class is needed now and precedes another (and so cannot need it)."""
        return bool(self.users.get(operand)) and self.place[operand] < self.place[number]

    def _count(self, units: Iterable[int | Op], step: int, change: dict[int | Op, int]) -> int:
        """Add ``step`` (1 or -1) uses of ``units`` to ``change`` and return the cost of that.

        Their operands are counted too when a unit becomes needed or unneeded.
        """
        cost, stack = 0, list(units)
        while stack:
            unit = stack.pop()
            before = self.users.get(unit, 0) + change.get(unit, 0)
            change[unit] = change.get(unit, 0) + step
            if before != (0 if step > 0 else 1):
                continue
            if isinstance(unit, Op):
                cost += step * self.prices[self.whole[unit].order]
                stack += self.whole[unit].operands
            elif (node := self.node[unit]) is not None:
                cost += step * self._price(node)
                stack += _reads(node)
        return cost

    def _price(self, node: Node) -> int:
        """Return an e-node's own cost; one of several results costs nothing beyond its op."""
        return 0 if node.whole is not None else self.prices[node.order]


def _reads(node: Node) -> tuple[int | Op, ...]:
    return node.operands if node.whole is None else (node.whole,)
