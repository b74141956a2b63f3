"""The events of a compile: the observer protocol and its payloads.

The compiler calls an :class:`Observer`; the base class does nothing, so not observing costs
nothing. Payloads refer to ops and values by the objects themselves, never by names or text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.ir.core import Module, Op, Value
from core_compiler.ir.rewriter import Rewrite

ERROR, WARNING, INFO = "error", "warning", "info"

#: Verdicts of a check, best first.
VERDICTS = ("bitwise", "within", "unchecked", "failed")
#: Subjects of a check: one rewrite; a change without an event; the results of the stage as a whole;
#: a kernel's plain loops; a scheduled kernel; planned memory; machine code on parts of a launch; a
#: launch of machine code; the linked program; a translation of the import.
CHECKS = (
    "rewrite",
    "unlogged",
    "results",
    "loops",
    "schedule",
    "memory",
    "code",
    "kernel",
    "program",
    "translation",
    "function",
)
#: Outcomes of a compile.
STATUSES = ("finished", "failed", "cancelled")


@dataclass(frozen=True, eq=False, slots=True)
class Diagnostic:
    """A finding of the compiler: an error, a warning or a remark, with its location.

    ``severity`` is ``error``, ``warning`` or ``info``; ``where`` is the model's ``file:line`` if
    the op's origin has it.
    """

    severity: str
    message: str
    function: str = ""
    op: Op | None = None
    where: str = ""

    @override
    def __str__(self) -> str:
        location = self.where or (f"@{self.function}" if self.function else "")
        return f"{location + ': ' if location else ''}{self.severity}: {self.message}"


@dataclass(frozen=True, eq=False, slots=True)
class StageRecord:
    """The module after a pass; stage 0 is the import.

    ``options`` are the pass's fields, ``figures`` numbers such as ``ops``, ``flops``, ``bytes``,
    ``peak_bytes``. ``half`` is ``meaning`` or ``implementation``. ``exact`` means that the pass
    preserves the bits of every result; otherwise ``tolerance_class`` names the tolerance that it
    needs.
    """

    index: int
    pass_name: str
    module: Module
    rewrites: Sequence[Rewrite] = ()
    seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    diagnostics: Sequence[Diagnostic] = ()
    half: str = "meaning"
    exact: bool = True
    tolerance_class: str = ""
    changed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    doc: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class CheckRecord:
    """The check of a rewrite (or, with ``rewrite=None``, of a whole stage) on real tensors.

    ``worst_error`` and ``tolerance`` are relative to the old tensor's largest magnitude. ``value``
    is the compared old value and ``index`` the element with its worst error, whose values before
    and after are ``old`` and ``new`` (None: unknown, or all bits are equal). ``kind`` is the
    subject of the check (:data:`CHECKS`). ``adversarial`` is true if the rewrite is right on the
    given values and was checked on adversarial ones.
    """

    rewrite: Rewrite | None
    verdict: str
    worst_error: float = 0.0
    tolerance: float = 0.0
    value: Value | None = None
    index: tuple[int, ...] = ()
    seconds: float = 0.0
    note: str = ""
    old: float | None = None
    new: float | None = None
    kind: str = "rewrite"
    adversarial: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class KernelRecord:
    """A compiled kernel with its sources and listings for the user.

    ``intermediate`` and ``assembly`` are the forms of the source on its way to machine code: LLVM
    IR and the processor's assembly, PTX and SASS... (``facts`` names them). ``line_map`` has
    ``(source line, op)`` rows, ``intermediate_map`` and ``assembly_map`` ``(its line, source
    line)`` rows (lines count from 1). ``steps`` are ``(schedule step, IR text)``; ``ops`` the
    tensor-level ops that the kernel computes; ``launches`` the launch ops that use it. ``key`` is
    the cache key.
    """

    name: str
    source: str = ""
    intermediate: str = ""
    assembly: str = ""
    line_map: Sequence[tuple[int, Op]] = ()
    intermediate_map: Sequence[tuple[int, int]] = ()
    assembly_map: Sequence[tuple[int, int]] = ()
    steps: Sequence[tuple[str, str]] = ()
    compile_seconds: float = 0.0
    ops: Sequence[Op] = ()
    launches: Sequence[Op] = ()
    key: str = ""
    cached: bool = False
    machine_code: bytes = b""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class BufferRecord:
    """A planned buffer: bytes [offset, offset + size) of ``tier``.

    It is live during the program positions [start, end] (inclusive). ``unpadded_size`` is the size
    of the value itself; ``kind`` is ``argument``, ``result``, ``weight``, ``temporary`` or
    ``scratch``; ``op`` defines it.
    """

    value: Value | None
    offset: int
    size: int
    unpadded_size: int
    tier: str
    start: int
    end: int
    kind: str = "temporary"
    op: Op | None = None
    name: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class TimingRecord:
    """Measured executions of launch number ``launch`` (program order).

    It contains raw samples in microseconds, with the flops and compulsory bytes of one execution.
    """

    launch: int
    samples_us: Sequence[float]
    flops: int = 0
    bytes: int = 0
    kernel: str = ""
    op: Op | None = None
    threads: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class TensorStats:
    """Statistics of one value's tensor at ``stage``; min, max and mean skip NaN and infinities.

    ``histogram`` is ``(edges, counts)`` with one edge more than counts; ``data`` optionally
    contains (a part of) the tensor itself.
    """

    value: Value
    minimum: float
    maximum: float
    mean: float
    nan: int = 0
    inf: int = 0
    histogram: tuple[Sequence[float], Sequence[int]] = ((), ())
    stage: int = 0
    data: np.ndarray | None = None


@dataclass(frozen=True, eq=False, slots=True)
class FrameworkRecord:
    """A value of the import compared with the result of ``framework`` for its ``node``.

    Both have the same inputs. ``error`` is relative to the largest magnitude of the tensor;
    ``index`` is the element with this error, ``theirs`` and ``ours`` are its values (None: every
    bit is the ``same``).
    """

    value: Value
    framework: str
    node: str
    same: bool = True
    error: float = 0.0
    index: tuple[int, ...] = ()
    theirs: float | None = None
    ours: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class QuantisedRecord:
    """The loss of a value that became integers, on the example inputs.

    ``value`` is the one in floats, of ``stage``; ``integers`` the one that stands for it.
    ``sqnr_db`` is the signal-to-noise ratio in decibels (infinite: nothing lost), ``cosine`` that
    of the angle between both tensors (NaN: one is 0). ``saturated`` is the share of elements that
    in floats lie beyond ``range``, which the integers cover, by more than half a step.
    ``observed`` is the range on the calibration data. ``histogram`` is ``(edges, floats,
    dequantised)``: counts of both in the same bins. ``alone_db`` is the ratio of the results if
    only this value is quantised (None: not measured).
    """

    value: Value
    integers: Value
    stage: int
    sqnr_db: float
    cosine: float
    saturated: float
    observed: tuple[float, float]
    range: tuple[float, float]
    histogram: tuple[Sequence[float], Sequence[int], Sequence[int]] = ((), (), ())
    alone_db: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class FloatOpRecord:
    """An op that still computes floats after quantisation, and why."""

    op: Op
    reason: str


@dataclass(frozen=True, eq=False, slots=True)
class QuantisationRecord:
    """The outcome of quantisation: what was lost, and what stayed in floats.

    ``results`` counts the results that are computed in integers; ``sqnr_db`` is the ratio of the
    model's results to their error on the example inputs (None: there are none). ``values`` come
    worst first, ``statistics`` of what stands for them, from integers, in program order.
    """

    results: int
    sqnr_db: float | None
    values: Sequence[QuantisedRecord]
    left: Sequence[FloatOpRecord]
    statistics: Sequence[TensorStats] = ()


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """An iteration of a training run: its ``number`` (from 1 on), its loss, and its seconds.

    ``root`` is that of its receipt, 64 hexadecimal digits ("" without receipts). The following are
    None if not applicable: ``rate``, the learning rate of the iteration; ``loss_scale``, the factor
    of its loss; ``skipped``, the number of skipped updates so far, including this one.
    """

    number: int
    loss: float
    seconds: float
    root: str = ""
    rate: float | None = None
    loss_scale: float | None = None
    skipped: int | None = None


class Observer:
    """The receiver of a compile's events, in order; every method of this class does nothing.

    ``begin`` comes first and ``end`` last; ``check`` refers to a stage that was reported before.
    """

    def begin(self, meta: Mapping[str, Any]) -> None:
        """Report the start of the compile.

        ``meta`` has the model, frontend, target, mode, versions, machine, seed, ``sources`` (file
        name to text)... as JSON-serializable values.
        """

    def amend(self, meta: Mapping[str, Any]) -> None:
        """Report changed facts of ``begin``: the pipeline was edited while it ran."""

    def stage(self, stage: StageRecord) -> None:
        """Report the stage that a pass created."""

    def check(self, stage_index: int, results: Sequence[CheckRecord]) -> None:
        """Report checked rewrites of a stage."""

    def diagnostics(self, stage_index: int, found: Sequence[Diagnostic]) -> None:
        """Report findings about a stage that was reported before."""

    def kernels(self, kernels: Sequence[KernelRecord]) -> None:
        """Report kernels that were compiled (or found in the cache)."""

    def buffers(self, buffers: Sequence[BufferRecord], figures: Mapping[str, float]) -> None:
        """Report the memory plan; ``figures`` such as ``arena_bytes`` and ``lower_bound_bytes``."""

    def timings(self, timings: Sequence[TimingRecord], figures: Mapping[str, Any]) -> None:
        """Report the measured launches of an execution.

        ``figures`` such as ``total_ms``, the outputs' ``digest`` and the machine's limits.
        """

    def tensors(self, tensors: Sequence[TensorStats]) -> None:
        """Report values inspected on real inputs."""

    def framework(self, records: Sequence[FrameworkRecord]) -> None:
        """Report values of the import compared with those of the model's own framework."""

    def quantisation(self, record: QuantisationRecord) -> None:
        """Report what quantisation lost, once the model is quantised."""

    def iterations(self, rows: Sequence[IterationRecord]) -> None:
        """Report iterations of a training run; of repeated numbers the last report counts."""

    def figures(self, figures: Mapping[str, Any]) -> None:
        """Report facts known only later: identity digest, output digest, worst error, ..."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Report progress: ``done`` of ``total`` (0: unknown) steps of ``what``."""

    def end(self, status: str, message: str = "") -> None:
        """Report that the compile has ``finished``, ``failed`` or was ``cancelled``."""


class Log(Observer):
    """An observer that stores all events, except progress and the end, to replay them."""

    def __init__(self) -> None:
        self._events: list[tuple[str, tuple]] = []

    @override
    def stage(self, stage):
        self._events.append(("stage", (stage,)))

    @override
    def check(self, stage_index, results):
        self._events.append(("check", (stage_index, results)))

    @override
    def diagnostics(self, stage_index, found):
        self._events.append(("diagnostics", (stage_index, found)))

    @override
    def kernels(self, kernels):
        self._events.append(("kernels", (kernels,)))

    @override
    def buffers(self, buffers, figures):
        self._events.append(("buffers", (buffers, figures)))

    @override
    def timings(self, timings, figures):
        self._events.append(("timings", (timings, figures)))

    @override
    def tensors(self, tensors):
        self._events.append(("tensors", (tensors,)))

    @override
    def framework(self, records):
        self._events.append(("framework", (records,)))

    @override
    def quantisation(self, record):
        self._events.append(("quantisation", (record,)))

    @override
    def figures(self, figures):
        self._events.append(("figures", (figures,)))

    def replay(self, observer: Observer) -> None:
        """Replay all events so far, in order; the caller sends ``begin``."""
        for method, payload in list(self._events):
            getattr(observer, method)(*payload)


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, *observers: Observer):
        self._observers = observers

    @override
    def begin(self, meta):
        self._forward("begin", meta)

    @override
    def amend(self, meta):
        self._forward("amend", meta)

    @override
    def stage(self, stage):
        self._forward("stage", stage)

    @override
    def check(self, stage_index, results):
        self._forward("check", stage_index, results)

    @override
    def diagnostics(self, stage_index, found):
        self._forward("diagnostics", stage_index, found)

    @override
    def kernels(self, kernels):
        self._forward("kernels", kernels)

    @override
    def buffers(self, buffers, figures):
        self._forward("buffers", buffers, figures)

    @override
    def timings(self, timings, figures):
        self._forward("timings", timings, figures)

    @override
    def tensors(self, tensors):
        self._forward("tensors", tensors)

    @override
    def framework(self, records):
        self._forward("framework", records)

    @override
    def quantisation(self, record):
        self._forward("quantisation", record)

    @override
    def iterations(self, rows):
        self._forward("iterations", rows)

    @override
    def figures(self, figures):
        self._forward("figures", figures)

    @override
    def progress(self, what, done, total):
        self._forward("progress", what, done, total)

    @override
    def end(self, status, message=""):
        self._forward("end", status, message)

    def _forward(self, method: str, *payload) -> None:
        for observer in self._observers:
            getattr(observer, method)(*payload)
