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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_compiler.errors import BAD_INPUT, UserError

#: How long a worker may take to stop before it is terminated, then killed (seconds).
PATIENCE = 15.0
#: How much of what a worker prints beside its lines is kept, for errors (characters).
MAX_NOISE = 4000
#: How long each step of stopping takes at most when the server ends (seconds).
HASTE = 4.0


@dataclass(frozen=True)
class Limits:
    """``compiles`` that run at a time and how many more may wait (``queue``); of each the bytes of
    ``memory`` that it may take and the ``seconds`` that it may last (0: as much as it wants)."""

    compiles: int = 1
    queue: int = 0
    memory: int = 0
    seconds: float = 0.0


#: What a search does with its model, by the kind of its job.
_DOING = {"diverge": "are being compared", "bisect": "is being looked through for a bad pass"}


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
        #: Where a compile that is held waits: :mod:`workbench.hold` says what it holds.
        self.paused: dict[str, Any] | None = None
        self._noise = ""
        self._stopping = False
        self._patience = PATIENCE
        self._process: subprocess.Popen[str] | None = None
        self._clock: threading.Timer | None = None

    def begin(self) -> None:
        """Start the process."""
        limits = self._limits
        held = {"COMPILER_WORKBENCH_JOB_MEMORY": str(limits.memory)} if limits.memory else {}
        self.started = time.time()
        self.progress = {"what": "starting", "done": 0, "total": 0}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workbench.worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, **held},
        )  # fmt: skip
        assert self._process.stdin is not None
        if limits.seconds:
            self._clock = threading.Timer(limits.seconds, self._late)
            self._clock.daemon = True
            self._clock.start()
        try:
            self._process.stdin.write(json.dumps(self.job) + "\n")
            self._process.stdin.flush()
            if not self.job.get("hold"):
                self._process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once: the watcher tells why
        self._noise_reader = threading.Thread(target=self._listen_to_noise, daemon=True)
        self._noise_reader.start()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def running(self) -> bool:
        return self.outcome is None

    @property
    def waits(self) -> bool:
        """Whether it stands in the queue."""
        return self.running and self._process is None

    @property
    def pid(self) -> int:
        """Of its process; 0 while it has none."""
        return 0 if self._process is None else self._process.pid

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command to a compile that waits (:mod:`workbench.hold`)."""
        if self.paused is None or self._process is None or self._process.stdin is None:
            return
        self.paused = None
        with suppress(OSError):  # it is gone: the watcher tells why
            self._process.stdin.write(json.dumps(dict(command)) + "\n")
            self._process.stdin.flush()

    def cancel(self, patience: float = PATIENCE) -> None:
        """Ask it to stop; terminate it where it does not after ``patience`` seconds.  Returns at
        once."""
        self._patience = min(self._patience, patience)
        if self.waits:
            self._finish("cancelled")
        elif self.running and not self._stopping:
            self._stopping = True
            self.progress = {"what": "stopping", "done": 0, "total": 0}
            threading.Thread(target=self._stop, daemon=True).start()

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
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
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

    def _listen_to_noise(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        for line in self._process.stderr:
            self._noise = (self._noise + line)[-MAX_NOISE:]

    def _watch(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self._hear(line)
        code = self._process.wait()
        self._noise_reader.join(1.0)
        if self._stopping or code == 130:
            self._finish("cancelled" if self.error is None else "failed")
        elif code == 0:
            self._finish("finished")
        else:
            if self.error is None:
                last = self._noise.strip().rsplit("\n", 1)[-1] or f"exit code {code}"
                fix = "look again" if {"diverge", "bisect"} & self.job.keys() else (
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
        except ValueError:
            return
        if not isinstance(told, dict):
            return
        if "paused" in told and not self._stopping:
            self.paused = told["paused"]
        if "progress" in told and not self._stopping:
            self.progress = told["progress"]
        if "error" in told and not self._stopping:
            self.error = told["error"]


class Compiles:
    """The compiles of a server, by the path of their recording."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._lock = threading.Lock()
        self._limits = limits
        self._closed = False
        self._all: dict[Path, Compile] = {}  # in the order in which they came

    def start(self, job: Mapping[str, Any], owner: str = "") -> Compile:
        """Start a worker for ``owner``, or put it in the queue; UserError where that is full."""
        with self._lock:
            there = [c for c in self._all.values() if c.running]
            if len(there) >= self._limits.compiles + self._limits.queue or self._closed:
                raise UserError(f"{_doing(there)}", "compile",
                                "wait until it is done, or cancel it")  # fmt: skip
            made = self._all[Path(job["out"])] = Compile(job, self._limits, owner, self._go_on)
        self._go_on()
        return made

    def _go_on(self) -> None:
        """Begin what may begin, and tell the others their place."""
        with self._lock:
            going = [c for c in self._all.values() if c.running and not c.waits]
            waiting = [c for c in self._all.values() if c.waits]
            while waiting and len(going) < self._limits.compiles and not self._closed:
                going.append(waiting.pop(0))
                going[-1].begin()
            for place, one in enumerate(waiting, 1):
                what = f"waiting, number {place} in the queue: {_doing(going)}"
                one.progress = {"what": what, "done": 0, "total": 0}

    def of(self, path: Path) -> Compile | None:
        return self._all.get(path)

    def running(self) -> Compile | None:
        return next((c for c in self._all.values() if c.running), None)

    def stop_all(self) -> None:
        """Cancel what runs and wait for it, when the server ends."""
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
    return ", ".join(told) + (f" and {more} more" if more else "") or "the server is ending"
