"""Analysis of whether a kernel may write a result in place over an operand.

It may if it has read each element before it writes there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from core_compiler.ir import Block, Function, Op, Value
from core_compiler.kernel_ir.ops import access, is_pure, lane_axis

#: The role of a buffer (read or written), and the views that lead to it.
Part = tuple[str, tuple]


def may_share(
    function: Function, read: Value, written: Value, functions: Mapping[str, Function]
) -> bool:
    """Return whether the argument ``written`` may be the memory of the argument ``read``.

    Both have the same layout, and independent iterations may run in any order. The result is True
    if each store to one is in a block with an earlier load, and no later one, from the other at the
    same indices, on which the stored value depends, and nothing else accesses either. (Compilers
    may assume that buffers do not overlap, but they load the inputs of a value before they store
    it.) ``functions`` are those that the kernel invokes.
    """
    try:
        _Walk(functions).block(function.body, {read: ("read", ()), written: ("written", ())}, {})
    except _Otherwise:
        return False
    return True


class _Otherwise(Exception):
    """Raised if the memory is accessed in another way."""


@dataclass
class _Walk:
    functions: Mapping[str, Function]
    #: Equal index computations have equal numbers.
    numbers: dict[Hashable, int] = field(default_factory=dict)
    #: The positions that each value was loaded from or depends on.
    made_of: dict[Value, frozenset[Hashable]] = field(default_factory=dict)

    def block(self, block: Block, parts: dict[Value, Part], known: dict[Value, int]) -> None:
        """Visit ``block``; ``parts`` are the watched buffers, ``known`` the numbers of values."""
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
        """Return the buffer and position that a load or a store accesses."""
        if op.kind not in ("kernel.load", "kernel.store"):
            raise _Otherwise
        buffer, _ = access(op)
        if buffer not in parts:  # the stored value is a buffer
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
            key = (
                op.kind,
                repr(dict(op.attributes)),
                tuple(self._number(v, known) for v in op.operands),
            )
            for place, value in enumerate(op.results):
                known[value] = self.numbers.setdefault((key, place), len(self.numbers))

    def _number(self, value: Value, known: dict[Value, int]) -> int:
        if value not in known:
            known[value] = self.numbers.setdefault(value, len(self.numbers))
        return known[value]


def _check(touched: list[tuple[str, Hashable]]) -> None:
    """Check that each position is read first and then written, and both happen."""
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
