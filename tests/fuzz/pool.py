"""Inputs in processes of their own, watched: what dies, hangs or takes too much memory is a
finding, and the next process goes on behind it."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from tests.fuzz.cases import (
    CONTAINED,
    CRASH,
    FINE,
    TIME,
    Case,
    Cases,
    Outcome,
    contained,
    folder,
    outcome,
)
from tests.fuzz.seeds import Seed

#: Address space that an input may take beyond what the process has when its libraries are loaded
#: (bytes).
MEMORY_BOUND = 2 << 30
#: Seconds of processor time that an input may take, and of the clock (on a machine with more to
#: do).
TIME_BOUND, CLOCK_BOUND = 10.0, 120.0
#: Inputs that one process takes: what libraries keep of each is no input's own.
_EACH = 4000


@dataclass
class Found:
    """What a run came to."""

    counts: Counter[str] = field(default_factory=Counter)
    #: (kind, key) -> the first such case, its outcome, how many there were.
    findings: dict[tuple[str, str], tuple[Case, Outcome, int]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    slowest: tuple[float, int] = (0.0, -1)
    starts: int = 0

    def add(self, case: Case | None, made: Outcome) -> None:
        self.counts[made.kind] += 1
        if made.kind == "refused":
            self.reasons[made.key] += 1
        if case is not None:
            known = self.findings.get((made.kind, made.key))
            first = known[:2] if known else (case, made)
            self.findings[made.kind, made.key] = (*first, known[2] + 1 if known else 1)


def run(
    frontend: str,
    corpus: Sequence[Seed],
    seed: int,
    numbers: Sequence[int],
    *,
    jobs: int = 1,
    seconds: float = float("inf"),
    progress=lambda found: None,
) -> Found:
    """Every input of ``numbers`` (fewer where ``seconds`` end), in ``jobs`` processes."""
    found, cases = Found(), Cases(frontend, corpus, seed)
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        held = Path(root) / "corpus"
        held.write_bytes(pickle.dumps((frontend, list(corpus), seed)))
        workers = [_Worker(held, list(numbers[i::jobs]), Path(root) / f"{i}") for i in range(jobs)]
        live = workers
        while live := [w for w in live if w.numbers]:
            for worker in live:
                worker.start(found)
            wait([w.connection for w in live], timeout=1.0)
            for worker in live:
                worker.collect(found, cases)
            if time.monotonic() > until:
                break
            progress(found)
        for worker in workers:
            worker.stop()
    return found


class _Worker:
    """One process and the ``numbers`` that are left for it."""

    def __init__(self, corpus: Path, numbers: list[int], place: Path):
        self.corpus, self.numbers, self.place = corpus, numbers, place
        self.process: Any = None
        self.connection: Any = None
        self._began = self._cpu = 0.0
        self._waiting: int | None = None

    def start(self, found: Found) -> None:
        if self.process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.place.mkdir(exist_ok=True)
        self.process = context.Process(
            target=_work, args=(theirs, self.corpus, self.numbers[:_EACH], self.place), daemon=True
        )
        self.process.start()
        theirs.close()
        found.starts += 1
        self._began, self._cpu, self._waiting = time.monotonic(), float("inf"), None

    def collect(self, found: Found, cases: Cases) -> None:
        """Take what the process has to say; end it where it takes too long."""
        try:
            while self.connection.poll():
                said = self.connection.recv()
                if said is None:
                    self._leave()
                    return
                number, made, peak, took = said
                if made is None:
                    self._waiting, self._began, self._cpu = number, time.monotonic(), self._used()
                    continue
                self.numbers = self.numbers[1:]
                self._waiting = None
                found.peak = max(found.peak, peak)
                found.slowest = max(found.slowest, (took, number))
                found.add(cases.case(number) if made.kind not in FINE else None, made)
        except (EOFError, ConnectionResetError):
            self._ended(found, cases, CRASH)
            return
        clock = time.monotonic() - self._began
        if clock > CLOCK_BOUND or (clock > TIME_BOUND and self._used() - self._cpu > TIME_BOUND):
            with contextlib.suppress(OSError):
                self.process.kill() if self._waiting is None else _where(self.process.pid)
            self._ended(found, cases, TIME)

    def _used(self) -> float:
        try:
            times = psutil.Process(self.process.pid).cpu_times()
            return times.user + times.system
        except psutil.NoSuchProcess:
            return float("inf")

    def _ended(self, found: Found, cases: Cases, kind: str) -> None:
        self.process.kill()
        self.process.join()
        trace = _read(self.place / "trace")
        if self._waiting is None:
            raise RuntimeError(
                f"a process ended (code {self.process.exitcode}) between inputs: "
                f"{trace}{_read(self.place / 'said')}"
            )
        code = self.process.exitcode
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        lines = [line.strip() for line in trace.splitlines() if "File " in line]
        own = [line for line in lines if "core_compiler" in line]
        at = " < ".join(_short(line) for line in (*lines[:1], *own[:1]))
        key = at if kind == TIME else f"{name} {at}"
        case, made = cases.case(self._waiting), Outcome(kind, key, f"{name}\n{trace}")
        if case.frontend == "stablehlo" and (  # (the user's way, once for each cause)
            (CONTAINED, key) in found.findings or contained(case).kind == CONTAINED
        ):
            made = Outcome(CONTAINED, key, made.text)
        found.add(case, made)
        self.numbers = self.numbers[self.numbers.index(self._waiting) + 1 :]
        self.process = None

    def _leave(self) -> None:
        self.process.join()
        self.process = None

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self._leave()


def _short(line: str) -> str:
    """``importer.py:12`` of a line of a Python stack."""
    parts = line.split('"')
    return f"{Path(parts[1]).name}:{parts[2].split()[2]}" if len(parts) > 2 else line


def _where(pid: int) -> None:
    """Ask a process for its stack, and give it a moment to write it."""
    psutil.Process(pid).send_signal(signal.SIGUSR1)
    time.sleep(0.5)


def _read(path: Path) -> str:
    return path.read_text(errors="replace")[-4000:] if path.exists() else ""


def _work(connection: Connection, corpus: Path, numbers: list[int], place: Path) -> None:
    """The process: every input of ``numbers``; says when it begins one and what came of it."""
    said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 2)  # what C++ says aside
    trace = (place / "trace").open("w")
    faulthandler.enable(trace)
    faulthandler.register(signal.SIGUSR1, trace)
    frontend, held, seed = pickle.loads(corpus.read_bytes())
    cases = Cases(frontend, held, seed)
    with tempfile.TemporaryDirectory(dir=place) as root:
        where = folder(Path(root))
        _warm(frontend, held, where)
        bound_memory()
        for number in numbers:
            case = cases.case(number)
            connection.send((number, None, 0, 0.0))
            began = time.process_time()
            made = outcome(case, where)
            took = time.process_time() - began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            connection.send((number, made, peak, took))
    connection.send(None)


def _warm(frontend: str, corpus: Sequence[Seed], where: Path) -> None:
    """Load what an import loads, so that the bounds are of the inputs alone."""
    for each in corpus[:2]:
        outcome(Case(frontend, -1, each.data, each.name, None), where)


def bound_memory() -> None:
    """Hold this process to what it has and :data:`MEMORY_BOUND`."""
    bound = psutil.Process().memory_info().vms + MEMORY_BOUND
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
