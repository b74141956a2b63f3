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
Selection = dict[int, Node | None]


def choose(
    classes: Classes, prices: Mapping[int, int], given: Collection[int], roots: Sequence[int]
) -> tuple[Selection, list[int]]:
    """Return the chosen e-nodes of the classes that the roots need, and these classes in order.

    ``prices``: the cost of each e-node, by its order; ``given``: classes that are arguments.  It is
    the best of three starting points, each improved class by class: the block as written, and the
    results of the greedy searches.  Its total price is at most that of the block.
    """
    first: Selection = {
        number: None if number in given else min(nodes, key=lambda node: node.order)
        for number, nodes in classes.nodes.items()
        if nodes or number in given
    }
    order = topological_order(first, first) or []
    once, each = (_Search(classes, prices, given, order, shared).run() for shared in (True, False))
    climbs = [
        _Climb(classes, prices, begin, fallback, roots)
        for begin, fallback in ((first, once), (once, once), (each, each))
    ]
    for climb in climbs:
        climb.run()
    best = min(climbs, key=lambda climb: climb.cost)
    return best.node, best.order()


def topological_order(
    node: Selection,
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
    choices: dict[int, _Choice] = field(default_factory=dict)
    #: Class -> its index; an op with several results has its own, after them.
    indices: dict[int | Op, int] = field(default_factory=dict)
    #: The cost of each index's own choice.
    own_costs: list[int] = field(default_factory=list)

    def run(self) -> Selection:
        readers = self.classes.readers()
        index = {number: i for i, number in enumerate(self.order)}
        self.indices = {number: i for i, number in enumerate(self.order)}
        self.own_costs = [0] * len(index)
        self.choices = {number: _Choice(None, 0) for number in self.given}
        work = list(range(len(index)))  # a heap
        waiting = set(work)
        while work:
            number = self.order[heappop(work)]
            waiting.discard(index[number])
            best = None if number in self.given else self._best(number)
            if best is None or not _better(best, self.choices.get(number)):
                continue
            self._set_choice(number, best)
            for reader in readers.get(number, ()):
                if index[reader] not in waiting:
                    waiting.add(index[reader])
                    heappush(work, index[reader])
        return {number: choice.node for number, choice in self.choices.items()}

    def _best(self, number: int) -> _Choice | None:
        best: _Choice | None = None
        for node in self.classes.nodes[number]:
            operand_choices = [
                self.choices[operand] for operand in node.operands if operand in self.choices
            ]
            if len(operand_choices) < len(node.operands):
                continue
            choice = self._choice_of(number, node, operand_choices)
            if choice is not None and _better(choice, best):
                best = choice
        return best

    def _choice_of(self, number: int, node: Node, operand_choices: list[_Choice]) -> _Choice | None:
        """Return ``node`` on these choices of its operands, or None if it would need itself."""
        price, bit = self.prices[node.order], 1 << self.indices[number]
        if not self.shared:
            return _Choice(node, price + sum(choice.total for choice in operand_choices))
        operand_choices.sort(key=lambda choice: -choice.total)
        cost, needs = (
            (operand_choices[0].total, operand_choices[0].needs) if operand_choices else (0, 0)
        )
        for choice in operand_choices[1:]:
            cost += sum(self.own_costs[index] for index in _bits(choice.needs & ~needs))
            needs |= choice.needs
        if needs & bit:
            return None
        if node.whole is None:
            return _Choice(node, cost + price, needs | bit)
        one = 1 << self._index_of(node.whole)
        return _Choice(node, cost if needs & one else cost + price, needs | bit | one)

    def _set_choice(self, number: int, choice: _Choice) -> None:
        assert choice.node is not None
        self.choices[number] = choice
        whole = choice.node.whole
        index = self.indices[number] if whole is None else self._index_of(whole)
        self.own_costs[index] = self.prices[choice.node.order]

    def _index_of(self, op: Op) -> int:
        if op not in self.indices:
            self.indices[op] = len(self.own_costs)
            self.own_costs.append(0)
        return self.indices[op]


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
        begin: Selection,
        fallback: Selection,
        roots: Sequence[int],
    ):
        """Start from ``begin``; ``fallback`` has the choice of classes that are needed later."""
        self.classes, self.prices, self.roots = classes, prices, roots
        self.node = dict(begin)
        order = self.order()
        self.node = begin | fallback | {number: begin[number] for number in order}
        #: The position of a needed class in a topological order.
        self.position = {number: i for i, number in enumerate(order)}
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
        found = topological_order(self.node, self.roots)
        if found is None:
            raise InternalError("the classes of a block depend on each other in a cycle")
        return found

    def run(self) -> None:
        """Improve until no class has an e-node that lowers the total cost."""
        improved = True
        while improved:
            improved = False
            for number in list(self.position):
                for node in self.classes.nodes[number]:
                    held = self.node[number]
                    if self.users.get(number) and held is not None and node is not held:
                        improved |= self._try(number, held, node)

    def _try(self, number: int, held: Node, node: Node) -> bool:
        """Replace ``held`` by ``node`` for a class if that lowers the total cost."""
        change: dict[int | Op, int] = {}
        less = self._price(node) + self._count(_reads(node), 1, change)
        less -= self._price(held) - self._count(_reads(held), -1, change)
        if less >= 0 or not self._is_acyclic(number, node):
            return False
        order_is_valid = all(self._precedes(operand, number) for operand in node.operands)
        self.node[number] = node
        self.cost += less
        for unit, step in change.items():
            self.users[unit] = self.users.get(unit, 0) + step
        if not order_is_valid:
            self.position = {other: i for i, other in enumerate(self.order())}
        return True

    def _is_acyclic(self, number: int, node: Node) -> bool:
        """Return whether ``node`` does not depend on the class that it would define."""
        found = topological_order(
            self.node, node.operands, lambda operand: self._precedes(operand, number), number
        )
        return found is not None

    def _precedes(self, operand: int, number: int) -> bool:
        """Return whether a class is needed now and precedes another (and so cannot need it)."""
        return bool(self.users.get(operand)) and self.position[operand] < self.position[number]

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
