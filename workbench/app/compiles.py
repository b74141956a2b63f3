"""Compiles started by the page: one worker process each, its progress, errors and cancellation.

A server runs a limited number at a time; others wait in a queue, and all may have limits.
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

#: The time a worker may take to stop before it is terminated, then killed (seconds).
PATIENCE = 15.0
#: The amount of a worker's other output that is kept, for errors (characters).
MAX_STDERR = 4000
#: The longest line of a worker that is parsed: the code it runs can write there too (characters).
MAX_LINE = 1 << 20
#: The time limit of each step of stopping when the server ends (seconds).
SHUTDOWN_PATIENCE = 4.0
#: The time for which a worker's output is read after its end (seconds): processes it left behind
#: may keep the pipe open.
DRAIN = 2.0
#: The time a held compile waits for a page after the last one has gone (seconds): the page may just
#: be reloading.
ABANDONED_AFTER = 60.0
#: The number of finished compiles that are remembered, for pages that ask for their outcome.
MAX_ENDED = 50


@dataclass(frozen=True)
class Limits:
    """The limits of a server's compiles.

    ``compiles`` run at a time and ``queue`` more may wait; each may take ``memory`` bytes and last
    ``seconds`` (0: no limit). ``bound``: no worker outlives the server, however it ends.
    """

    compiles: int = 1
    queue: int = 0
    memory: int = 0
    seconds: float = 0.0
    bound: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass the limits to a worker."""
        values = {"MEMORY": self.memory, "SECONDS": self.seconds, "BOUND": int(self.bound)}
        return {
            f"COMPILER_WORKBENCH_JOB_{k}": f"{v:g}" if k == "SECONDS" else str(v)
            for k, v in values.items()
            if v
        }


#: The predicate of messages about a background job's model, by the kind of the job.
_ACTIVITIES = {
    "diverge": "are being compared",
    "bisect": "is being searched for a bad pass",
    "append": "is being executed",
}


class Compile:
    """A worker process and its reports so far.

    ``outcome`` is None while it waits or runs; ``owner`` is the user who started it, "" without
    sign-in.
    """

    def __init__(
        self,
        job: Mapping[str, Any],
        limits: Limits = Limits(),
        owner: str = "",
        ended: Callable[[], None] = lambda: None,
    ):
        self.job = dict(job)
        self.owner, self._limits, self._ended = owner, limits, ended
        self.path = Path(job["out"])
        self.started = time.time()
        self.progress: dict[str, Any] = {"what": "starting", "done": 0, "total": 0}
        self.outcome: str | None = None
        self.error: dict[str, str] | None = None
        #: The position at which a held compile waits (see :mod:`workbench.model.stepping`).
        self.paused: dict[str, Any] | None = None
        self._stderr = ""
        self._lock = threading.Lock()  # it either begins or is cancelled before
        self._stopping = False
        self._last_viewed = 0.0  # time of the last look by a page
        self._patience = PATIENCE
        self._has_output = False  # whether the process has written anything
        self._process: subprocess.Popen[str] | None = None
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start the process, unless it was cancelled meanwhile."""
        with self._lock:
            if not self.running:
                return
            self.started = time.time()
            self.progress = {"what": "starting", "done": 0, "total": 0}
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "workbench.app.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                    env={**os.environ, **self._limits.environment},
                )
            except OSError as error:
                self.error = {
                    "what": f"cannot start a process: {error.strerror}",
                    "where": str(self.job["model"]),
                    "fix": "try again when this machine is less busy",
                }
                self.outcome = "failed"
                return
        if self._limits.seconds:
            self._timer = threading.Timer(self._limits.seconds, self._time_out)
            self._timer.daemon = True
            self._timer.start()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def running(self) -> bool:
        return self.outcome is None

    @property
    def is_queued(self) -> bool:
        """Return whether it is in the queue."""
        return self.running and self._process is None

    @property
    def facts(self) -> dict[str, Any]:
        """Return its progress."""
        elapsed = int(time.time() - self.started)
        return {**self.progress, "elapsed": elapsed, "paused": self.paused}

    @property
    def pid(self) -> int:
        """Return its process id; 0 if it has no process."""
        return 0 if self._process is None else self._process.pid

    def send_command(self, command: Mapping[str, Any]) -> None:
        """Send a command to a compile that waits (:mod:`workbench.model.stepping`)."""
        if self.paused is None or self._process is None or self._process.stdin is None:
            return
        self.paused = None
        with suppress(OSError):  # it is gone: the watcher reports why
            self._process.stdin.write(json.dumps(dict(command)) + "\n")
            self._process.stdin.flush()

    def cancel(self, patience: float = PATIENCE) -> None:
        """Request it to stop; terminate it if it has not after ``patience`` seconds.

        Returns at once.
        """
        with self._lock:
            self._patience = min(self._patience, patience)
            was_queued = self.is_queued
            if was_queued:
                self.outcome = "cancelled"
            elif self.running and not self._stopping:
                self._stopping = True
                self.progress = {"what": "stopping", "done": 0, "total": 0}
                threading.Thread(target=self._stop, daemon=True).start()
        if was_queued:
            self._ended()

    def mark_viewed(self) -> None:
        """Note that a page shows it.

        A held compile is cancelled if no page has shown it for a while: no user could resume it.
        """
        first, self._last_viewed = not self._last_viewed, time.monotonic()
        if first and self.job.get("hold"):
            threading.Thread(target=self._cancel_if_abandoned, daemon=True).start()

    def _cancel_if_abandoned(self) -> None:
        while self.running:
            remaining = self._last_viewed + ABANDONED_AFTER - time.monotonic()
            if remaining <= 0:
                self.cancel()
                return
            time.sleep(min(remaining, 1.0))

    def _time_out(self) -> None:
        """Cancel it because its time limit has passed."""
        if self.running and not self._stopping:
            self.error = {
                "what": f"it exceeded the limit of {self._limits.seconds:g} s for a job "
                "on this server",
                "where": str(self.job["model"]),
                "fix": "what it finished is kept; compile a smaller model, or ask "
                "for a higher limit (--job-seconds)",
            }
            self.cancel()

    def _stop(self) -> None:
        assert self._process is not None
        # Before its first output there is no result to keep, and if the server was started with
        # interrupts ignored, the worker ignores them until it installs its handler.
        first = (signal.SIGINT,) if self._has_output else ()
        for signum in (*first, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(signum)
            try:
                self._process.wait(self._patience)
                return
            except subprocess.TimeoutExpired:
                continue

    def _finish(self, outcome: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.outcome = outcome
        self._ended()

    def _feed(self, to: IO[str]) -> None:
        with suppress(BrokenPipeError):  # it died at once: its exit code says why
            to.write(json.dumps(self.job) + "\n")
            to.flush()
            if not self.job.get("hold"):
                to.close()

    def _read_stdout(self, lines: IO[str]) -> None:
        is_line_start = True
        for part in _parts(lines, MAX_LINE):
            self._has_output = True
            if is_line_start:  # the rest of an overlong line is not a line
                self._read_report(part)
            is_line_start = part.endswith("\n")

    def _read_stderr(self, lines: IO[str]) -> None:
        for part in _parts(lines, MAX_STDERR):
            self._stderr = (self._stderr + part)[-MAX_STDERR:]

    def _watch(self) -> None:
        """Wait until the process ends, even if others still hold its pipes."""
        assert self._process is not None
        process: Any = self._process
        readers = [
            threading.Thread(target=read, args=(pipe,), daemon=True)
            for read, pipe in (
                (self._read_stdout, process.stdout),
                (self._read_stderr, process.stderr),
            )
        ]
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
                last = self._stderr.strip().rsplit("\n", 1)[-1] or f"exit code {code}"
                fix = (
                    "try again"
                    if _ACTIVITIES.keys() & self.job.keys()
                    else ("what it finished is kept; compile again")
                )
                self.error = {
                    "what": f"its process ended: {last[:300]}",
                    "where": self.job["model"],
                    "fix": fix,
                }
            if self._limits.memory and code != BAD_INPUT:  # raises many kinds of errors
                self.error["fix"] = (
                    f"the limit of {self._limits.memory / 2**30:.3g} GiB of address space "
                    "(--job-memory) may be the cause: use a smaller model, or ask for a higher one"
                )
            self._finish("failed")

    def _read_report(self, line: str) -> None:
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(report, dict):
            return
        if "paused" in report and not self._stopping:
            self.paused = report["paused"]
        if "progress" in report and not self._stopping:
            self.progress = report["progress"]
        if "error" in report and not self._stopping:
            self.error = report["error"]


def _parts(lines: IO[str], longest: int) -> Iterator[str]:
    """Yield lines; overlong ones in several parts."""
    return iter(partial(lines.readline, longest), "")


def _end_children(worker: int) -> None:
    """Kill the processes left by a worker that has ended: it led a session of its own."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)


class Compiles:
    """The compiles of a server, by the path of their recording."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._lock = threading.Lock()
        self._limits = limits
        self._closed = False
        self._all: dict[Path, Compile] = {}  # in order of arrival

    def start(self, job: Mapping[str, Any], owner: str = "") -> Compile:
        """Start a worker for ``owner``, or put it in the queue.

        If the same job on a recording is already running, it is returned. UserError if the queue
        is full, or another job on the recording is running.
        """
        with self._lock:
            out = Path(job["out"])
            if _ACTIVITIES.keys() & job.keys():
                existing = self._all.get(out)
                if existing is not None and existing.running:
                    if existing.job != job:
                        raise UserError(
                            "another job on this recording is running",
                            out.name,
                            "wait until it is done, or cancel it",
                        )
                    return existing
            else:
                out = self._free(out)
            active = [c for c in self._all.values() if c.running]
            if len(active) >= self._limits.compiles + self._limits.queue or self._closed:
                raise UserError(
                    f"{_describe_activity(active)}",
                    "compile",
                    "wait until it is done, or cancel it",
                )
            self._forget()
            made = Compile({**job, "out": str(out)}, self._limits, owner, self._start_queued)
            self._all[out] = made
        self._start_queued()
        return made

    def _free(self, out: Path) -> Path:
        """Return ``out``, with a number if another compile has reserved that name."""
        free, number = out, 1
        while free in self._all or (free != out and free.exists()):
            number += 1
            free = out.with_name(f"{out.stem}-{number}{out.suffix}")
        return free

    def _forget(self) -> None:
        """Forget the compiles that ended long ago."""
        ended = [path for path, each in self._all.items() if not each.running]
        for path in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._all[path]

    def _start_queued(self) -> None:
        """Start the compiles that may start, and update the queue positions of the others."""
        with self._lock:
            active = [c for c in self._all.values() if c.running and not c.is_queued]
            waiting = [c for c in self._all.values() if c.is_queued]
            while waiting and len(active) < self._limits.compiles and not self._closed:
                first = waiting.pop(0)
                first.begin()
                if first.running:
                    active.append(first)
            for position, one in enumerate(waiting, 1):
                what = f"waiting, number {position} in the queue: {_describe_activity(active)}"
                one.progress = {"what": what, "done": 0, "total": 0}

    def of(self, path: Path) -> Compile | None:
        return self._all.get(path)

    def stop_all(self) -> None:
        """Cancel the running compiles and wait for them, when the server ends."""
        with self._lock:
            self._closed = True
            running = [c for c in self._all.values() if c.running]
        for one in running:
            one.cancel(SHUTDOWN_PATIENCE)
        deadline = time.monotonic() + 3 * SHUTDOWN_PATIENCE
        while any(c.running for c in running) and time.monotonic() < deadline:
            time.sleep(0.05)


def _describe_activity(running: list[Compile]) -> str:
    """Return who is compiling what, as text."""
    parts = []
    for one in running[:3]:
        activity = next(
            (w for kind, w in _ACTIVITIES.items() if kind in one.job), "is being compiled"
        )
        parts.append(f"{one.job['model']} {activity}{f' for {one.owner}' if one.owner else ''}")
    more = len(running) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more else "") or "the server is shutting down"
