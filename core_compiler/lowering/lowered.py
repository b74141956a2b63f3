"""The result of lowering a group: an unscheduled kernel and its launch arguments."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.ir import Function


@dataclass(frozen=True, eq=False)
class Lowered:
    """An unscheduled kernel and its launch arguments.

    ``arguments``: for each kernel argument ``("operand", number)`` or ``("result", number)`` of the
    lowered op (buffers), or ``("size", value)`` (index arguments). ``over``: pairs of a result and
    the operand whose contents its memory must hold beforehand, because the kernel writes only a
    part of it.
    """

    function: Function
    arguments: tuple[tuple[str, int], ...]
    over: tuple[tuple[int, int], ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(n for kind, n in self.arguments if kind == "size")

    @property
    def buffers(self) -> tuple[tuple[str, int], ...]:
        return tuple(a for a in self.arguments if a[0] != "size")
