"""Compiled kernels by content: equal sources compile once, on any run, in any process.

An entry holds ``source.py``, ``kernel.o`` (an object file or a cubin), ``kernel.ir`` (LLVM IR or
PTX), ``kernel.s`` (assembly or SASS), ``lines.json``, ``intermediate.json``, ``assembly.json``,
``facts.json`` and ``about.json``.  Loading for a CPU needs only llvmlite: a compiled model runs
without importing Numba.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import core_compiler
from core_compiler.runtime import loader
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.runtime.compile_pool import CompilePool, Job
from core_compiler.runtime.compile_worker import OBJECT
from core_compiler.runtime.program import BUILTIN, KernelRef
from core_compiler.runtime.team import native
from core_compiler.support.errors import UserError

#: The compiler of generated CPU source to object code.
CPU_COMPILER = "core_compiler.codegen.cpu:compile_source"
#: Our files whose text affects the compiled code of a source: flags, intrinsics, the contract.
_TOOLCHAIN = (
    "numerics/jit.py",
    "numerics/primitives.py",
    "numerics/functions*.py",
    "numerics/narrow.py",
    "kernel_ir/scalars.py",
    "codegen/*.py",
    "codegen/cpu/*.py",
)
KIND = "kernels"


class MissingKernel(UserError):
    """A kernel is missing in the cache: compile the program again."""


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The generated source of one kernel; ``symbol`` is its function in the object file.

    ``lines``, rows of JSON values that map source lines to ops, are stored with it and are not part
    of the key.
    """

    name: str
    source: str
    symbol: str = "kernel"
    lines: tuple = ()


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A cached kernel.  ``seconds``: its compile time (0 if cached); ``folder``: the entry."""

    ref: KernelRef
    folder: Path
    seconds: float
    cached: bool

    def text(self, file: str) -> str:
        """Return one of the entry's files, such as ``kernel.ir``; "" if there is none."""
        path = self.folder / file
        return path.read_text(errors="replace") if path.exists() else ""


Progress = Callable[[int, int, str], None]


class KernelCache:
    """The kernels in ``folder``, compiled by ``compiler`` (``module:function``).

    ``workers`` compile at a time.  ``identity`` returns what affects the machine code besides the
    source (default: the CPU's :func:`toolchain`).
    """

    def __init__(
        self,
        folder: CacheFolder | None = None,
        workers: int | None = None,
        compiler: str = CPU_COMPILER,
        identity: Callable[[], str] | None = None,
    ):
        self.folder = CacheFolder() if folder is None else folder
        self.compiler = compiler
        self.identity = toolchain if identity is None else identity
        self._workers = workers
        self._loaded: dict[str, loader.LoadedCode] = {}
        self._lock = threading.Lock()

    def key(self, source: KernelSource) -> str:
        """Return the SHA-256 of the source, its symbol, and all that affects machine code."""
        parts = (source.symbol, source.source, self.compiler, self.identity())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def warm(self) -> None:
        """Start the compile processes now, so that their imports overlap with other work."""
        _pool(self._workers).warm(self.compiler)

    def compile(
        self,
        sources: Sequence[KernelSource],
        progress: Progress | None = None,
    ) -> list[CompiledKernel]:
        """Return the compiled kernels of ``sources``, in order.

        Those not in the cache are compiled now, the longest sources first; ``progress(done, total,
        name)`` is called after each of these.  Raises
        :class:`~core_compiler.runtime.compile_pool.KernelCompileError`; kernels finished before
        that, or before Ctrl-C, stay in the cache.
        """
        keys = [self.key(s) for s in sources]
        missing = {
            key: source
            for key, source in zip(keys, sources, strict=True)
            if self.folder.get(KIND, key, OBJECT) is None
        }
        seconds: dict[str, float] = {}
        order = sorted(missing.items(), key=lambda item: (-len(item[1].source), item[0]))
        jobs = {Job(s.name, s.source, self.compiler): key for key, s in order}
        for job, reply in _pool(self._workers).run(list(jobs)) if jobs else ():
            key = jobs[job]
            self._store(key, missing[key], reply)
            seconds[key] = reply["seconds"]
            if progress is not None:
                progress(len(seconds), len(jobs), job.name)
        return [
            CompiledKernel(
                KernelRef(s.name, key, s.symbol),
                self.folder.path(KIND, key),
                seconds.get(key, 0.0),
                key not in seconds,
            )
            for key, s in zip(keys, sources, strict=True)
        ]

    def missing(self, kernels: Sequence[KernelRef]) -> list[KernelRef]:
        """Return those of ``kernels`` whose object code is missing or damaged."""
        return [
            k
            for k in kernels
            if k.key != BUILTIN
            and k.key not in self._loaded
            and self.folder.get(KIND, k.key, OBJECT) is None
        ]

    def load(self, kernels: Sequence[KernelRef]) -> dict[str, int]:
        """Return each kernel's address in this process, by name; this cache keeps them loaded."""
        return {k.name: self._address(k) for k in kernels}

    def file(self, kernel: KernelRef, name: str = OBJECT) -> bytes:
        """Return a file of a kernel's entry; :class:`MissingKernel` if it is missing."""
        data = self.folder.get(KIND, kernel.key, name)
        if data is None:
            raise MissingKernel(
                "is not in the kernel cache", f"kernel {kernel.name}", "compile the model again"
            )
        return data

    def facts(self, kernel: KernelRef) -> dict:
        """Return the compiler's facts about a kernel's machine code."""
        return json.loads(self.file(kernel, "facts.json"))

    def _address(self, kernel: KernelRef) -> int:
        if kernel.key == BUILTIN:
            return native()[kernel.symbol]
        with self._lock:
            if kernel.key not in self._loaded:
                data = self.file(kernel)
                self._loaded[kernel.key] = loader.load_object(
                    data, (kernel.symbol,), where=f"kernel {kernel.name}"
                )
            return self._loaded[kernel.key][kernel.symbol]

    def _store(self, key: str, source: KernelSource, reply: dict) -> None:
        about = {
            "name": source.name,
            "symbol": source.symbol,
            "seconds": round(reply["seconds"], 3),
            "toolchain": self.identity(),
            "compiler": self.compiler,
        }
        files = {
            "source.py": source.source.encode(),
            "about.json": json.dumps(about, indent=1, sort_keys=True).encode(),
        }
        if source.lines:
            files["lines.json"] = json.dumps(source.lines).encode()
        self.folder.put(KIND, key, {**reply["files"], **files})


@functools.cache
def toolchain() -> str:
    """Return the versions, the processor, and the digest of our files that affect machine code."""
    parts = (
        *(f"{p} {_version(p)}" for p in ("numba", "llvmlite")),
        *loader.host(),
        digest_of(_TOOLCHAIN),
    )
    return "; ".join(parts)


def digest_of(patterns: Sequence[str]) -> str:
    """Return the SHA-256 of the compiler's files that match ``patterns``: paths and contents."""
    package = Path(core_compiler.__file__).parent
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(package.glob(pattern)):
            digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _pool_of(workers: int, process: int) -> CompilePool:
    return CompilePool(workers)


def _pool(workers: int | None) -> CompilePool:
    """Return this process's pool (a forked child makes its own)."""
    return _pool_of(workers or default_workers(), os.getpid())


def default_workers() -> int:
    """Return ``$COMPILER_WORKBENCH_COMPILE_WORKERS``, else one per processor, at most 8."""
    text = os.environ.get("COMPILER_WORKBENCH_COMPILE_WORKERS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise UserError(
                f"expected a number of processes, got {text!r}",
                "COMPILER_WORKBENCH_COMPILE_WORKERS",
                "set it to an integer of 1 or more",
            )
        return int(text)
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return max(1, min(8, processors or 1))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
