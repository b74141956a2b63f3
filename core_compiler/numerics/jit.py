"""Compilation of this package: the only place for Numba's flags, its cache and the FPU state.

Every function of the numerics contract is compiled through here, so that no module can turn on
``fastmath``, lose the NumPy error model or use Intel's SVML by accident.
"""

from __future__ import annotations

import os

os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")  # before Numba reads its configuration

import functools
import hashlib
import pickle
import types as pytypes
from collections.abc import Callable, Mapping
from pathlib import Path

import llvmlite
import numba
import numpy as np
from numba.core import caching

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import CANNOT_HERE, UserError

if numba.config.USING_SVML:  # Numba was imported, and found SVML, before this module
    numba.config.USING_SVML = False


#: ``error_model="numpy"``: a division by zero returns inf or NaN instead of raising.
FLAGS = {"error_model": "numpy", "fastmath": False, "nogil": True}


def inline_jit(function: Callable) -> Callable:
    """Compile a scalar function that LLVM must inline, so that loops around it are vectorised.

    ``forceinline`` compiles a callee once per type; ``inline="always"`` would retype its body at
    each call (0.44 s against 0.32 s for three calls of a 20-operation polynomial).
    """
    return numba.njit(forceinline=True, **FLAGS)(function)


def jit(function: Callable, *arguments: object, bounds: bool = False) -> Callable:
    """Compile a loop over arrays for one list of argument types, or load it from the cache.

    ``arguments`` are Numba types; with ``reads(..)`` for inputs one compiled function accepts
    writable and read-only arrays (memory-mapped weights), whereas compiling at the first call would
    create one function for each combination. Without ``arguments`` each call's types are compiled.
    The compiled function releases the GIL. With ``bounds`` an index outside an array raises
    IndexError instead of accessing other memory: for loops that compute their indices. Loops over
    each element of their arrays do without, because LLVM does not vectorise loops that may raise.
    """
    dispatcher = numba.njit(boundscheck=bounds or None, **FLAGS)(function)
    dispatcher._cache = _SourceKeyedCache(function)
    if arguments:
        dispatcher.compile(numba.types.void(*arguments))
        dispatcher.disable_compile()
    return dispatcher


def reads(dtype: object, rank: int) -> numba.types.Array:
    """Return the Numba type of a C-contiguous input array."""
    return numba.types.Array(dtype, rank, "C", readonly=True)


def writes(dtype: object, rank: int) -> numba.types.Array:
    """Return the Numba type of a C-contiguous output array."""
    return numba.types.Array(dtype, rank, "C")


def specialise(template: Callable, name: str, **bindings: object) -> Callable:
    """Return ``template`` as a new function ``name`` with global names bound to other objects."""
    names = {**template.__globals__, **bindings, "__name__": __name__}
    function = pytypes.FunctionType(template.__code__, names, name, template.__defaults__)
    function.__qualname__ = name
    function.__doc__ = template.__doc__
    function.__module__ = __name__
    return function


def instantiate(sources: Mapping[str, Callable], compile_: Callable, names: Mapping) -> dict:
    """Compile contract functions against one target's primitives.

    ``sources``: plain Python functions in an order with callees first; each refers to primitives
    and to earlier functions by global name. ``names``: the target's primitives. ``compile_``: the
    target's jit (``inline_jit`` here, ``cuda.jit(device=True)`` elsewhere). Return name -> compiled
    function. The target-independent source is the contract.
    """
    done: dict[str, Callable] = {}
    for name, source in sources.items():
        done[name] = compile_(specialise(source, name, **names, **done))
    return done


def cache_directory() -> Path:
    """Return the directory of compiled reference functions.

    It is in ``$COMPILER_WORKBENCH_CACHE`` or the user's cache directory, one folder for each state
    of the contract's sources.
    """
    root = os.environ.get("COMPILER_WORKBENCH_CACHE")
    if root is None:
        root = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
        root = os.path.join(root, "compiler-workbench")
    return Path(root) / "reference" / sources_digest()[:16]


@functools.cache
def sources_digest() -> str:
    """Return the SHA-256 over the contract's sources, its version and the compilers' versions.

    Numba's own cache only checks the file of the outermost function, and would serve a stale kernel
    after a change of an inlined function.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for version in (CONTRACT_VERSION, numba.__version__, llvmlite.__version__, np.__version__):
        digest.update(f"{version}\0".encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _Locator:
    def __init__(self, path: str):
        self._path = path
        self._py_file = __file__  # named in Numba's warnings

    def ensure_cache_path(self) -> None:
        os.makedirs(self._path, exist_ok=True)

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return sources_digest()

    def get_disambiguator(self) -> str:
        return "0"


class _SourceKeyedImpl(caching.CompileResultCacheImpl):
    def __init__(self, function: Callable):
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(str(cache_directory()))
        self._filename_base = self.get_filename_base(function.__qualname__, "")


class _SourceKeyedCache(caching.FunctionCache):
    """Numba's cache, keyed by all the contract's sources and by the specialised name."""

    _impl_class = _SourceKeyedImpl

    def load_overload(self, signature: object, target_context: object) -> object:
        """Return None for a truncated file, as if it were missing: it is written again."""
        try:
            return super().load_overload(signature, target_context)
        except (EOFError, ValueError, pickle.UnpicklingError):
            self.flush()
            return None

    def save_overload(self, signature: object, data: object) -> None:
        try:
            super().save_overload(signature, data)
        except OSError:  # an unwritable folder costs time, not results
            self.disable()


def assert_no_flush_to_zero() -> None:
    """Reject a thread whose FPU flushes subnormals or does not round to nearest even.

    The FPU itself is tested (three NumPy operations, a few microseconds), so the check is valid on
    every processor, whatever the control register is called. The state belongs to the thread: call
    it on the thread that will compute. Raise ``UserError`` (exit code 3).
    """
    smallest = np.full(1, 2.0**-149, np.float32)
    normal = np.full(1, 2.0**-126, np.float32)
    half_ulp = np.full(1, 2.0**-24, np.float32)
    one = np.ones(1, np.float32)
    fix = (
        "call torch.set_flush_denormal(False), or run on another thread; importing a library "
        "built with -ffast-math sets it: import that library on another thread"
    )
    if (smallest * one)[0] == 0:
        raise UserError("subnormal inputs are read as zero (DAZ)", "this thread", fix, CANNOT_HERE)
    if (normal * np.float32(0.5))[0] == 0:
        raise UserError("subnormal results are flushed to zero", "this thread", fix, CANNOT_HERE)
    up, down = (one + half_ulp)[0], (one + np.float32(3) * half_ulp)[0]
    if up != 1.0 or down != np.float32(1 + 2.0**-22):
        raise UserError("rounding is not to nearest even", "this thread", fix, CANNOT_HERE)
