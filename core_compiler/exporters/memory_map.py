"""The memory plan in a notebook cell: a map of addresses over the program, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.exporters.notebook import table
from core_compiler.ir.markup import bundle, escape

#: The size of the map in pixels, and the maximum number of rectangles (the largest are kept).
WIDTH, HEIGHT, MAX_RECTANGLES = 640, 260, 600
#: The number of buffers in the table, largest first.
MAX_ROWS = 12
_FILL = "rgba(60,140,110,.55)"


@dataclass(frozen=True, slots=True)
class Placed:
    """A buffer of ``size`` bytes at ``offset`` of the arena.

    It is live from position ``start`` of the program up to, not including, ``end``; ``maker`` is
    the op or kernel that writes it.
    """

    name: str
    maker: str
    size: int
    offset: int
    start: int
    end: int


@dataclass(frozen=True, repr=False)
class MemoryMap:
    """The arena of a compilation.

    ``buffers``, its ``peak`` and the ``lower_bound`` of every plan in bytes, and the ``planner``
    that produced this plan.
    """

    buffers: Sequence[Placed]
    peak: int
    lower_bound: int
    planner: str

    @override
    def __repr__(self) -> str:
        return self._table()[0]

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        text, markup = self._table()
        return bundle(text, self._map() + markup)

    def _table(self) -> tuple[str, str]:
        title = f"arena {self.peak:,} B, {len(self.buffers)} buffers, planner {self.planner}: "
        if self.peak > self.lower_bound:
            excess = f"{self.peak / self.lower_bound - 1:.1%}" if self.lower_bound else ""
            title += f"{excess} above the lower bound of {self.lower_bound:,} B"
        else:
            title += "the minimum"
        largest = sorted(self.buffers, key=lambda b: (-b.size, b.start))
        rows = [(b.name, b.maker, b.size, b.offset, b.start, b.end) for b in largest[:MAX_ROWS]]
        if len(largest) > MAX_ROWS:
            title += f"; the {MAX_ROWS} largest:"
        heads = ("buffer", "made by", "bytes", "offset", "from", "until")
        return table(heads, rows, title, numbers=(2, 3, 4, 5))

    def _map(self) -> str:
        if not self.buffers or not self.peak:
            return ""
        steps = max(b.end for b in self.buffers)
        x_scale, y_scale = WIDTH / max(1, steps), HEIGHT / self.peak
        shown_buffers = sorted(self.buffers, key=lambda b: -b.size * (b.end - b.start))[
            :MAX_RECTANGLES
        ]
        parts = [
            f'<rect x="{b.start * x_scale:.1f}" y="{HEIGHT - (b.offset + b.size) * y_scale:.1f}" '
            f'width="{(b.end - b.start) * x_scale:.1f}" height="{b.size * y_scale:.1f}" '
            f'fill="{_FILL}" stroke="rgba(128,128,128,.8)" stroke-width=".5">'
            f"<title>{escape(f'{b.name} of {b.maker}, {b.size:,} B')}</title></rect>"
            for b in shown_buffers
        ]
        label = f"{len(self.buffers)} buffers in {self.peak:,} B: address up, program right"
        return (
            f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{label}" style="border:1px solid rgba(128,128,128,.5)">'
            f"<title>{label}</title>{''.join(parts)}</svg>"
        )
