"""A forking server: this process has the heavy libraries, each child imports one tree of ours.

A child is a process group of its own with a time limit; what it finds it writes to a pipe as lines
of JSON, so that what it said before it died is known.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Address space that a child may take beyond what it begins with: a wrong size asks for terabytes.
MEMORY = 6 << 30


def load_libraries() -> None:
    """Import what all children need, but nothing of ours, and warm Numba's compiler."""
    os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # a forked child has no thread pools
    import llvmlite  # noqa: F401
    import numba
    import numpy as np
    import onnx.helper
    import onnx.shape_inference  # noqa: F401
    import onnxruntime
    import psutil  # noqa: F401
    import torch._dynamo  # exporting imports them late, in each child
    import torch.export._trace
    import torch.nn.functional

    torch.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)

    @numba.njit(error_model="numpy", nogil=True)
    def warm(a: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(out)):
            out[i] = a[i] * a[i] + 1

    read = numba.types.Array(numba.float32, 1, "C", readonly=True)
    warm.compile(numba.types.void(read, numba.types.Array(numba.float32, 1, "C")))
    ours = [
        name for name in sys.modules if name.partition(".")[0] in ("core_compiler", "workbench")
    ]
    assert not ours, f"the server has imported {ours}"


@dataclass
class Task:
    """``run(say)`` is called in a child whose working tree is ``tree``; ``say`` sends a message.
    The child is ended where it says nothing for ``limit`` seconds.  ``prepare(place)`` is called
    before; no two tasks that run at a time have the same place (0, 1...)."""

    key: Any
    tree: Path
    cache: Path
    run: Callable[[Callable[[dict], None]], None]
    limit: float
    prepare: Callable[[int], None] = lambda place: None


@dataclass
class Done:
    """``said``: the child's messages.  ``ended``: "", "timeout" or the signal that ended it.
    ``seconds``: wall time, ``processor``: processor time."""

    key: Any
    said: list[dict] = field(default_factory=list)
    ended: str = ""
    seconds: float = 0.0
    processor: float = 0.0


@dataclass
class _Child:
    task: Task
    place: int
    pid: int
    pipe: int
    started: float
    heard: float
    data: bytes = b""


def run(tasks: deque[Task], jobs: int) -> Iterator[Done]:
    """Run the tasks in children, ``jobs`` at a time; results as they come.  Who takes a result may
    append further tasks."""
    children: dict[int, _Child] = {}
    selector = selectors.DefaultSelector()
    while tasks or children:
        while tasks and len(children) < jobs:
            taken = {c.place for c in children.values()}
            child = _fork(tasks.popleft(), next(p for p in range(jobs) if p not in taken))
            children[child.pipe] = child
            selector.register(child.pipe, selectors.EVENT_READ)
        for key, _ in selector.select(timeout=0.2) if children else ():
            child = children[key.fd]
            block = os.read(child.pipe, 1 << 16)
            child.data += block
            child.heard = time.monotonic()
            if not block:
                yield _reap(child, children, selector)
        for child in list(children.values()):
            if time.monotonic() - child.heard > child.task.limit:
                yield _reap(child, children, selector, "timeout")


def _reap(child: _Child, children: dict, selector: Any, ended: str = "") -> Done:
    """The end of a child and of what it began."""
    if ended:
        _kill(child.pid)
    _, status, used = os.wait4(child.pid, 0)
    _kill(child.pid)  # processes that it left
    selector.unregister(child.pipe)
    os.close(child.pipe)
    del children[child.pipe]
    if not ended and os.WIFSIGNALED(status):
        ended = signal.Signals(os.WTERMSIG(status)).name
    elif not ended and os.WEXITSTATUS(status):
        ended = "without a word"
    lines = child.data.decode(errors="replace").splitlines()
    said = [json.loads(line) for line in lines if line.endswith("}")]
    seconds = time.monotonic() - child.started
    return Done(child.task.key, said, ended, seconds, used.ru_utime + used.ru_stime)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _fork(task: Task, place: int) -> _Child:
    task.prepare(place)
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writer)
        now = time.monotonic()
        return _Child(task, place, pid, reader, now, now)
    code = 1
    try:
        os.setsid()
        os.close(reader)
        _enter(task)
        with os.fdopen(writer, "w") as pipe:

            def say(message: dict) -> None:
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()

            try:
                task.run(say)
            except BaseException:
                say({"kind": "harness", "error": traceback.format_exc()})
            code = 0
    finally:
        os._exit(code)


def _enter(task: Task) -> None:
    """Make the task's tree and cache those of this process."""
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silent, number)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["COMPILER_WORKBENCH_CACHE"] = str(task.cache)
    os.environ.pop("PYTHONPATH", None)
    for name in [n for n in sys.modules if n.partition(".")[0] == "tests"]:
        if name != __name__:
            sys.modules.pop(name)  # what a task imports is the tree's
    os.chdir(task.tree)
    sys.path[:] = [str(task.tree), *(p for p in sys.path if p and not _is_ours(p))]
    used = _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(max(3000, sys.getrecursionlimit()))


def _is_ours(path: str) -> bool:
    return (Path(path) / "core_compiler").is_dir()


def _address_space() -> int:
    import psutil

    return psutil.Process().memory_info().vms
