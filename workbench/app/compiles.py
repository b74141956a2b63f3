"""Compiles that the page started: a worker process each, its progress, its errors, cancelling."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core_compiler.errors import UserError

#: How long a worker may take to stop before it is terminated, then killed (seconds).
PATIENCE = 15.0
#: How much of what a worker prints beside its lines is kept, for errors (characters).
MAX_NOISE = 4000


#: What a search does with its model, by the kind of its job.
_DOING = {"diverge": "are being compared", "bisect": "is being looked through for a bad pass"}


class Compile:
    """A worker process and what it has told so far.  ``outcome`` is None while it runs."""

    def __init__(self, job: Mapping[str, Any]):
        self.job = dict(job)
        self.path = Path(job["out"])
        self.started = time.time()
        self.progress: dict[str, Any] = {"what": "starting", "done": 0, "total": 0}
        self.outcome: str | None = None
        self.error: dict[str, str] | None = None
        #: Where a compile that is held waits: :mod:`workbench.hold` says what it holds.
        self.paused: dict[str, Any] | None = None
        self._noise = ""
        self._stopping = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workbench.worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
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
    def pid(self) -> int:
        return self._process.pid

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command to a compile that waits (:mod:`workbench.hold`)."""
        if self.paused is None or self._process.stdin is None:
            return
        self.paused = None
        with suppress(OSError):  # it is gone: the watcher tells why
            self._process.stdin.write(json.dumps(dict(command)) + "\n")
            self._process.stdin.flush()

    def cancel(self) -> None:
        """Ask it to stop; terminate it where it does not.  Returns at once."""
        if self.running and not self._stopping:
            self._stopping = True
            self.progress = {"what": "stopping", "done": 0, "total": 0}
            threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(sign)
            try:
                self._process.wait(PATIENCE)
                return
            except subprocess.TimeoutExpired:
                continue

    def _listen_to_noise(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._noise = (self._noise + line)[-MAX_NOISE:]

    def _watch(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._hear(line)
        code = self._process.wait()
        self._noise_reader.join(1.0)
        if self._stopping or code == 130:
            self.outcome = "cancelled"
        elif code == 0:
            self.outcome = "finished"
        else:
            if self.error is None:
                last = self._noise.strip().rsplit("\n", 1)[-1] or f"exit code {code}"
                fix = "look again" if {"diverge", "bisect"} & self.job.keys() else (
                    "what it finished is kept; compile again")  # fmt: skip
                self.error = {"what": f"its process ended: {last[:300]}",
                              "where": self.job["model"], "fix": fix}  # fmt: skip
            self.outcome = "failed"

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
        if "error" in told:
            self.error = told["error"]


class Compiles:
    """The compiles of a server, by the path of their recording; one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[Path, Compile] = {}

    def start(self, job: Mapping[str, Any]) -> Compile:
        """Start a worker; UserError while another one runs."""
        with self._lock:
            busy = next((c for c in self._all.values() if c.running), None)
            if busy is not None:
                doing = next((w for kind, w in _DOING.items() if kind in busy.job),
                             "is being compiled")  # fmt: skip
                raise UserError(f"{busy.job['model']} {doing}", "compile",
                                "wait until it is done, or cancel it")  # fmt: skip
            made = Compile(job)
            self._all[made.path] = made
            return made

    def of(self, path: Path) -> Compile | None:
        return self._all.get(path)

    def running(self) -> Compile | None:
        return next((c for c in self._all.values() if c.running), None)

    def stop_all(self) -> None:
        """Cancel what runs and wait for it, when the server ends."""
        running = [c for c in self._all.values() if c.running]
        for one in running:
            one.cancel()
        deadline = time.monotonic() + 2 * PATIENCE
        while any(c.running for c in running) and time.monotonic() < deadline:
            time.sleep(0.05)
