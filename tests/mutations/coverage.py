"""Which lines of the compiler each model of the corpus executes, and in which pass.

The tracer counts lines of functions only: lines of modules and classes are executed when they are
imported, whatever is compiled.  Functions that Numba compiles run no line of Python: of those that
a model asks for all lines count, with those of the functions that they call.
"""

from __future__ import annotations

import dis
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

#: What a line is executed by: "load", "check", "train", or "pass:NAME".
Lines = dict[str, dict[str, list[int]]]

_OPTIMIZED = 0x1  # set in the code of functions, not of modules and classes


class Tracer:
    """Collects ``phase -> file -> lines`` of the files in ``wanted`` (relative to ``root``)."""

    def __init__(self, root: str, wanted: Iterable[str]):
        self.root = os.path.join(root, "")
        self.wanted = {os.path.join(root, file): file for file in wanted}
        self.phase = "load"
        self.found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._left: dict[tuple[str, CodeType], set[int]] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Callable | None:
        """The global trace function: a local one for frames with lines that are not known."""
        code = frame.f_code
        file = self.wanted.get(code.co_filename)
        if file is None or not code.co_flags & _OPTIMIZED:
            return None
        key = self.phase, code
        left = self._left.get(key)
        if left is None:
            left = {line for _, line in dis.findlinestarts(code) if line}
            left.discard(-1 if code.co_name.startswith("<") else code.co_firstlineno)
            self._left[key] = left
        if not left:
            return None
        lines = self.found[self.phase][file]
        lines.add(frame.f_lineno)

        def local(frame: FrameType, event: str, argument: Any) -> Callable | None:
            if event == "line":
                lines.add(frame.f_lineno)
                left.discard(frame.f_lineno)
            return local

        return local

    def compiled(self, function: Any, seen: set[CodeType] | None = None) -> None:
        """Count the lines of a function that Numba compiles, and of those it calls."""
        seen = set() if seen is None else seen
        code = getattr(function, "__code__", None)
        if code is None or code in seen:
            return
        seen.add(code)
        file = self.wanted.get(code.co_filename)
        if file is not None:
            lines = [line for _, line in dis.findlinestarts(code) if line]
            self.found[self.phase][file].update(lines)
        for name in code.co_names:
            target = function.__globals__.get(name)
            self.compiled(getattr(target, "py_func", target), seen)

    def result(self) -> Lines:
        return {
            phase: {file: sorted(lines) for file, lines in files.items()}
            for phase, files in self.found.items()
        }


def trace(words: list[str], wanted: list[str]) -> dict[str, Any]:
    """Run a command under the tracer, in a child of the server; its result with ``lines`` and the
    ``tokens`` that rows of tables are named by: rules that fired, kinds of ops."""
    import numba

    from core_compiler.driver.compilation import Compilation
    from tests.mutations import commands

    _import_all(wanted)
    tracer = Tracer(os.getcwd(), wanted)
    tokens: set[str] = set()
    njit, run, check = numba.njit, Compilation._run, Compilation._check

    def recorded(*args: Any, **options: Any) -> Any:
        made = njit(*args, **options)
        if options.get("forceinline") or (args and callable(args[0])):
            return made

        def decorate(function: Any) -> Any:
            target = function.__globals__.get("target")
            tracer.compiled(getattr(target, "py_func", function))
            return made(function)

        return decorate

    def in_pass(self: Any, step: Any) -> Any:
        before, tracer.phase = tracer.phase, f"pass:{step.label.split('#')[0]}"
        try:
            stage = run(self, step)
        finally:
            tracer.phase = before
        tokens.update(r.rule for r in stage.rewrites)
        for function in (stage.module.main, *stage.module.functions.values()):
            tokens.update(_kinds(function.body))
        return stage

    def in_check(self: Any) -> Any:
        before, tracer.phase = tracer.phase, "check"
        try:
            return check(self)
        finally:
            tracer.phase = before

    untraced(tracer)
    numba.njit = recorded
    Compilation._run, Compilation._check = in_pass, in_check  # type: ignore[method-assign]
    started = time.perf_counter()
    sys.settrace(tracer)
    try:
        made = commands.run(words)
    finally:
        sys.settrace(None)
    numba.njit, Compilation._run, Compilation._check = njit, run, check  # type: ignore
    return made | {
        "kind": "coverage", "lines": tracer.result(), "tokens": sorted(tokens),
        "traced": round(time.perf_counter() - started, 2),
    }  # fmt: skip


def untraced(tracer: Tracer) -> None:
    """Let Numba compile without the tracer: it executes nothing of ours, and millions of calls."""
    from numba.core import base, compiler, dispatcher

    def wrap(owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        def run(*args: Any, **options: Any) -> Any:
            tracing = sys.gettrace()
            sys.settrace(None)
            try:
                return inner(*args, **options)
            finally:
                sys.settrace(tracing)

        setattr(owner, name, run)

    wrap(dispatcher.Dispatcher, "compile")
    wrap(compiler.CompilerBase, "compile_extra")
    wrap(base.BaseContext, "refresh")


def _kinds(block: Any) -> set[str]:
    found: set[str] = set()
    for op in block.ops:
        found |= {op.kind, op.kind.rpartition(".")[2]}
        for region in op.regions:
            found |= _kinds(region)
    return found


def _import_all(files: list[str]) -> None:
    """What is imported while it is traced would count its import."""
    import importlib
    from contextlib import suppress

    for file in files:
        with suppress(Exception):
            importlib.import_module(file.removesuffix(".py").replace("/", "."))
