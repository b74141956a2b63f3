"""Calls with inputs of other sizes than those that a model was compiled for.

The model is imported again for the new sizes and takes the same passes; its kernels are generic in
sizes, so that usually none is compiled again, and constants are shared.  From the third size along
a line (one size that grows, a batch or a sequence's length) a *family* is made, if the programs
differ by numbers only: each further size of it needs no pass (`core_compiler.targets.family`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.driver import size_values
from core_compiler.frontends.base import Imported
from core_compiler.ops.positions import Positions
from core_compiler.passes.schedule_kernels import EARLIER, scheduled_as
from core_compiler.runtime import memory
from core_compiler.support.arrays import numbers
from core_compiler.support.errors import UserError
from core_compiler.support.polynomial import NotPolynomial, fitted
from core_compiler.targets.family import Family, Member, NoFamily, need_equal_forms

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation

Shapes = tuple[tuple[int, ...], ...]
#: The share of the free memory that programs of other sizes may take, and how many are kept.
SHARE, KEPT = 0.25, 64
#: Sizes of a line that are needed for a family, and by how much its largest exceeds them.
BEGIN, GROWTH = 3, 2
#: How often a family is tried on a line; each time needs as many further sizes.
ATTEMPTS = 3
#: Options of passes for the programs of a family: what small constants are computed from may
#: depend on the size.
_FEW_CONSTANTS: Mapping[str, Mapping[str, str]] = {"fold_constants": {"small": "0"}}
#: Largest sizes that are tried for a family, each half as far above the smallest.
TRIES = 4


@dataclass(frozen=True, eq=False)
class Bound:
    """A program for some sizes, and what the import for them says of arguments and results."""

    executable: Any
    trim: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    positions: Positions | None
    #: Values that follow from the sizes, which the program takes after the model's inputs.
    sizes: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Rebind:
    """A program that was made for other sizes: shapes of the inputs, and how it came about.

    ``how``: ``compiled``, or ``family`` (no pass ran).  ``kernels`` were compiled for it.
    """

    shapes: Shapes
    how: str
    seconds: float
    kernels: int = 0


@dataclass(frozen=True)
class Line:
    """The shapes of inputs along one size ``t``: each number of them is ``base + slope * t``."""

    bases: tuple[tuple[int, ...], ...]
    slopes: tuple[tuple[int, ...], ...]

    @staticmethod
    def through(a: Shapes, b: Shapes) -> Line | None:
        """Return the line of two shapes; ``t`` is the first number that differs, or None."""
        if [len(x) for x in a] != [len(y) for y in b]:
            return None
        pairs = [
            (n, m) for x, y in zip(a, b, strict=True) for n, m in zip(x, y, strict=True) if n != m
        ]
        if not pairs:
            return None
        low, high = pairs[0]
        slopes, bases = [], []
        for x, y in zip(a, b, strict=True):
            rises = [divmod(m - n, high - low) for n, m in zip(x, y, strict=True)]
            if any(rest for _, rest in rises):
                return None
            slopes.append(tuple(rise for rise, _ in rises))
            bases.append(tuple(n - s * low for n, s in zip(x, slopes[-1], strict=True)))
        return Line(tuple(bases), tuple(slopes))

    def at(self, t: int) -> Shapes:
        return tuple(
            tuple(base + slope * t for base, slope in zip(bases, slopes, strict=True))
            for bases, slopes in zip(self.bases, self.slopes, strict=True)
        )

    def find(self, shapes: Shapes) -> int | None:
        """Return ``t`` of shapes on the line, or None."""
        for bases, slopes, shape in zip(self.bases, self.slopes, shapes, strict=True):
            for base, slope, size in zip(bases, slopes, shape, strict=False):
                if slope:
                    t, rest = divmod(size - base, slope)
                    return t if not rest and self.at(t) == shapes else None
        return None


@dataclass(frozen=True, eq=False)
class _Ranged:
    """A family with what its programs need besides: functions of the size."""

    family: Family
    executable: Any
    trim: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    #: The checks of the inputs as plain data, and the values that follow from the size.
    positions: Callable[[int], Any]
    values: Callable[[int], tuple[np.ndarray, ...]]

    def bound(self, size: int) -> Bound:
        program, last = self.family.program(size), self.family.largest
        executable = self.executable.device.load(program, last.arrays, self.executable)
        held = self.positions(size)
        positions = None if held is None else Positions.from_json(held)
        return Bound(executable, self.trim, positions, self.values(size))


@dataclass(eq=False)
class _Lined:
    """A line that sizes lie on, and its families; ``reason``: why there is not another."""

    line: Line
    families: list[_Ranged] = field(default_factory=list)
    imports: dict[int, Imported] = field(default_factory=dict)
    members: dict[tuple[int, tuple[int, ...]], Member] = field(default_factory=dict)
    reason: str = ""
    tried: int = 0


@dataclass(frozen=True, eq=False)
class _Compiled:
    """A finished compile at some sizes, without its stages."""

    module: Any
    facts: dict[str, Any]
    imported: Imported
    kernels: int


class OtherSizes:
    """The programs of a compiled model at other sizes of its inputs.

    ``reopen`` imports the model for inputs (as a caller passes them).  ``rebinds`` lists what was
    made, in order.
    """

    def __init__(self, made: Compilation, reopen: Callable[[Sequence], Imported]):
        self._made, self._reopen = made, reopen
        self._bound: OrderedDict[Shapes, Bound] = OrderedDict()
        self._seen: dict[Shapes, _Compiled] = {}
        self._lines: list[_Lined] = []
        self._lock = threading.RLock()
        self.rebinds: list[Rebind] = []

    def of(self, made: Compilation) -> OtherSizes:
        """Return those of another compilation of the same model."""
        return OtherSizes(made, self._reopen)

    @property
    def reasons(self) -> list[str]:
        """Why there is no family for sizes along a line, one line each."""
        return [lined.reason for lined in self._lines if lined.reason]

    def bind(self, arrays: Sequence, given: Sequence[np.ndarray]) -> Bound:
        """Return the program for inputs ``arrays`` of a caller (``given``: main's arguments).

        Raise UserError if the model does not permit their sizes.
        """
        shapes = self._shapes(given)
        with self._lock:
            if shapes not in self._bound:
                started = time.perf_counter()
                bound, how, kernels = self._make(shapes, arrays, given)
                spent = time.perf_counter() - started
                self._bound[shapes] = bound
                self.rebinds.append(Rebind(shapes, how, spent, kernels))
                self._forget()
            self._bound.move_to_end(shapes)
            return self._bound[shapes]

    def _shapes(self, given: Sequence[np.ndarray]) -> Shapes:
        own = len(given) - len(self._made.state)
        return tuple(tuple(getattr(array, "shape", ())) for array in given[:own])

    # -- making programs ---------------------------------------------------------------------------

    def _make(
        self, shapes: Shapes, arrays: Sequence, given: Sequence[np.ndarray]
    ) -> tuple[Bound, str, int]:
        found = self._from_family(shapes)
        if found is None and self._extend(shapes, arrays):
            found = self._from_family(shapes)
        if found is not None:
            return found, "family", 0
        compiled = self._compile(arrays)
        self._seen[shapes] = compiled
        self._enter(shapes, compiled, arrays)
        return self._load(compiled), "compiled", compiled.kernels

    def _from_family(self, shapes: Shapes) -> Bound | None:
        for lined in self._lines:
            t = lined.line.find(shapes)
            for ranged in lined.families:
                if t is not None and t in ranged.family:
                    return ranged.bound(t)
        return None

    def _compile(self, arrays: Sequence) -> _Compiled:
        """Return the model compiled for ``arrays`` as it was compiled for others."""
        imported = self._reopen(arrays)
        examples = tuple(numbers(a) for a in self._made.leaves(arrays))
        return self._compile_import(imported, (*examples, *imported.state))

    def _compile_import(
        self,
        imported: Imported,
        examples: Sequence[np.ndarray],
        options: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> _Compiled:
        """Return the import compiled as the model was, but for some options of passes."""
        from core_compiler.driver.compilation import start

        old = self._made
        changed = {**old.options.edit.options}
        for name, values in options.items():
            changed[name] = {**changed.get(name, {}), **values}
        edit = replace(old.options.edit, options=changed)
        made = start(imported.module, old.target, replace(old.options, edit=edit), tuple(examples))
        own = old.stages[0].module.main.arguments
        given = made.module.main.arguments[: len(own)]
        if [(a.name, a.type.dtype) for a in given] != [(a.name, a.type.dtype) for a in own]:
            raise UserError(
                "the model has other inputs at these sizes", "call", "compile it for them"
            )
        made.facts[EARLIER] = scheduled_as(old.module, old.facts)
        before = {c.ref.key for c in old.facts["compiled"].values()}
        made.bind_import(imported)
        made.finish()
        failed = sum(r.verdict == "failed" for records in made.checks.values() for r in records)
        if failed:
            raise UserError(
                f"{failed} checks failed at sizes {_text(self._shapes(examples))}",
                "call",
                "compile it for these inputs to see them",
                1,
            )
        fresh = sum(c.ref.key not in before for c in made.facts["compiled"].values())
        return _Compiled(made.module, made.facts, imported, fresh)

    def _load(self, compiled: _Compiled) -> Bound:
        program, arrays, *_ = compiled.facts["program"]
        device = self._made.executable.device
        executable = device.load(program, arrays, self._made.executable)
        return Bound(executable, compiled.imported.trimmed, compiled.imported.positions)

    # -- families ----------------------------------------------------------------------------------

    def _enter(self, shapes: Shapes, compiled: _Compiled, arrays: Sequence) -> None:
        """Make a family if ``shapes`` are the third on a line."""
        if self._made.options.check:
            return  # each size is checked
        if len(arrays) != len(shapes) or not all(hasattr(a, "shape") for a in arrays):
            return  # the arguments of a JAX function are trees
        own = self._shapes(self._made.executable.program.inputs)
        known = [own, *(s for s in self._seen if s != shapes)]
        lines = (Line.through(other, shapes) for other in known)
        for line in dict.fromkeys(each for each in lines if each is not None):
            sizes = [t for s in (*known, shapes) if (t := line.find(s)) is not None]
            lined = next((each for each in self._lines if each.line == line), None)
            tried = 0 if lined is None else lined.tried
            if len(sizes) < BEGIN * (1 + tried) or tried >= ATTEMPTS:
                continue
            if lined is None:
                lined = _Lined(line)
                self._lines.append(lined)
            lined.tried += 1
            lined.imports |= {
                t: c.imported for s, c in self._seen.items() if (t := line.find(s)) is not None
            }
            if sizes[-1] == max(sizes) or tried:  # what grows goes on
                self._form(lined, sizes[-1], sizes[-1] * GROWTH, arrays)
            else:
                self._form(lined, min(sizes), max(sizes), arrays)

    def _extend(self, shapes: Shapes, arrays: Sequence) -> bool:
        """Make the family that ends before ``shapes`` larger, or another from there on."""
        for lined in self._lines:
            t = lined.line.find(shapes)
            if t is None or not lined.families or t <= lined.families[-1].family.high:
                continue
            last = lined.families[-1].family
            if self._form(lined, last.low, t * GROWTH, arrays, last.high, t):
                del lined.families[-2]
                return True
            return self._form(lined, t, t * GROWTH, arrays)
        return False

    def _form(
        self,
        lined: _Lined,
        low: int,
        high: int,
        arrays: Sequence,
        middle: int | None = None,
        at_least: int = 0,
    ) -> bool:
        """Add a family from ``low`` up to at most ``high``; return whether there is one."""
        lined.reason = f"the model permits no size above {low}"
        tops = _falling(high, max(low + 3, at_least))
        permitted = (t for t in tops if self._opens(lined, t, arrays))
        for top in itertools.islice(permitted, TRIES):
            try:
                sizes = sorted({low, low + 1, middle or (low + 1 + top) // 2, top})
                lined.families.append(self._family(lined, sizes, arrays))
            except (NoFamily, NotPolynomial) as error:
                lined.reason = str(error)
            else:
                lined.reason = ""
                self._seen.clear()
                break
        kept = {t for each in lined.families for t in each.family.sizes}
        lined.imports = {t: i for t, i in lined.imports.items() if t in kept}
        lined.members = {key: m for key, m in lined.members.items() if m.size in kept}
        return not lined.reason

    def _family(self, lined: _Lined, sizes: Sequence[int], arrays: Sequence) -> _Ranged:
        closed = [t for t in sizes if not self._opens(lined, t, arrays)]
        if closed or len(sizes) < 4:
            raise NoFamily(f"the model does not permit the sizes {closed or sizes}")
        imports = [lined.imports[t] for t in sizes]
        counts = [imported.facts.get("run_time_sizes") for imported in imports]
        if any(count != counts[0] for count in counts):
            raise NoFamily("the results whose sizes depend on data differ")
        positions = fitted(sizes, [_plain(i.positions) for i in imports])
        places, values = size_values.find([i.module for i in imports], sizes)

        def member(t: int) -> Member:
            if (t, places) not in lined.members:
                imported = lined.imports[t]
                given = *_resized(arrays, lined.line.at(t)), *imported.state, *values(t)
                module = size_values.as_arguments(imported.module, places)
                varied = replace(imported, module=module)
                made = self._compile_import(varied, given, _FEW_CONSTANTS)
                lined.members[t, places] = Member(t, made.module, made.facts)
            return lined.members[t, places]

        need_equal_forms([member(sizes[0]), member(sizes[-1])])  # most that differ do so here
        family = Family([member(t) for t in sizes])
        executable, last = self._made.executable, family.largest
        loaded = executable.device.load(last.program, last.arrays, executable)
        return _Ranged(family, loaded, imports[-1].trimmed, positions, values)

    def _opens(self, lined: _Lined, t: int, arrays: Sequence) -> bool:
        """Import the model at a size of a line; return whether it permits that size."""
        if t not in lined.imports:
            shapes = lined.line.at(t)
            if any(size < 0 for shape in shapes for size in shape):
                return False
            with suppress(UserError):
                lined.imports[t] = self._reopen(_resized(arrays, shapes))
        return t in lined.imports

    # -- memory ------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop the programs that were used longest ago, if there are too many."""
        threads = getattr(self._made.executable.device, "threads", 1)
        budget = SHARE * memory.available_bytes()
        taken = 0
        for number, (shapes, bound) in enumerate(reversed(list(self._bound.items()))):
            taken += bound.executable.program.memory_bytes(threads, constants=False)
            if number and (taken > budget or number >= KEPT):
                del self._bound[shapes]


def _falling(high: int, low: int) -> Iterator[int]:
    """Yield sizes from ``high`` down to ``low``, each half as far above it."""
    while high > low:
        yield high
        high = low + (high - low) // 2
    yield low


def _resized(arrays: Sequence, shapes: Shapes) -> list[np.ndarray]:
    """Return arrays of other shapes with the values of ``arrays``."""
    return [np.resize(numbers(a), shape) for a, shape in zip(arrays, shapes, strict=True)]


def _plain(positions: Positions | None) -> dict[str, Any] | None:
    return None if positions is None else positions.to_json()


def _text(shapes: Shapes) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
