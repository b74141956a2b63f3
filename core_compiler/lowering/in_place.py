"""Analysis of whether a kernel may write a result in place over an operand.

It may if it has read each element before it writes there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from core_compiler.ir import Block, Function, Op, Value
from core_compiler.kernel_ir.ops import access, is_pure, lane_axis
from core_compiler.kernel_ir.views import Invoke

#: The role of a buffer (read or written), and the views that lead to it.
WatchedBuffer = tuple[str, tuple]


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
        _AccessCheck(functions).block(
            function.body, {read: ("read", ()), written: ("written", ())}, {}
        )
    except _UnsafeAccess:
        return False
    return True


class _UnsafeAccess(Exception):
    """Raised if the memory is accessed in another way."""


@dataclass
class _AccessCheck:
    functions: Mapping[str, Function]
    #: Equal index computations have equal numbers.
    numbers: dict[Hashable, int] = field(default_factory=dict)
    #: The positions that each value was loaded from or depends on.
    loaded_from: dict[Value, frozenset[Hashable]] = field(default_factory=dict)

    def block(
        self, block: Block, buffers: dict[Value, WatchedBuffer], known: dict[Value, int]
    ) -> None:
        """Visit ``block``; ``buffers`` are the watched buffers, ``known`` the numbers of values."""
        accesses: list[tuple[str, Hashable]] = []
        for op in block.ops:
            watched = [v for v in op.operands if v in buffers]
            if op.kind == "kernel.invoke" and watched:
                self._invoke(op, buffers, known)
            elif op.kind == "kernel.view" and watched:
                self._view(op, buffers, known)
            elif watched:
                accesses.append(self._access_of(op, buffers, known))
            for region in op.regions:
                self.block(region, buffers, known)
            self._number_results(op, known)
        _check_order(accesses)

    def _view(self, op: Op, buffers: dict[Value, WatchedBuffer], known: dict[Value, int]) -> None:
        role, views = buffers[op.operands[0]]
        starts = tuple(self._number(v, known) for v in op.operands[1:])
        buffers[op.result] = role, (*views, (starts, repr(op.get("dropped"))))

    def _invoke(self, op: Op, buffers: dict[Value, WatchedBuffer], known: dict[Value, int]) -> None:
        callee = self.functions[Invoke.of(op).callee]
        pairs = [*zip(callee.arguments, op.operands, strict=True)]
        inner = {a: self._number(v, known) for a, v in pairs if v not in buffers}
        self.block(callee.body, {a: buffers[v] for a, v in pairs if v in buffers}, inner)

    def _access_of(self, op: Op, buffers: dict[Value, WatchedBuffer], known: dict[Value, int]):
        """Return the buffer and position that a load or a store accesses."""
        if op.kind not in ("kernel.load", "kernel.store"):
            raise _UnsafeAccess
        buffer, _ = access(op)
        if buffer not in buffers:  # the stored value is a buffer
            raise _UnsafeAccess
        role, views = buffers[buffer]
        if role != {"kernel.load": "read", "kernel.store": "written"}[op.kind]:
            raise _UnsafeAccess
        after = op.operands.index(buffer) + 1
        indices = tuple(self._number(v, known) for v in op.operands[after:])
        position = (views, indices, lane_axis(op) if buffer.type.rank else 0)
        if op.kind == "kernel.load":
            self.loaded_from[op.result] = frozenset([position])
        elif position not in self.loaded_from.get(op.operands[0], ()):
            raise _UnsafeAccess
        return op.kind, position

    def _number_results(self, op: Op, known: dict[Value, int]) -> None:
        """Number the results of an op that computes."""
        if op.results and not op.regions and is_pure(op) and op.kind != "kernel.alloc":
            sources = frozenset[Hashable]().union(
                *(self.loaded_from.get(v, frozenset()) for v in op.operands)
            )
            self.loaded_from |= dict.fromkeys(op.results, sources)
            key = (
                op.kind,
                repr(dict(op.attributes)),
                tuple(self._number(v, known) for v in op.operands),
            )
            for index, value in enumerate(op.results):
                known[value] = self.numbers.setdefault((key, index), len(self.numbers))

    def _number(self, value: Value, known: dict[Value, int]) -> int:
        if value not in known:
            known[value] = self.numbers.setdefault(value, len(self.numbers))
        return known[value]


def _check_order(accesses: list[tuple[str, Hashable]]) -> None:
    """Check that each position is read first and then written, and both happen."""
    loaded: dict[Hashable, bool] = {}  # whether it has been written since
    for kind, position in accesses:
        if kind == "kernel.load":
            if loaded.get(position):
                raise _UnsafeAccess
            loaded[position] = False
        elif position in loaded:
            loaded[position] = True
        else:
            raise _UnsafeAccess
    if not all(loaded.values()):
        raise _UnsafeAccess
