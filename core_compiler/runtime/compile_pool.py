"""A pool of warm compile workers: jobs in, files out; a crash names its kernel."""

from __future__ import annotations

import atexit
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

from typing_extensions import override

from core_compiler.runtime import compile_worker
from core_compiler.support.errors import CANNOT_HERE, UserError

#: Time limit of the compilation of one kernel, in seconds.
TIME_LIMIT = 300


@dataclass(frozen=True, slots=True)
class Job:
    """A compile job; ``compiler`` is ``module:function``; ``function(source, name)`` compiles."""

    name: str
    source: str | None
    compiler: str


class KernelCompileError(UserError):
    """A kernel did not compile, or crashed its compiler process; ``log`` is the output of that."""

    def __init__(self, what: str, kernel: str, fix: str, log: str = ""):
        super().__init__(what, f"kernel {kernel}", fix, CANNOT_HERE)
        self.kernel, self.log = kernel, log

    @override
    def __reduce__(self):
        return KernelCompileError, (self.what, self.kernel, self.fix, self.log)


class CompilePool:
    """A pool of ``workers`` spawned processes, started on demand and kept until the exit."""

    def __init__(self, workers: int, time_limit: float = TIME_LIMIT):
        self.workers, self.time_limit = workers, time_limit
        self._members: list[_Worker] = []
        self._lock, self._owner = threading.Lock(), os.getpid()
        atexit.register(self.close)

    def warm(self, compiler: str) -> None:
        """Start the processes and their imports (about a second) without waiting for them."""
        with self._lock:
            for worker in self._ready(self.workers):
                if worker.job is None and not worker.warmed:
                    worker.send(Job("warm-up", None, compiler))

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, dict]]:
        """Yield ``(job, {"files", "seconds"})`` as jobs finish.

        Raises :class:`KernelCompileError` at the first that fails.  Leaving early (error, Ctrl-C, a
        closed generator) ends the processes that are still busy; results yielded so far stay valid.
        """
        with self._lock:
            todo, done = list(reversed(jobs)), 0
            try:
                while done < len(jobs):
                    for worker in self._ready(min(self.workers, len(jobs))):
                        if worker.job is None and todo:
                            worker.send(todo.pop())
                    for worker in self._wait():
                        job, reply = worker.receive()
                        if job.source is None:
                            continue
                        if "refused" in reply:
                            what, fix = reply["refused"]
                            raise KernelCompileError(what, job.name, fix)
                        if "error" in reply:
                            raise KernelCompileError(
                                f"does not compile ({_first_line(reply['error'])})",
                                job.name,
                                "report it with the kernel's source",
                                reply["trace"],
                            )
                        done += 1
                        yield job, reply
            finally:
                for worker in self._members:
                    if worker.job is not None and worker.job.source is not None:
                        worker.end()
                self._members = [w for w in self._members if not w.ended]

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked child must not end its parent's processes
        for worker in self._members:
            worker.end()
        self._members = []

    def _ready(self, count: int) -> list[_Worker]:
        self._members = [w for w in self._members if not w.ended]
        while len(self._members) < count:
            self._members.append(_Worker())
        return self._members

    def _wait(self) -> list[_Worker]:
        """Return busy workers with something to read (a reply, or their end)."""
        busy = [w for w in self._members if w.job is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.replies, selectors.EVENT_READ, worker)
            while True:
                ready = [key.data for key, _ in selector.select(timeout=1.0)]
                if ready:
                    return ready
                for worker in busy:
                    if time.monotonic() - worker.since > self.time_limit:
                        job = cast(Job, worker.job)
                        worker.end()
                        raise KernelCompileError(
                            f"did not compile in {self.time_limit:.0f} s",
                            job.name,
                            "choose smaller tiles",
                        )


class _Worker:
    def __init__(self):
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in end())
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (os.getcwd(), *sys.path) if p)
        environment.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", compile_worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
        )
        self._requests = cast(BinaryIO, self.process.stdin)
        self.replies = cast(BinaryIO, self.process.stdout)
        self.job: Job | None = None
        self.since, self.ended, self.warmed = 0.0, False, False

    def send(self, job: Job) -> None:
        self.job, self.since, self.warmed = job, time.monotonic(), True
        message = {"name": job.name, "source": job.source, "compiler": job.compiler}
        with suppress(BrokenPipeError):  # it died: receive() reports that
            compile_worker.write(self._requests, message)

    def receive(self) -> tuple[Job, dict]:
        assert self.job is not None
        job, reply = self.job, compile_worker.read(self.replies)
        if reply is None:
            code = self.process.wait()
            log = self._log()
            self.end()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise KernelCompileError(
                f"crashed its compiler process ({how}{_most_informative_line(log)})",
                job.name,
                "report it with the kernel's source; other kernels are not affected",
                log,
            )
        self.job = None
        return job, reply

    def end(self) -> None:
        if self.ended:
            return
        self.ended, self.job = True, None
        self.process.kill()
        self.process.wait()
        for stream in (self._requests, self.replies, self.log):
            with suppress(OSError):  # unsent bytes to a dead process
                stream.close()

    def _log(self) -> str:
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 4000))
        return self.log.read().decode(errors="replace")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "no reason given"


def _most_informative_line(log: str) -> str:
    """Return the most informative line of a log.

    LLVM's error, Python's fatal error, else the last line.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "ERROR" in line or "Fatal" in line] or lines[-1:]
    return f": {telling[0][:160]}" if telling else ""
