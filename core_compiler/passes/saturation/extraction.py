"""Which e-node stands for each class: the one whose ops, shared ones counted once, cost least.

The costs are those of the ops' declarations (compulsory bytes and operations), the same for all
machines and targets: what comes out of the meaning half is one module everywhere (numerics.md), and
a cost that asked the machine would make it another on each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core_compiler.errors import InternalError
from core_compiler.ir import Op, TensorType
from core_compiler.ops.base import cost, definition
from core_compiler.passes.saturation.egraph import Classes, Node
from core_compiler.passes.saturation.matching import ClassView

#: Operations that take as long as moving a byte: processors are balanced for about as many.
_BALANCE = 8
#: What a view costs of the bytes that it shows: most become addressing, some a copy.
_VIEW = 16


class Prices:
    """What each e-node costs, by its order (``nodes``), in bytes moved; constants cost nothing,
    every other op at least 1.

    An op on constants costs no more than that either, where it is worth a constant of its own
    (constant folding makes it one).
    """

    def __init__(self, view: ClassView):
        self.constants = _constants(view)
        self.nodes: dict[int, int] = {}
        for number, nodes in view.classes.nodes.items():
            for node in nodes:
                op = node.signature.op or view.op(number, node)
                self.nodes[node.order] = self.of(op, number)

    def of(self, op: Op, number: int) -> int:
        """The price of an op that makes class ``number``."""
        if op.kind == "core.constant":
            return 0
        static = all(isinstance(v.type, TensorType) and v.type.is_static
                     for v in (*op.uses(), *op.results))  # fmt: skip
        if op.regions or not static:
            return 1
        if number in self.constants and op.result.type.bytes <= max(256, self.constants[number]):
            return 1
        if "view" in definition(op).traits:
            return 1 + sum(v.type.bytes for v in op.results) // _VIEW
        found = cost(op)
        return 1 + found.bytes + found.flops // _BALANCE


def _constants(view: ClassView) -> dict[int, int]:
    """The classes that depend on constants alone, with the bytes of those."""
    made: dict[int, int] = {}
    readers = view.classes.readers()
    work = dict.fromkeys(view.classes.nodes)
    while work:
        number = next(iter(work))
        del work[number]
        found = made.get(number)
        for node in view.classes.nodes[number]:
            if node.signature.op is not None or "random" in definition(node.signature.kind).traits:
                continue
            if node.signature.kind == "core.constant":
                found = view.of[number].type.bytes
            elif node.operands and all(n in made for n in node.operands):
                bytes_ = sum(made[n] for n in node.operands)
                found = bytes_ if found is None else min(found, bytes_)
        if found is not None and (number not in made or found < made[number]):
            made[number] = found
            work.update(readers.get(number, {}))
    return made


@dataclass(frozen=True)
class Choice:
    """The e-node that makes a class (None: it is an argument), what it costs with all that it
    needs, and what each class needed costs alone."""

    node: Node | None
    total: int
    needs: dict[int, int]


def choose(
    classes: Classes, prices: dict[int, int], given: Collection[int], roots: Sequence[int]
) -> dict[int, Choice]:
    """The choice for every class that can be made; following it from ``roots`` meets no cycle.

    ``prices``: what each e-node costs, by its order.  ``given``: classes that are arguments.

    Greedy on the acyclic graph (``greedy-dag`` of the extraction gym): a class takes the e-node
    that costs least with everything below it, shared classes once, until none changes its choice.
    Of equal ones the earliest wins: that of the block before one that a rule made.  Should such
    choices, made one after another, need each other in a circle, shared classes count each time
    that they are needed: then a class always costs more than what it needs.
    """
    for shared in (True, False):
        made = _settled(classes, prices, given, shared)
        if in_order(made, roots) is not None:
            return made
    raise InternalError("the classes of a block need each other in a circle")


def _settled(classes: Classes, prices, given: Collection[int], shared: bool) -> dict[int, Choice]:
    made = {number: Choice(None, 0, {}) for number in given}
    readers = classes.readers()
    work = dict.fromkeys(sorted(classes.nodes))
    while work:
        number = next(iter(work))
        del work[number]
        if number in made and made[number].node is None:
            continue
        best = _best(number, classes.nodes[number], prices, made, shared)
        if best is not None and _better(best, made.get(number)):
            made[number] = best
            work.update(readers.get(number, {}))
    return made


def _best(number: int, nodes: Sequence[Node], prices, made: dict[int, Choice], shared: bool):
    best: Choice | None = None
    for node in nodes:
        if any(operand not in made for operand in node.operands):
            continue
        needs: dict[int, int] = {}
        for operand in node.operands if shared else ():
            needs |= made[operand].needs
        if number in needs:  # it would need itself
            continue
        needs[number] = prices[node.order]
        below = 0 if shared else sum(made[operand].total for operand in node.operands)
        choice = Choice(node, sum(needs.values()) + below, needs)
        if _better(choice, best):
            best = choice
    return best


def _better(one: Choice, other: Choice | None) -> bool:
    if one.node is None or other is None or other.node is None:
        return other is None
    return (one.total, one.node.order) < (other.total, other.node.order)


def in_order(made: dict[int, Choice], roots: Sequence[int]) -> list[int] | None:
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
