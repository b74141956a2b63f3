"""Compilers for the tests, run in compile workers: LLVM IR text instead of generated Python."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

from core_compiler.runtime import loader


def compile_text(source: str, name: str) -> SimpleNamespace:
    """Source is LLVM IR; a first line ``;abort``, ``;raise``, ``;print`` misbehaves on purpose."""
    if source.startswith(";abort"):
        print("LLVM ERROR: out of registers in", name, file=sys.stderr, flush=True)
        os.abort()
    if source.startswith(";raise"):
        raise ValueError(f"no rule for {name}\nsecond line")
    if source.startswith(";print"):
        print("a line on standard output")
    return SimpleNamespace(
        object=loader.compile_ir(source), intermediate=source, assembly="", lines=[[1, 2]]
    )


def python_kernel(source: str, name: str) -> SimpleNamespace:
    """Numba source of one function ``kernel(args, lo, hi, scratch)``, as real targets emit it."""
    from numba import cfunc, types

    names: dict = {}
    exec(compile(source, name, "exec"), names)
    compiled = cfunc(types.void(*[types.int64] * 4), nopython=True)(names["kernel"])
    text = compiled._library.get_llvm_str().replace(compiled._wrapper_name, "kernel")
    return SimpleNamespace(object=loader.compile_ir(text))


def sleep(source: str, name: str) -> None:
    time.sleep(float(source))
