"""Compiles that the page started: a worker process each, its progress, its errors, cancelling.

A server has so many at a time; further ones wait in a queue, and all may be held to limits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from core_compiler.support.errors import BAD_INPUT, UserError

#: How long a worker may take to stop before it is terminated, then killed (seconds).
PATIENCE = 15.0
#: How much of what a worker prints beside its lines is kept, for errors (characters).
MAX_NOISE = 4000
#: Longest line of a worker that is heard: what it runs can write there too (characters).
MAX_LINE = 1 << 20
#: How long each step of stopping takes at most when the server ends (seconds).
HASTE = 4.0
#: How long what a worker printed is read after its end (seconds): what it left running may keep the
#: pipe open.
DRAIN = 2.0
#: How long a compile that is held waits for a page after the last one has gone (seconds): that may
#: just be loading again.
ALONE = 60.0
#: How many compiles that have ended are remembered, for pages that ask how they went.
MAX_ENDED = 50


@dataclass(frozen=True)
class Limits:
    """``compiles`` that run at a time and how many more may wait (``queue``); of each the bytes of
    ``memory`` that it may take and the ``seconds`` that it may last (0: as much as it wants).
    ``bound``: none outlives the server, however that ends."""

    compiles: int = 1
    queue: int = 0
    memory: int = 0
    seconds: float = 0.0
    bound: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """What a worker is told of them."""
        told = {"MEMORY": self.memory, "SECONDS": self.seconds, "BOUND": int(self.bound)}
        return {f"COMPILER_WORKBENCH_JOB_{k}": f"{v:g}" if k == "SECONDS" else str(v)
                for k, v in told.items() if v}  # fmt: skip


#: What a job beside a recording does with its model, by the kind of the job.
_DOING = {"diverge": "are being compared", "bisect": "is being searched for a bad pass",
          "append": "is being executed"}  # fmt: skip


class Compile:
    """A worker process and what it has told so far.  ``outcome`` is None while it waits or runs;
    ``owner`` is the name of who started it, "" where nobody has one."""

    def __init__(self, job: Mapping[str, Any], limits: Limits = Limits(), owner: str = "",
                 ended: Callable[[], None] = lambda: None):  # fmt: skip
        self.job = dict(job)
        self.owner, self._limits, self._ended = owner, limits, ended
        self.path = Path(job["out"])
        self.started = time.time()
        self.progress: dict[str, Any] = {"what": "starting", "done": 0, "total": 0}
        self.outcome: str | None = None
        self.error: dict[str, str] | None = None
        #: Where a compile that is held waits: :mod:`workbench.model.stepping` says what it holds.
        self.paused: dict[str, Any] | None = None
        self._noise = ""
        self._gate = threading.Lock()  # it begins, or is cancelled before it has
        self._stopping = False
        self._looked = 0.0  # when a page looked at it last
        self._patience = PATIENCE
        self._heard = False  # whether the process has said anything
        self._process: subprocess.Popen[str] | None = None
        self._clock: threading.Timer | None = None

    def begin(self) -> None:
        """Start the process, unless it was cancelled meanwhile."""
        with self._gate:
            if not self.running:
                return
            self.started = time.time()
            self.progress = {"what": "starting", "done": 0, "total": 0}
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "workbench.app.worker"], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                    start_new_session=True, env={**os.environ, **self._limits.environment},
                )  # fmt: skip
            except OSError as error:
                self.error = {"what": f"no process can be started: {error.strerror}",
                              "where": str(self.job["model"]),
                              "fix": "try again when this machine has less to do"}  # fmt: skip
                self.outcome = "failed"
                return
        if self._limits.seconds:
            self._clock = threading.Timer(self._limits.seconds, self._late)
            self._clock.daemon = True
            self._clock.start()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def running(self) -> bool:
        return self.outcome is None

    @property
    def waits(self) -> bool:
        """Whether it stands in the queue."""
        return self.running and self._process is None

    @property
    def facts(self) -> dict[str, Any]:
        """How far it is."""
        elapsed = int(time.time() - self.started)
        return {**self.progress, "elapsed": elapsed, "paused": self.paused}

    @property
    def pid(self) -> int:
        """Of its process; 0 while it has none."""
        return 0 if self._process is None else self._process.pid

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command to a compile that waits (:mod:`workbench.model.stepping`)."""
        if self.paused is None or self._process is None or self._process.stdin is None:
            return
        self.paused = None
        with suppress(OSError):  # it is gone: the watcher tells why
            self._process.stdin.write(json.dumps(dict(command)) + "\n")
            self._process.stdin.flush()

    def cancel(self, patience: float = PATIENCE) -> None:
        """Ask it to stop; terminate it where it does not after ``patience`` seconds.  Returns at
        once."""
        with self._gate:
            self._patience = min(self._patience, patience)
            waited = self.waits
            if waited:
                self.outcome = "cancelled"
            elif self.running and not self._stopping:
                self._stopping = True
                self.progress = {"what": "stopping", "done": 0, "total": 0}
                threading.Thread(target=self._stop, daemon=True).start()
        if waited:
            self._ended()

    def looked_at(self) -> None:
        """A page shows it.  One that is held is cancelled when none has done so for a while: nobody
        is there who could tell it to go on."""
        first, self._looked = not self._looked, time.monotonic()
        if first and self.job.get("hold"):
            threading.Thread(target=self._attend, daemon=True).start()

    def _attend(self) -> None:
        while self.running:
            left = self._looked + ALONE - time.monotonic()
            if left <= 0:
                self.cancel()
                return
            time.sleep(min(left, 1.0))

    def _late(self) -> None:
        """It has lasted as long as it may."""
        if self.running and not self._stopping:
            self.error = {"what": f"it has taken longer than the {self._limits.seconds:g} s that a "
                                  "job may last here", "where": str(self.job["model"]),
                          "fix": "what it finished is kept; compile something smaller, or have "
                                 "the limit raised (--job-seconds)"}  # fmt: skip
            self.cancel()

    def _stop(self) -> None:
        assert self._process is not None
        # Until it says something there is nothing to keep; and it hears no interrupt before it asks
        # for that, where the server itself was started with interrupts ignored.
        first = (signal.SIGINT,) if self._heard else ()
        for sign in (*first, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(sign)
            try:
                self._process.wait(self._patience)
                return
            except subprocess.TimeoutExpired:
                continue

    def _finish(self, outcome: str) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self.outcome = outcome
        self._ended()

    def _feed(self, to: IO[str]) -> None:
        with suppress(BrokenPipeError):  # it died at once: its exit code tells why
            to.write(json.dumps(self.job) + "\n")
            to.flush()
            if not self.job.get("hold"):
                to.close()

    def _listen(self, lines: IO[str]) -> None:
        begins = True
        for part in _parts(lines, MAX_LINE):
            self._heard = True
            if begins:  # the rest of a line that is too long is none
                self._hear(part)
            begins = part.endswith("\n")

    def _listen_to_noise(self, lines: IO[str]) -> None:
        for part in _parts(lines, MAX_NOISE):
            self._noise = (self._noise + part)[-MAX_NOISE:]

    def _watch(self) -> None:
        """Until the process ends, whoever has its pipes then."""
        assert self._process is not None
        process: Any = self._process
        readers = [
            threading.Thread(target=listen, args=(pipe,), daemon=True)
            for listen, pipe in (
                (self._listen, process.stdout), (self._listen_to_noise, process.stderr)
            )
        ]  # fmt: skip
        for reader in readers:
            reader.start()
        self._feed(process.stdin)
        code = process.wait()
        _end_children(process.pid)
        for reader in readers:
            reader.join(DRAIN)
        if self._stopping or code == 130:
            self._finish("cancelled" if self.error is None else "failed")
        elif code == 0:
            self._finish("finished")
        else:
            if self.error is None:
                last = self._noise.strip().rsplit("\n", 1)[-1] or f"exit code {code}"
                fix = "try again" if _DOING.keys() & self.job.keys() else (
                    "what it finished is kept; compile again")  # fmt: skip
                self.error = {"what": f"its process ended: {last[:300]}",
                              "where": self.job["model"], "fix": fix}  # fmt: skip
            if self._limits.memory and code != BAD_INPUT:  # what hits it raises all kinds of errors
                self.error["fix"] = (
                    f"a job may take {self._limits.memory / 2**30:.3g} GiB of address space here "
                    "(--job-memory), which may be why: compile something smaller, or have it raised"
                )
            self._finish("failed")

    def _hear(self, line: str) -> None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(told, dict):
            return
        if "paused" in told and not self._stopping:
            self.paused = told["paused"]
        if "progress" in told and not self._stopping:
            self.progress = told["progress"]
        if "error" in told and not self._stopping:
            self.error = told["error"]


def _parts(lines: IO[str], longest: int) -> Iterator[str]:
    """Lines, those that are too long in several parts."""
    return iter(partial(lines.readline, longest), "")


def _end_children(worker: int) -> None:
    """Kill what a worker that has ended left running: it led a session of its own."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)


class Compiles:
    """The compiles of a server, by the path of their recording."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._lock = threading.Lock()
        self._limits = limits
        self._closed = False
        self._all: dict[Path, Compile] = {}  # in the order in which they came

    def start(self, job: Mapping[str, Any], owner: str = "") -> Compile:
        """Start a worker for ``owner``, or put it in the queue; a job beside a recording that goes
        on already is that one.  UserError where the queue is full, or another job on the recording
        goes on."""
        with self._lock:
            out = Path(job["out"])
            if _DOING.keys() & job.keys():
                same = self._all.get(out)
                if same is not None and same.running:
                    if same.job != job:
                        raise UserError("another job on this recording is running", out.name,
                                        "wait until it is done, or cancel it")  # fmt: skip
                    return same
            else:
                out = self._free(out)
            there = [c for c in self._all.values() if c.running]
            if len(there) >= self._limits.compiles + self._limits.queue or self._closed:
                raise UserError(f"{_doing(there)}", "compile",
                                "wait until it is done, or cancel it")  # fmt: skip
            self._forget()
            made = Compile({**job, "out": str(out)}, self._limits, owner, self._go_on)
            self._all[out] = made
        self._go_on()
        return made

    def _free(self, out: Path) -> Path:
        """``out``, with a number where another compile has that name: its file comes later."""
        free, number = out, 1
        while free in self._all or (free != out and free.exists()):
            number += 1
            free = out.with_name(f"{out.stem}-{number}{out.suffix}")
        return free

    def _forget(self) -> None:
        """Those that ended long ago."""
        ended = [path for path, each in self._all.items() if not each.running]
        for path in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._all[path]

    def _go_on(self) -> None:
        """Begin what may begin, and tell the others their place."""
        with self._lock:
            going = [c for c in self._all.values() if c.running and not c.waits]
            waiting = [c for c in self._all.values() if c.waits]
            while waiting and len(going) < self._limits.compiles and not self._closed:
                first = waiting.pop(0)
                first.begin()
                if first.running:
                    going.append(first)
            for place, one in enumerate(waiting, 1):
                what = f"waiting, number {place} in the queue: {_doing(going)}"
                one.progress = {"what": what, "done": 0, "total": 0}

    def of(self, path: Path) -> Compile | None:
        return self._all.get(path)

    def stop_all(self) -> None:
        """Cancel what runs and wait for it, when the server ends."""
        with self._lock:
            self._closed = True
            running = [c for c in self._all.values() if c.running]
        for one in running:
            one.cancel(HASTE)
        deadline = time.monotonic() + 3 * HASTE
        while any(c.running for c in running) and time.monotonic() < deadline:
            time.sleep(0.05)


def _doing(running: list[Compile]) -> str:
    """Who has what compiled."""
    told = []
    for one in running[:3]:
        doing = next((w for kind, w in _DOING.items() if kind in one.job), "is being compiled")
        told.append(f"{one.job['model']} {doing}{f' for {one.owner}' if one.owner else ''}")
    more = len(running) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "") or "the server is shutting down"
