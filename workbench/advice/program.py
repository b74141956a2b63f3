"""The launches of a recording with their data flow through memory, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from core_compiler.ir import Op, Value
from core_compiler.ir.target import CONSTANT, COPY, LAUNCH, LOOP, OUTPUT
from core_compiler.ir.target import Launch as LaunchOp
from core_compiler.ops.traits import has_trait
from core_compiler.passes.find_lifetimes import memory_owners
from core_compiler.passes.grouping import family
from workbench.advice.finding import Cost
from workbench.advice.offers import Bench
from workbench.queries.joint import reads, written
from workbench.queries.links import kernel_by_name
from workbench.queries.run import Run
from workbench.queries.work import Roofs, Work, has_forecasts, roofs, work

#: Hazards of time cost at least this fraction of an execution: medians of one program differ by
#: about as much from run to run.
LEAST_PART = 0.01
#: They also cost at least this long (us): dispatching a launch takes some 3 us on a CPU and on a
#: GPU, so smaller costs are lost in the launches themselves.
LEAST_US = 10.0
#: If no time is known, a hazard moves at least this many bytes needlessly and the same fraction of
#: all bytes that launches move: about ``LEAST_US`` of the slowest supported memory.
LEAST_BYTES = 1 << 16
#: Hazards of memory cost at least a page, the granularity of the system.
PAGE = 4096
#: The number of model lines that a title names.
MAX_LINES = 3


def _is_light(op: Op) -> bool:
    """Return whether a member of a launch only supplies or broadcasts operands."""
    return not op.operands or op.kind == "core.broadcast"


@dataclass(eq=False)
class Launch:
    """A launch at position ``at`` of the last stage.

    It has the tensor ops it ``computes``, the memory it ``reads`` with its last writer (None: an
    input or a constant), and the memory it ``writes``.
    """

    op: Op
    id: int
    at: int
    work: Work
    place: str
    computes: tuple[Op, ...]
    reads: tuple[tuple[Value, Launch | None], ...]
    writes: tuple[Value, ...]
    readers: list[Launch] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        return self.work.kernel

    @property
    def us(self) -> float | None:
        """Return the measured microseconds, else the predicted ones; None: not known."""
        return self.work.predicted_us if self.work.median_us is None else self.work.median_us

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of op it computes, without constants and broadcasts."""
        found = dict.fromkeys(op.kind for op in self.computes if not _is_light(op))
        return list(found)

    @property
    def only_moves(self) -> bool:
        """Return whether it only moves elements and changes no values."""
        return bool(self.kinds) and all(has_trait(kind, "shape_only") for kind in self.kinds)

    @property
    def is_map(self) -> bool:
        """Return whether it computes only elementwise ops and index maps, without reductions."""
        return bool(self.kinds) and not self.only_moves and family_of(self.computes) == "map"


def family_of(ops: Sequence[Op]) -> str:
    """Return the family of these ops for the fusion passes: that of the first non-map op."""
    return next((f for f in map(family, ops) if f != "map"), "map")


class Program:
    """A finished recording as hazards see it; ``launches`` are those of the last stage."""

    def __init__(self, run: Run):
        self.run, self.bench = run, Bench(run)
        self.stages = run.stages()
        self._cached: dict[str, Any] = {}
        main = run.index(run.version.stages - 1).module.main if run.version.stages else None
        self.ops: Sequence[Op] = () if main is None else main.body.ops
        lowered = any(
            op.kind == OUTPUT or (op.kind == LAUNCH and "writes" in op.attributes)
            for op in self.ops
        )
        self.roots = memory_owners(self.ops) if lowered else {}
        self.launches = self._launches() if lowered else []

    def cached(self, name: str, make: Callable[[], Any]) -> Any:
        """Return ``make()``, called once: several hazards may need the same trial."""
        if name not in self._cached:
            self._cached[name] = make()
        return self._cached[name]

    def _launches(self) -> list[Launch]:
        works = {w.op: w for w in work(self.run) if w.op is not None}
        last: dict[Value, Launch | None] = {}
        found = []
        for at, op in enumerate(self.ops):
            if op.kind == COPY and len(op.operands) == 2:
                last[self.roots[op.operands[1]]] = None
            if op.kind != LAUNCH:
                continue
            key = self.run.op_id(op)
            file, line = self.run.source_location(op)
            read = tuple((self.roots[v], last.get(self.roots[v])) for v in reads(op))
            launch = Launch(
                op,
                key,
                at,
                works.get(key, Work(key, LaunchOp.of(op).kernel, 0, 0, None)),
                f"{file}:{line}" if file else "",
                op.regions[0].ops if op.regions else (),
                read,
                tuple(self.roots[v] for v in written(op)),
            )
            for writer in dict.fromkeys(w for _, w in read if w is not None):
                writer.readers.append(launch)
            last.update(dict.fromkeys(launch.writes, launch))
            found.append(launch)
        return found

    @cached_property
    def constants(self) -> frozenset[Value]:
        return frozenset(v for op in self.ops if op.kind == CONSTANT for v in op.results)

    @cached_property
    def results(self) -> frozenset[Value]:
        return frozenset(self.roots[op.operands[0]] for op in self.ops if op.kind == OUTPUT)

    @cached_property
    def has_loops(self) -> bool:
        return any(op.kind == LOOP for op in self.ops)

    @property
    def roofs(self) -> Roofs | None:
        return roofs(self.run)

    @cached_property
    def total_us(self) -> float:
        """Return the time of one execution: the medians of its launches, else the predicted ones.

        Returns 0 if it is not known.
        """
        return sum(launch.us or 0.0 for launch in self.launches)

    # -- costs -----------------------------------------------------------------------------------

    def time_of(self, launches: Sequence[Launch]) -> Cost | None:
        """Return the time of these launches, or the bytes they move if no time is known.

        Returns None if the cost is negligible.
        """
        if not launches:
            return None
        times = [launch.us for launch in launches]
        if any(us is None for us in times):
            moved = sum(launch.work.bytes for launch in launches)
            return self._moved(moved, "the bytes that these launches read and write")
        spent = sum(us or 0.0 for us in times)
        measured = all(launch.work.median_us is not None for launch in launches)
        return self._time(spent, measured, _explain_time(launches, measured, self.roofs))

    def traffic(self, nbytes: float, what: str) -> Cost | None:
        """Return the time of moving ``nbytes`` at the bandwidth for that size.

        Returns None as ``time_of`` does.
        """
        roof = self.roofs
        if roof is None:
            return self._moved(nbytes, what)
        if not nbytes:
            return None
        rate = roof.limits.bandwidth(nbytes)
        source = "measured here" if roof.measured else f"in the description of {roof.name}"
        how = f"{what} at {rate / 1e9:.3g} GB/s, the bandwidth {source}"
        return self._time(1e6 * nbytes / rate, False, how)

    def _moved(self, nbytes: float, what: str) -> Cost | None:
        """Return a cost in bytes, for a recording without times."""
        total = sum(launch.work.bytes for launch in self.launches)
        part = nbytes / total if total else 0.0
        if nbytes < LEAST_BYTES or part < LEAST_PART:
            return None
        how = f"counted: {what}; the recording has no times and no bandwidth of its machine"
        return Cost(nbytes, "B", how, min(part, 1.0), "of the bytes moved")

    def above(self, spent: float, limit: float, how: str) -> Cost | None:
        """Return the measured time above a limit."""
        return self._time(spent - limit, True, how)

    def _time(self, us: float, measured: bool, how: str) -> Cost | None:
        part = us / self.total_us if self.total_us else 0.0
        if us < LEAST_US or part < LEAST_PART:
            return None
        return Cost(us, "us", how, min(part, 1.0), "of the time", not measured)

    # -- text ------------------------------------------------------------------------------------

    def go(self, launch: Launch, *panes: str) -> dict:
        return {
            "op": launch.id,
            "kernel": kernel_by_name(self.run).get(launch.kernel),
            "stage": self.run.version.stages - 1,
            "panes": list(panes or ("kernels", "graph")),
        }

    def last_computing(self, launch: Launch) -> Op | None:
        """Return the last tensor op of a launch that computes."""
        return next((op for op in reversed(launch.computes) if not _is_light(op)), None)


def _explain_time(launches: Sequence[Launch], measured: bool, roof: Roofs | None) -> str:
    count = len(launches)
    each = "the launch" if count == 1 else f"its {count} launches"
    if measured:
        return f"the median of {each}" if count == 1 else f"the sum of the medians of {each}"
    if has_forecasts(launch.work for launch in launches):
        return f"the predicted time of {each} on {roof.name if roof else 'the machine'}"
    return f"the minimum time for the work of {each} on {roof.name if roof else 'the machine'}"


def at(launches: Iterable[Launch]) -> str:
    """Return the model's lines of launches: `` (model.py:12, model.py:30)``; "" if unknown."""
    found = list(dict.fromkeys(file_line(each.place) for each in launches if each.place))
    more = f" and {len(found) - MAX_LINES} more" if len(found) > MAX_LINES else ""
    return f" ({', '.join(found[:MAX_LINES])}{more})" if found else ""


def file_line(place: str) -> str:
    """Return the file name and line of a path: ``folder/model.py:12`` -> ``model.py:12``."""
    return place.replace("\\", "/").rpartition("/")[2]


def of_line(place: str | None) -> str:
    """Return the suffix of a title with a line: `` (model.py:12)``; "" if it is not known."""
    return f" ({file_line(place)})" if place else ""
