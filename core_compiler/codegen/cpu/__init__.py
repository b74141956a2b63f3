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
