"""The model of a machine: compute units, memory tiers, interconnect, read from YAML.

Every figure is a :class:`Figure`: a number, its unit and its source (``datasheet``, ``paper``,
``measured``, ``detected``, ``estimate``, ``default``), written in YAML as ``{value: 32, unit: KiB,
source: datasheet}``.  Unknown figures are omitted, never guessed: a missing figure is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from core_compiler.ir.types import DTYPES
from core_compiler.support.errors import UserError

SOURCES = ("datasheet", "paper", "measured", "detected", "estimate", "default")

#: Units of figures, in base units (bytes, hertz, seconds, joules...).
UNITS: dict[str, float] = {
    "": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "bit": 1,
    "Hz": 1, "MHz": 1e6, "GHz": 1e9, "B/s": 1, "GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 1e9 / 8,
    "s": 1, "ns": 1e-9, "us": 1e-6, "cycles": 1, "W": 1, "mW": 1e-3, "mm2": 1,
    "pJ": 1e-12, "pJ/B": 1e-12, "pJ/bit": 8e-12, "flop/s": 1, "GFLOP/s": 1e9,
}  # fmt: skip

UNIT_KINDS = ("systolic_array", "vector", "scalar")
INTERCONNECTS = ("mesh", "torus", "switch", "bus")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit and its source; ``note`` names the document or the method."""

    value: float
    unit: str
    source: str
    note: str = ""

    @property
    def base(self) -> float:
        """The value in base units (bytes, bytes/s, Hz, s, J/B)."""
        return self.value * UNITS[self.unit]

    @override
    def __str__(self) -> str:
        number = f"{self.value:g} {self.unit}".strip()
        return f"{number} ({self.source}{': ' + self.note if self.note else ''})"


@dataclass(frozen=True, slots=True)
class ComputeUnit:
    """A compute unit: ``kind`` (:data:`UNIT_KINDS`), the number of them, and their work per cycle.

    ``dtypes`` it supports; a systolic array has ``rows`` x ``columns``, ``dataflows`` (os, ws, is),
    a vector unit ``width_bytes`` and ``fma_per_cycle`` (vector multiply-adds).
    """

    name: str
    kind: str
    count: Figure
    dtypes: tuple[str, ...] = ()
    clock: Figure | None = None
    rows: Figure | None = None
    columns: Figure | None = None
    dataflows: tuple[str, ...] = ()
    width_bytes: Figure | None = None
    fma_per_cycle: Figure | None = None

    def lanes(self, bits: int) -> int:
        """Return the number of elements of ``bits`` bits in its vector registers."""
        return int(self.width_bytes.base * 8 // bits) if self.width_bytes else 1

    def flops(self, bits: int) -> float:
        """Return operations per second of all units, an fma being two; 0 if a figure is missing."""
        if self.clock is None or self.fma_per_cycle is None or self.width_bytes is None:
            return 0.0
        return 2 * self.fma_per_cycle.value * self.lanes(bits) * self.clock.base * self.count.value


@dataclass(frozen=True, slots=True)
class MemoryTier:
    """A memory; ``reach`` is the scope that can address it (``core``, ``chip``, ``machine``)."""

    name: str
    capacity: Figure | None = None
    reach: str = "machine"
    count: Figure | None = None
    banks: Figure | None = None
    line: Figure | None = None
    bandwidth: Figure | None = None
    latency: Figure | None = None
    read_energy: Figure | None = None
    write_energy: Figure | None = None


@dataclass(frozen=True, slots=True)
class Interconnect:
    """The connections of units: ``kind`` (:data:`INTERCONNECTS`), links, cost of a hop."""

    kind: str
    link_bandwidth: Figure | None = None
    hop_latency: Figure | None = None
    energy: Figure | None = None
    columns: Figure | None = None
    rows: Figure | None = None
    radix: Figure | None = None
    multicast: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; ``tiers`` from nearest to farthest.  The last tier holds the arenas."""

    name: str
    summary: str
    units: tuple[ComputeUnit, ...]
    tiers: tuple[MemoryTier, ...]
    interconnect: Interconnect | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def unit(self, name: str) -> ComputeUnit:
        return _named(self.units, name, self.name)

    def tier(self, name: str) -> MemoryTier:
        return _named(self.tiers, name, self.name)

    def with_(self, **parts: Any) -> Machine:
        return replace(self, **parts)


def _named(items, name: str, where: str):
    for item in items:
        if item.name == name:
            return item
    raise UserError(
        f"{name!r} not found",
        f"machine {where}",
        f"choose one of {', '.join(i.name for i in items)}",
    )


def load(path: Path | str) -> Machine:
    """Return a machine from a YAML file; UserError names the file, the position and the error."""
    import yaml

    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", str(path), "check the path") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UserError(
            f"invalid YAML ({getattr(error, 'problem', error)})",
            f"{path}{line}",
            "correct the syntax",
        ) from None
    return parse(data, str(path))


def shipped(name: str) -> Machine:
    """Return a machine that comes with the compiler (``cpu``, ``h200``...)."""
    folder = Path(__file__).parent / "machines"
    names = sorted(p.stem for p in folder.glob("*.yaml"))
    if name not in names:
        raise UserError(f"unknown machine {name!r}", "machine", f"choose one of {', '.join(names)}")
    return load(folder / f"{name}.yaml")


def parse(data: Any, where: str = "machine") -> Machine:
    """Return a machine from plain dictionaries and lists."""
    _keys(data, where, {"name", "summary", "units", "tiers"}, {"interconnect", "figures"})
    interconnect = data.get("interconnect")
    return Machine(
        name=_text(data["name"], f"{where}: name"),
        summary=_text(data["summary"], f"{where}: summary"),
        units=_items(ComputeUnit, data["units"], f"{where}: units"),
        tiers=_items(MemoryTier, data["tiers"], f"{where}: tiers"),
        interconnect=None
        if interconnect is None
        else _record(Interconnect, interconnect, f"{where}: interconnect"),
        figures={
            k: _figure(v, f"{where}: figures.{k}")
            for k, v in _mapping(data.get("figures", {}), f"{where}: figures").items()
        },
    )


#: Fields that are not figures, with their parsers by name.
_CHOICES = {"kind": {ComputeUnit: UNIT_KINDS, Interconnect: INTERCONNECTS}}


def _record(cls: type, data: Any, where: str):
    known = {f.name: f for f in fields(cls)}
    required = {n for n, f in known.items() if _is_required(f)}
    _keys(data, where, required, set(known) - required)
    return cls(
        **{name: _field(cls, name, value, f"{where}.{name}") for name, value in data.items()}
    )


def _is_required(f) -> bool:
    from dataclasses import MISSING

    return f.default is MISSING and f.default_factory is MISSING


def _field(cls: type, name: str, value: Any, where: str):
    if name in _CHOICES:
        return _one_of(value, _CHOICES[name][cls], where)
    if name == "dtypes":
        return tuple(_one_of(v, tuple(DTYPES), where) for v in _list(value, where))
    if name == "dataflows":
        return tuple(_one_of(v, ("os", "ws", "is"), where) for v in _list(value, where))
    if name == "reach":
        return _one_of(value, ("core", "chip", "machine", "fabric"), where)
    if name == "multicast":
        if not isinstance(value, bool):
            raise UserError(f"expected true or false, got {value!r}", where, "correct it")
        return value
    return _text(value, where) if name == "name" else _figure(value, where)


def _figure(data: Any, where: str) -> Figure:
    _keys(data, where, {"value", "source"}, {"unit", "note"})
    value, unit = data["value"], data.get("unit", "")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UserError(f"invalid value {value!r}", where, "use a number of 0 or more")
    return Figure(
        float(value),
        _one_of(unit, tuple(UNITS), f"{where}.unit"),
        _one_of(data["source"], SOURCES, f"{where}.source"),
        _text(data.get("note", ""), f"{where}.note"),
    )


def _items(cls: type, data: Any, where: str) -> tuple:
    items = tuple(_record(cls, item, f"{where}[{i}]") for i, item in enumerate(_list(data, where)))
    names = [item.name for item in items]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UserError(f"duplicate name {twice!r}", where, "rename one")
    if not items:
        raise UserError("expected at least one entry", where, "add one")
    return items


def _keys(data: Any, where: str, required: set[str], optional: set[str]) -> None:
    data = _mapping(data, where)
    for name in sorted(required - data.keys()):
        raise UserError(f"missing entry {name!r}", where, "add it")
    for name in sorted(map(str, data.keys() - required - optional)):
        raise UserError(
            f"unknown entry {name!r}", where, f"use {', '.join(sorted(required | optional))}"
        )


def _mapping(data: Any, where: str) -> Mapping:
    if not isinstance(data, Mapping):
        raise UserError(f"expected a mapping, got {type(data).__name__}", where, "correct it")
    return data


def _list(data: Any, where: str) -> list:
    if not isinstance(data, list):
        raise UserError(f"expected a list, got {type(data).__name__}", where, "correct it")
    return data


def _text(data: Any, where: str) -> str:
    if not isinstance(data, str):
        raise UserError(f"expected text, got {data!r}", where, "correct it")
    return data


def _one_of(value: Any, allowed: tuple[str, ...], where: str) -> str:
    if value not in allowed:
        raise UserError(
            f"unknown value {value!r}", where, f"use one of {', '.join(map(repr, allowed))}"
        )
    return value
