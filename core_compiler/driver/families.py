"""Families of programs for sizes along a line, of one model (`core_compiler.targets.family`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from core_compiler.driver import size_values
from core_compiler.frontends.base import Imported
from core_compiler.ir import Module
from core_compiler.ops.positions import Positions
from core_compiler.support.arrays import numbers
from core_compiler.support.errors import UserError
from core_compiler.support.polynomial import NotPolynomial, fitted
from core_compiler.targets.family import Family, Member, NoFamily, need_equal_forms

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation

Shapes = tuple[tuple[int, ...], ...]
#: By how much the largest size of a family exceeds those that were called, and how many are tried,
#: each half as far above the smallest.
GROWTH, TRIES = 2, 3
#: How often a line's sizes may be tried in vain: each time costs compiles.
ATTEMPTS = 3
#: Options of passes: what small constants are computed from may depend on the size.
_FEW_CONSTANTS: Mapping[str, Mapping[str, str]] = {"fold_constants": {"small": "0"}}


@dataclass(frozen=True, eq=False)
class Bound:
    """A program for some sizes, and what the import for them says of arguments and results."""

    executable: Any
    trim: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    positions: Positions | None
    #: Values that follow from the sizes, which the program takes after the model's inputs.
    sizes: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True)
class Line:
    """The shapes of inputs along one size ``t``: each number of them is ``base + slope * t``."""

    bases: Shapes
    slopes: Shapes

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


class CompiledModel(Protocol):
    """The compiled model that families are of."""

    def open(self, arrays: Sequence) -> Imported:
        """Import it for inputs of other sizes; UserError if it does not permit them."""

    def start(
        self,
        imported: Imported,
        arrays: Sequence,
        options: Mapping[str, Mapping[str, str]],
    ) -> Compilation:
        """Return its compile for an import before the first pass, with options of passes."""

    def load(self, program: Any, constants: Any, like: Any = None) -> Any:
        """Return a program bound to the device."""


@dataclass(frozen=True, eq=False)
class _Ranged:
    """A family with what its programs need besides: functions of the size."""

    family: Family
    executable: Any
    trim: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    #: The checks of the inputs as plain data, and the values that follow from the size.
    positions: Callable[[int], Any]
    values: Callable[[int], tuple[np.ndarray, ...]]


#: The places of constants that follow from the size, in the import and after a pass.
Places = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class _SizeValues:
    """The constants of modules that follow from the size: their places, and their values."""

    places: tuple[int, ...]
    values: Callable[[int], tuple[np.ndarray, ...]]

    @staticmethod
    def of(
        modules: Sequence[Module], sizes: Sequence[int], at: Callable[[int], Module]
    ) -> _SizeValues:
        """Compare modules at some sizes; ``at`` makes that of another size."""
        places = size_values.find(modules)
        try:
            return _SizeValues(places, size_values.fit(modules, places, sizes))
        except NotPolynomial:  # of other numbers
            return _SizeValues(places, lambda t: size_values.values(at(t), places))


class Families:
    """The families of a line.

    ``reason``: why there is not another; ``tried``: how often one was tried, but for those that
    made a family larger.
    """

    def __init__(
        self,
        line: Line,
        model: CompiledModel,
        arrays: Sequence,
        refill: Callable[[Sequence[np.ndarray]], Sequence] = tuple,
    ):
        """Create the families of a line; ``refill`` maps arrays to a caller's inputs."""
        self.line, self.model, self.reason, self.tried = line, model, "", 0
        self._refill = refill
        self._arrays = [numbers(a) for a in arrays]  # values that shapes may depend on
        self._found: list[_Ranged] = []
        self._imports: dict[int, Imported] = {}
        self._members: dict[tuple[int, Places], Member] = {}

    def bound(self, t: int) -> Bound | None:
        """Return the program for a size, or None if it is in no family."""
        for each in self._found:
            if t in each.family:
                with suppress(NoFamily, NotPolynomial):  # of what follows from this size
                    return self._bound(each, t)
        return None

    def _bound(self, found: _Ranged, t: int) -> Bound:
        program, last = found.family.program(t), found.family.largest
        held, values = found.positions(t), found.values(t)
        positions = None if held is None else Positions.from_json(held)
        executable = self.model.load(program, last.arrays, found.executable)
        return Bound(executable, found.trim, positions, values)

    def extend(self, t: int) -> bool:
        """Make the family that ends before ``t`` larger, or another; return whether it has t."""
        known = bool(self._found) and t > self._found[-1].family.high
        if not known or self.tried >= ATTEMPTS:
            return False
        last = self._found[-1].family
        if self.form(last.low, t * GROWTH, last.high, t):
            del self._found[-2]
            return True
        self.tried += 1
        return self.form(t, t * GROWTH)

    def form(self, low: int, high: int, middle: int | None = None, at_least: int = 0) -> bool:
        """Add a family from ``low`` up to at most ``high``; return whether there is one."""
        self.reason = f"the model permits no size above {low}"
        tops = _falling(high, max(low + 3, at_least))
        for top in itertools.islice(filter(self._opens, tops), TRIES):
            try:
                sizes = sorted({low, low + 1, middle or (low + 1 + top) // 2, top})
                self._found.append(self._family(sizes))
            except (NoFamily, NotPolynomial) as error:
                self.reason = str(error)
            else:
                self.reason = ""
                break
        kept = {t for each in self._found for t in each.family.sizes}
        self._imports = {t: i for t, i in self._imports.items() if t in kept}
        self._members = {key: m for key, m in self._members.items() if m.size in kept}
        return not self.reason

    def _family(self, sizes: Sequence[int]) -> _Ranged:
        closed = [t for t in sizes if not self._opens(t)]
        if closed or len(sizes) < 4:
            raise NoFamily(f"the model does not permit the sizes {closed or sizes}")
        imports = [self._imports[t] for t in sizes]
        counts = [imported.facts.get("run_time_sizes") for imported in imports]
        if any(count != counts[0] for count in counts):
            raise NoFamily("the results whose sizes depend on data differ")
        checks = [i.positions for i in imports]
        positions = fitted(sizes, [None if c is None else c.to_json() for c in checks])
        # Before any pass folds what is computed from them, and after composites became ops.
        own = _SizeValues.of([i.module for i in imports], sizes, lambda t: self._import(t).module)
        begun = [self._lowered(t, own.places) for t in sizes]
        more = _SizeValues.of(
            [made.module for made in begun], sizes, lambda t: self._lowered(t, own.places).module
        )
        places = own.places, more.places
        by_size = dict(zip(sizes, begun, strict=True))
        members: list[Member] = []
        for t in (sizes[0], sizes[-1], *sizes[1:-1]):
            members.append(self._member(t, places, by_size[t]))
            if len(members) == 2:  # most that differ do so at the ends
                need_equal_forms(members)
        family = Family(members)
        loaded = self.model.load(family.largest.program, family.largest.arrays)
        return _Ranged(
            family,
            loaded,
            imports[-1].trimmed,
            positions,
            lambda t: (*own.values(t), *more.values(t)),
        )

    def _import(self, t: int) -> Imported:
        if not self._opens(t):
            raise NoFamily(f"the model does not permit the size {t}")
        return self._imports[t]

    def _lowered(self, t: int, places: tuple[int, ...]) -> Compilation:
        """Return the compile at a size, up to the pass after which its ops are primitive.

        The constants at some places of its import are arguments.
        """
        imported = self._import(t)
        inputs = *self._resized(t), *imported.state
        made = self.model.start(imported, inputs, _FEW_CONSTANTS)
        if all(step.label != size_values.AFTER for step in made.steps):
            raise NoFamily(f"the pipeline has no pass {size_values.AFTER}")
        given = 0, size_values.SizesAsArguments(places)
        made.change(replace(made.options.edit, insert=(given, *made.options.edit.insert)))
        while made.stages[-1].name != size_values.AFTER:
            made.step()
        return made

    def _member(self, t: int, places: Places, made: Compilation) -> Member:
        """Return the finished compile at a size, with the constants at some places given."""
        if (t, places) not in self._members:
            edit = made.options.edit
            given = f"after:{size_values.AFTER}", size_values.LoweredSizesAsArguments(places[1])
            made.change(replace(edit, insert=(*edit.insert, given)))
            made.finish()
            self._members[t, places] = Member(t, made.module, made.facts)
        return self._members[t, places]

    def _resized(self, t: int) -> list[np.ndarray]:
        shapes = self.line.at(t)
        pairs = zip(self._arrays, shapes, strict=True)
        return [a if a.shape == shape else np.resize(a, shape) for a, shape in pairs]

    def _opens(self, t: int) -> bool:
        """Import the model at a size; return whether it permits that size."""
        if t not in self._imports and all(n >= 0 for s in self.line.at(t) for n in s):
            with suppress(UserError):
                self._imports[t] = self.model.open(self._refill(self._resized(t)))
        return t in self._imports


def _falling(high: int, low: int) -> Iterator[int]:
    """Yield sizes from ``high`` down to ``low``, each half as far above it."""
    while high > low:
        yield high
        high = low + (high - low) // 2
    yield low
