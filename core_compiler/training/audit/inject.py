"""Fault injection: flip the rounding of one value of a run, as part of its configuration.

The last bit of one element of one op's result is flipped once, when the op's launch has ended. The
tools that look for a first difference can thus be tested on a known one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from core_compiler.ir import dtype
from core_compiler.numerics.reference.dtypes import widen
from core_compiler.support.errors import UserError, nearest
from core_compiler.training.audit.probes import NamedValue, Probe, Probes, Watch


@dataclass(frozen=True)
class Injection:
    """The op, iteration and element whose last bit is flipped.

    ``op`` is the name in :class:`~core_compiler.training.audit.probes.NamedValue`
    (``core.conv#2``), ``iteration`` counts from 1, and ``element`` is the first element, in
    row-major order, that may be changed. If every shard runs the op on its own examples, the first
    shard's result is changed.
    """

    op: str
    iteration: int
    element: int = 0

    @staticmethod
    def of(text: str) -> Injection:
        """Parse ``OP:ITERATION`` or ``OP:ITERATION:ELEMENT``."""
        op, *numbers = text.split(":")
        if not op or len(numbers) not in (1, 2) or not all(n.isdigit() for n in numbers):
            raise UserError(
                f"cannot parse {text!r} as an op and an iteration",
                "inject",
                "write OP:ITERATION, for example core.conv#2:5",
            )
        made = Injection(op, *map(int, numbers))
        if made.iteration < 1:
            raise UserError(
                f"expected an iteration of 1 or more, got {made.iteration}",
                "inject",
                "count iterations from 1",
            )
        return made

    @override
    def __str__(self) -> str:
        return f"{self.op}:{self.iteration}" + (f":{self.element}" if self.element else "")

    def probe(self, names: Sequence[NamedValue], probes: Probes) -> Probe:
        """Return the probe of the op's result.

        Raise UserError if the op is unknown, or if some of its readers are in the same kernel and
        would not see the change.
        """
        wanted = self.op if "#" in self.op else f"{self.op}#1"
        numbers = [n.number for n in names if n.op == wanted]
        if not numbers:
            raise UserError(
                f"unknown op {wanted}",
                "inject",
                nearest(wanted, [n.op for n in names], "see the receipts"),
            )
        candidates = [p for p in probes.probes if p.number in numbers]
        visible = [p for p in probes.probes if not p.inside]
        found = next((p for p in candidates if not p.inside), None)
        if found is None:
            by_number = {n.number: n.op for n in names}
            visible_names = list(dict.fromkeys(by_number[p.number] for p in visible))
            after = [by_number[p.number] for p in visible if p.number > numbers[0]][:1]
            hint = (
                f"choose {after[0]}, the next op that is not"
                if after
                else f"choose {visible_names[-1]}"
            )
            why = (
                "its kernel uses the result before writing it to memory"
                if candidates
                else "its result is not written to memory"
            )
            raise UserError(f"{wanted} is inside a kernel: {why}", "inject", hint)
        return found

    def watch(self, names: Sequence[NamedValue], probes: Probes, iteration: int) -> Watch | None:
        """Return the watch that flips the bit in its iteration; None for others."""
        if iteration != self.iteration:
            return None
        return Watch([self.probe(names, probes)], self._flip, writes=True)

    def _flip(self, shard: int, probe: Probe, array: np.ndarray) -> None:
        if probe.own and shard:
            return
        order = np.arange(array.size)[self.element % max(array.size, 1) :]
        for position in order:
            index = np.unravel_index(position, array.shape)
            value = array[index]
            if dtype(array.dtype).is_float:
                wide = widen(np.asarray(value))
                if not np.isfinite(wide) or wide == 0:
                    continue
            raw = np.array([value]).view(f"u{array.dtype.itemsize}")
            array[index] = (raw ^ raw.dtype.type(1)).view(array.dtype)[0]
            return
