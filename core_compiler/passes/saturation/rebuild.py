"""Rebuilding of a block from the chosen forms, with one event for each class that changes.

An event holds the ops that a class no longer needs, the ops of its new form (with new classes) and
the map of its values, so that origins, checks and the page work as for any rewrite; its note lists
the forms of the class and the rules that made them equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.ir import Op, Rewriter, Value, attributes_key
from core_compiler.passes.saturation.egraph import Classes, Node
from core_compiler.passes.saturation.extraction import Selection

#: Maximum number of forms and rules that a note lists.
_LISTED = 4


@dataclass
class Reasons:
    """The rules that merged values into one class, with counts and the sum of their tolerances.

    No two members differ by more than that sum.
    """

    rules: dict[str, int] = field(default_factory=dict)
    tolerances: list[float] = field(default_factory=list)

    def add(self, rule: str, tolerance: float | None) -> None:
        self.rules[rule] = self.rules.get(rule, 0) + 1
        self.tolerances += [] if tolerance is None else [tolerance]


def rebuild(
    rewriter: Rewriter,
    classes: Classes,
    taken: Selection,
    order: Sequence[int],
    given: Mapping[int, Value],
    reasons: Mapping[int, Reasons],
    changed: list[int],
) -> None:
    """Rebuild the block in the chosen form; ``changed`` collects the classes that change.

    ``order``: the classes that the block needs, topologically sorted; ``given``: those defined
    outside the block, with their values.
    """
    _Rebuild(rewriter, classes, taken, order, given, reasons, changed).run()


class _Rebuild:
    def __init__(self, rewriter, classes, taken, order, given, reasons, changed):
        self.rewriter, self.classes, self.taken, self.order = rewriter, classes, taken, order
        self.given, self.reasons, self.changed = given, reasons, changed
        self.tolerant = any(found.tolerances for found in reasons.values())
        self.values: dict[int, Value] = {}
        self.waiting: dict[int, Op] = {}  # new ops of classes that the block did not have
        known = set(rewriter.block.arguments) | set(given.values())
        for op in rewriter.ops:
            known.update(op.results)
        #: The block's own values of each class, in program order.
        self.own = {c: [v for v in classes.values[c] if v in known] for c in order}
        #: Values to keep: those of unprocessed classes, and one of each processed class.
        self.kept = {v for values in self.own.values() for v in values}

    def run(self) -> None:
        for number in self.order:
            self._rebuild_class(number)

    def _rebuild_class(self, number: int) -> None:
        node, own = self.taken[number], self.own[number]
        if node is None or node.whole is not None:
            signature = node.signature if node is not None else None
            kept = signature.op.results[signature.result] if signature else self.given[number]
            self._merge(number, kept, None)
            return
        operands = tuple(self.values[n] for n in node.operands)
        for value in own:
            producer = self.rewriter.producer(value)
            if producer is not None and _is_node(producer, node, operands):
                self._merge(number, value, None)
                return
        value = own[0] if own else Value(self.classes.values[number][0].type)
        op = Op(node.signature.kind, operands, (value,), dict(node.signature.attributes))
        if own:
            self._merge(number, value, op)
        else:
            self.values[number], self.waiting[number] = value, op

    def _merge(self, number: int, kept: Value, new: Op | None) -> None:
        """Let ``kept`` (given, or defined by ``new``) represent the class.

        It replaces the block's other values of the class.
        """
        self.values[number] = kept
        replaced = [v for v in self.own[number] if new is not None or v is not kept]
        self.kept -= set(replaced)
        self.kept.add(kept)
        producers = [m for v in replaced if (m := self.rewriter.producer(v)) is not None]
        if not producers:
            return
        placed = [] if new is None else [*self._needed(new), new]
        values = {v: kept for v in replaced if v is not kept}
        self.rewriter.replace(
            self._replaced_ops(producers, placed),
            placed,
            values,
            at=producers[-1],
            rule="take the form that costs least",
            tolerance=self._tolerance(number, placed),
            note=self._describe(number),
            source=_SOURCE,
        )
        self.changed.append(number)

    def _needed(self, op: Op) -> list[Op]:
        """Return the waiting ops that ``op`` reads, in topological order."""
        out: list[Op] = []
        producers = {op.result: number for number, op in self.waiting.items()}
        stack = [(v, False) for v in reversed(op.operands)]
        while stack:
            value, entered = stack.pop()
            number = producers.get(value)
            if number is None or number not in self.waiting:
                continue
            if entered:
                out.append(self.waiting.pop(number))
                self.kept.add(value)
                continue
            stack.append((value, True))
            stack += [(v, False) for v in reversed(self.waiting[number].operands)]
        return out

    def _replaced_ops(self, producers: Sequence[Op], placed: Sequence[Op]) -> list[Op]:
        """Return the replaced ops, and those that become dead with them, in program order."""
        needed = {v for op in placed for v in op.uses()} | self.kept
        replaced = dict.fromkeys(producers)
        work = list(producers)
        while work:
            for value in work.pop().uses():
                producer = self.rewriter.producer(value)
                if producer is None or producer in replaced or producer.regions:
                    continue
                users = {u for v in producer.results for u in self.rewriter.users(v)}
                stay = any(self.rewriter.is_output(v) or v in needed for v in producer.results)
                if not stay and users <= replaced.keys():
                    replaced[producer] = None
                    work.append(producer)
        return [*reversed([op for op in replaced if op not in producers]), *producers]

    def _describe(self, number: int) -> str:
        """Return the forms of the e-class and their rules as text."""
        nodes, chosen = self.classes.nodes[number], self.taken[number]
        forms = listed([n.signature.kind.removeprefix("core.") for n in nodes])
        rules = list(self.reasons[number].rules) if number in self.reasons else []
        text = f"an e-class of {'one form' if len(nodes) == 1 else f'{len(nodes)} forms'}: {forms}"
        if chosen is not None and len(nodes) > 1:
            text += f"; {chosen.signature.kind.removeprefix('core.')} costs least"
        return text + (f"; equal by {listed([f'`{rule}`' for rule in rules])}" if rules else "")

    def _tolerance(self, number: int, placed: Sequence[Op]) -> float | None:
        """Return the total tolerance of the rules between the event's operands and its result.

        These are the rules of all classes that any of its forms goes through, down to processed
        values.
        """
        stated: list[float] = []
        fresh = {v for op in placed for v in op.results}
        seen, work = {number}, [number]
        while self.tolerant and work:
            current = work.pop()
            stated += self.reasons[current].tolerances if current in self.reasons else []
            for node in self.classes.nodes[current]:
                for n in node.operands:
                    if n not in seen and (n not in self.values or self.values[n] in fresh):
                        seen.add(n)
                        work.append(n)
        return sum(stated) if stated else None


def listed(names: Sequence[str]) -> str:
    """Return the first few names as text, with equal ones counted."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    texts = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


_SOURCE = "core_compiler/passes/saturation/rebuild.py"


def _is_node(op: Op, node: Node, operands: tuple[Value, ...]) -> bool:
    """Return whether an op of the block is an e-node on these values."""
    signature = node.signature
    return (
        op.kind == signature.kind
        and op.operands == operands
        and attributes_key(op.attributes.items()) == attributes_key(signature.attributes)
    )
