"""Calls with inputs of other sizes than those that a model was compiled for.

The model is imported again for the new sizes and takes the same passes; its kernels are generic in
sizes, so that usually none is compiled again, and constants are shared.  From the third size along
a line (one size that grows, a batch or a sequence's length) a *family* is made, if the programs
differ by numbers only: each further size of it needs no pass (`core_compiler.targets.family`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.driver.families import ATTEMPTS, GROWTH, Bound, Families, Line, Shapes
from core_compiler.frontends.base import Imported
from core_compiler.passes.schedule_kernels import EARLIER, scheduled_as
from core_compiler.runtime import memory
from core_compiler.support.arrays import numbers
from core_compiler.support.errors import UserError

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation

#: The share of the free memory that programs of other sizes may take, and how many are kept.
SHARE, KEPT = 0.25, 64
#: Sizes of a line that are needed for a family, and again for each further try.
BEGIN = 3


@dataclass(frozen=True)
class Rebind:
    """A program that was made for other sizes: shapes of the inputs, and how it came about.

    ``how``: ``compiled``, or ``family`` (no pass ran).  ``kernels`` were compiled for it.
    """

    shapes: Shapes
    how: str
    seconds: float
    kernels: int = 0


class OtherSizes:
    """The programs of a compiled model at other sizes of its inputs.

    ``reopen`` imports the model for inputs (as a caller passes them), ``refilled`` maps inputs to a
    function that replaces their arrays.  ``rebinds`` lists what was made, in order.
    """

    def __init__(
        self,
        made: Compilation,
        reopen: Callable[[Sequence], Imported],
        refilled: Callable[[Sequence], Callable[[Sequence], Sequence]] = lambda inputs: tuple,
    ):
        self._made, self._reopen, self._refilled = made, reopen, refilled
        self._bound: OrderedDict[Shapes, Bound] = OrderedDict()
        self._compiled: list[Shapes] = []
        self._lines: dict[Line, Families] = {}
        self._lock = threading.RLock()
        self.rebinds: list[Rebind] = []

    def of(self, made: Compilation) -> OtherSizes:
        """Return those of another compilation of the same model."""
        return OtherSizes(made, self._reopen, self._refilled)

    @property
    def reasons(self) -> list[str]:
        """The reasons why lines of sizes have no family, or no larger one."""
        return [families.reason for families in self._lines.values() if families.reason]

    def bind(self, arrays: Sequence, given: Sequence[np.ndarray]) -> Bound:
        """Return the program for inputs ``arrays`` of a caller (``given``: main's arguments).

        Raise UserError if the model does not permit their sizes.
        """
        shapes = self._shapes(given)
        with self._lock:
            if shapes not in self._bound:
                started = time.perf_counter()
                bound, how, kernels = self._make(shapes, arrays)
                spent = time.perf_counter() - started
                self._bound[shapes] = bound
                self.rebinds.append(Rebind(shapes, how, spent, kernels))
                self._forget()
            self._bound.move_to_end(shapes)
            return self._bound[shapes]

    def _shapes(self, given: Sequence[np.ndarray]) -> Shapes:
        own = len(given) - len(self._made.state)
        return tuple(map(_shape, given[:own]))

    def _make(self, shapes: Shapes, arrays: Sequence) -> tuple[Bound, str, int]:
        for line, families in self._lines.items():
            t = line.find(shapes)
            if t is None:
                continue
            bound = families.bound(t)
            if bound is None and families.extend(t):
                bound = families.bound(t)
            if bound is not None:
                return bound, "family", 0
        imported = self.open(arrays)
        examples = tuple(numbers(a) for a in self._made.leaves(arrays))
        made, fresh = self._compile(imported, (*examples, *imported.state))
        program, constants, *_ = made.facts["program"]
        bound = Bound(self.load(program, constants), imported.trimmed, imported.positions)
        self._enter(shapes, arrays)
        return bound, "compiled", fresh

    def _compile(
        self, imported: Imported, examples: Sequence[np.ndarray]
    ) -> tuple[Compilation, int]:
        """Return the finished compile of an import, and how many kernels were compiled for it."""
        made = self.start(imported, examples)
        made.finish()
        failed = sum(r.verdict == "failed" for records in made.checks.values() for r in records)
        if failed:
            raise UserError(
                f"{failed} checks failed at these sizes",
                "call",
                "compile it for these inputs to see them",
                1,
            )
        before = {c.ref.key for c in self._made.facts["compiled"].values()}
        return made, sum(c.ref.key not in before for c in made.facts["compiled"].values())

    def _enter(self, shapes: Shapes, arrays: Sequence) -> None:
        """Make a family if ``shapes`` are the third on a line."""
        own = self._shapes(self._made.executable.program.inputs)
        known = [own, *self._compiled]
        self._compiled.append(shapes)
        if self._made.options.check:
            return  # each size is checked
        lines = (Line.through(other, shapes) for other in known)
        for line in dict.fromkeys(each for each in lines if each is not None):
            sizes = [t for s in (*known, shapes) if (t := line.find(s)) is not None]
            tried = self._lines[line].tried if line in self._lines else 0
            if len(sizes) < BEGIN * (1 + tried) or tried >= ATTEMPTS:
                continue
            leaves, refill = self._made.leaves(arrays), self._refilled(arrays)
            families = self._lines.setdefault(line, Families(line, self, leaves, refill))
            families.tried += 1
            if sizes[-1] == max(sizes) or tried:  # what grows goes on
                families.form(sizes[-1], sizes[-1] * GROWTH)
            else:
                families.form(min(sizes), max(sizes))

    # -- the model of the families -----------------------------------------------------------------

    def open(self, arrays: Sequence) -> Imported:
        """Import the model for inputs of other sizes; UserError if it does not permit them."""
        imported = self._reopen(arrays)
        own = self._made.stages[0].module.main.arguments
        given = imported.module.main.arguments
        if [a.name for a in given] != [a.name for a in own]:
            raise UserError(
                "the model has other inputs at these sizes", "call", "compile it for them"
            )
        for was, now in zip(own, given, strict=True):
            if was.type.dtype != now.type.dtype:
                expected, found = was.type.dtype.numpy, now.type.dtype.numpy
                raise UserError(
                    f"expected {expected}, got {found}",
                    f"call, input {was.name!r}",
                    f"convert it, for example with .astype('{expected}')",
                )
        return imported

    def start(
        self,
        imported: Imported,
        arrays: Sequence[np.ndarray],
        options: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> Compilation:
        """Return a compile of an import as the model was compiled, but for options of passes."""
        from core_compiler.driver.compilation import start

        old = self._made
        changed = {**old.options.edit.options}
        for name, values in options.items():
            changed[name] = {**changed.get(name, {}), **values}
        edit = replace(old.options.edit, options=changed)
        made = start(imported.module, old.target, replace(old.options, edit=edit), tuple(arrays))
        made.facts[EARLIER] = scheduled_as(old.module, old.facts)
        self._name(made, imported)
        return made

    def _name(self, made: Compilation, imported: Imported) -> None:
        """Let a compile take over the names, state and results of its import."""
        made.bind_import(imported)

    def load(self, program: Any, constants: Any, like: Any = None) -> Any:
        """Return a program bound to the device; it shares the constants of ``like``."""
        own = self._made.executable
        return own.device.load(program, constants, own if like is None else like)

    # -- memory ------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop the programs that were used longest ago, if there are too many."""
        budget = SHARE * memory.available_bytes()
        taken = 0
        for number, (shapes, bound) in enumerate(reversed(list(self._bound.items()))):
            taken += self._bytes(bound)
            if number and (taken > budget or number >= KEPT):
                del self._bound[shapes]

    def _bytes(self, bound: Bound) -> int:
        """Return the memory of a program but for its constants."""
        threads = getattr(self._made.executable.device, "threads", 1)
        return bound.executable.program.memory_bytes(threads, constants=False)


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(array.shape if hasattr(array, "shape") else np.shape(array))
