"""Whether a kernel may write a result where an operand lies: it has read each element by then."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from core_compiler.ir import Block, Function, Op, Value
from core_compiler.kernel_ir.ops import access, is_pure, lane_axis

#: Which of the two a buffer is, and the views that lead to it.
Part = tuple[str, tuple]


def may_share(
    function: Function, read: Value, written: Value, functions: Mapping[str, Function]
) -> bool:
    """Whether ``written``, an argument of ``function``, may be the memory of the argument ``read``
    (both laid out alike), whatever order its independent iterations run in.

    True where each store to the one stands in a block with an earlier load, and no later one, from
    the other at the same indices, of which the stored number is made, and nothing else touches
    either.  (Compilers are told that buffers do not overlap; what a number is made of they load
    before they store it all the same.)  ``functions`` are those that the kernel invokes.
    """
    try:
        _Walk(functions).block(function.body, {read: ("read", ()), written: ("written", ())}, {})
    except _Otherwise:
        return False
    return True


class _Otherwise(Exception):
    """The memory is touched in another way."""


@dataclass
class _Walk:
    functions: Mapping[str, Function]
    #: Equal index computations have equal numbers.
    numbers: dict[Hashable, int] = field(default_factory=dict)
    #: Numbers by the places that they were loaded from, or made of.
    made_of: dict[Value, frozenset[Hashable]] = field(default_factory=dict)

    def block(self, block: Block, parts: dict[Value, Part], known: dict[Value, int]) -> None:
        """Go through ``block``; ``parts`` are the buffers watched, ``known`` the numbers of
        values."""
        touched: list[tuple[str, Hashable]] = []
        for op in block.ops:
            watched = [v for v in op.operands if v in parts]
            if op.kind == "kernel.invoke" and watched:
                self._invoke(op, parts, known)
            elif op.kind == "kernel.view" and watched:
                self._view(op, parts, known)
            elif watched:
                touched.append(self._touch(op, parts, known))
            for region in op.regions:
                self.block(region, parts, known)
            self._count(op, known)
        _check(touched)

    def _view(self, op: Op, parts: dict[Value, Part], known: dict[Value, int]) -> None:
        which, views = parts[op.operands[0]]
        starts = tuple(self._number(v, known) for v in op.operands[1:])
        parts[op.result] = which, (*views, (starts, repr(op.get("dropped"))))

    def _invoke(self, op: Op, parts: dict[Value, Part], known: dict[Value, int]) -> None:
        callee = self.functions[op["callee"]]
        pairs = [*zip(callee.arguments, op.operands, strict=True)]
        inner = {a: self._number(v, known) for a, v in pairs if v not in parts}
        self.block(callee.body, {a: parts[v] for a, v in pairs if v in parts}, inner)

    def _touch(self, op: Op, parts: dict[Value, Part], known: dict[Value, int]):
        """Whether a load or a store touches which buffer, and where."""
        if op.kind not in ("kernel.load", "kernel.store"):
            raise _Otherwise
        buffer, _ = access(op)
        if buffer not in parts:  # the number that is stored is a buffer
            raise _Otherwise
        which, views = parts[buffer]
        if which != {"kernel.load": "read", "kernel.store": "written"}[op.kind]:
            raise _Otherwise
        after = op.operands.index(buffer) + 1
        indices = tuple(self._number(v, known) for v in op.operands[after:])
        where = (views, indices, lane_axis(op) if buffer.type.rank else 0)
        if op.kind == "kernel.load":
            self.made_of[op.result] = frozenset([where])
        elif where not in self.made_of.get(op.operands[0], ()):
            raise _Otherwise
        return op.kind, where

    def _count(self, op: Op, known: dict[Value, int]) -> None:
        """Number the results of an op that computes."""
        if op.results and not op.regions and is_pure(op) and op.kind != "kernel.alloc":
            sources = frozenset[Hashable]().union(
                *(self.made_of.get(v, frozenset()) for v in op.operands)
            )
            self.made_of |= dict.fromkeys(op.results, sources)
            key = (op.kind, repr(dict(op.attributes)),
                   tuple(self._number(v, known) for v in op.operands))  # fmt: skip
            for place, value in enumerate(op.results):
                known[value] = self.numbers.setdefault((key, place), len(self.numbers))

    def _number(self, value: Value, known: dict[Value, int]) -> int:
        if value not in known:
            known[value] = self.numbers.setdefault(value, len(self.numbers))
        return known[value]


def _check(touched: list[tuple[str, Hashable]]) -> None:
    """Each place is read first and then written; nothing is only read or only written."""
    loaded: dict[Hashable, bool] = {}  # whether it has been written since
    for kind, where in touched:
        if kind == "kernel.load":
            if loaded.get(where):
                raise _Otherwise
            loaded[where] = False
        elif where in loaded:
            loaded[where] = True
        else:
            raise _Otherwise
    if not all(loaded.values()):
        raise _Otherwise
