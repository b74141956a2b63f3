"""Kernel IR to machine code of this processor: readable Numba source, object code, listings."""

from __future__ import annotations


def compile_source(source, name: str = ""):
    """Compile generated source to an object file (see :mod:`core_compiler.codegen.cpu.compile`)."""
    from core_compiler.codegen.cpu.compile import compile_source

    return compile_source(source, name)


def generate(function):
    """Return the source of a scheduled kernel (see :mod:`core_compiler.codegen.cpu.source`)."""
    from core_compiler.codegen.cpu.source import generate

    return generate(function)


def warm_up() -> None:
    """Compile a small kernel, for which Numba loads what every kernel needs."""
    compile_source(_SMALL)


_SMALL = """
NAME = "small"
BUFFERS = 2


def kernel(args, lo, hi, scratch):
    x = buffer_f32(args, 0, 0)
    y = buffer_f32(args, 1, 1)
    n = size(args, 2)
    for i in range(lo, hi):
        for j in range(0, min(i // 2, n), 16):
            if j < n:
                store_f32x16(y, j, load_f32x16(x, i * n + j) + splat_f32x16(f32(1.0)))
            else:
                y[j] = maximum_f32(x[j], f32(0.0))
"""
