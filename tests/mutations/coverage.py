"""Which lines of the compiler each model of the corpus executes, and in which pass.

Only lines of functions count: those of modules and classes are executed when they are imported,
whatever is compiled.  Functions that Numba compiles run no line of Python: of those that a model
asks for all lines count, with those of the functions that they call.
"""

from __future__ import annotations

import ast
import dis
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

#: What a line is executed by: "load", "check", or "pass:NAME".
Lines = dict[str, dict[str, list[int]]]


class Tracer:
    """Collects ``phase -> file -> lines`` of the files ``wanted`` below ``root``, and ``tokens``
    that rows of tables are named by: rules that fired, kinds of ops."""

    def __init__(self, root: Path, wanted: Sequence[str]):
        import coverage

        self.root, self.wanted = root, wanted
        self.tokens: set[str] = set()
        self._phase = "load"
        self._compiled: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._seen: set[tuple[str, CodeType]] = set()
        self._coverage = coverage.Coverage(
            data_file=None,
            config_file=False,
            messages=False,
            include=[str(root / file) for file in wanted],
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        self._coverage.start()
        self._coverage.switch_context(self._phase)
        try:
            yield
        finally:
            self._coverage.stop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Lines executed meanwhile are executed by ``name``."""
        before, self._phase = self._phase, name
        self._coverage.switch_context(name)
        try:
            yield
        finally:
            self._phase = before
            self._coverage.switch_context(before)

    def compiled(self, function: Any) -> None:
        """Count the lines of a function that Numba compiles, and of those it calls."""
        code = getattr(function, "__code__", None)
        if code is None or (self._phase, code) in self._seen:
            return
        self._seen.add((self._phase, code))
        file = os.path.relpath(code.co_filename, self.root)
        if file in self.wanted:
            lines = [line for _, line in dis.findlinestarts(code) if line]
            self._compiled[self._phase][file].update(lines)
        for name in code.co_names:
            target = function.__globals__.get(name)
            self.compiled(getattr(target, "py_func", target))

    def lines(self) -> Lines:
        found = self._compiled
        data = self._coverage.get_data()
        for path in data.measured_files():
            file = os.path.relpath(path, self.root)
            inside = _inside(Path(path).read_text())
            for line, phases in data.contexts_by_lineno(path).items():
                for phase in phases if line in inside else ():
                    found[phase][file].update((line, *inside[line]))
        return {p: {f: sorted(ls) for f, ls in files.items()} for p, files in found.items()}


def _inside(text: str) -> dict[int, Sequence[int]]:
    """The lines that are in the body of a function or of a lambda, with those of the head of the
    function that begins its body there: a call evaluates its defaults."""
    found: dict[int, Sequence[int]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0].lineno
            for line in range(first, (node.end_lineno or 0) + 1):
                found.setdefault(line, ())
            heads = range(node.lineno, first)
            for statement in node.body[:2]:  # a docstring is no line that is executed
                found[statement.lineno] = heads
        elif isinstance(node, ast.Lambda):
            for line in range(node.body.lineno, (node.end_lineno or 0) + 1):
                found.setdefault(line, ())
    return found


@contextmanager
def traced(wanted: Sequence[str]) -> Iterator[Tracer]:
    """Trace what this process executes meanwhile; the working directory is the tree's."""
    import numba

    from core_compiler.driver.compilation import Compilation

    _import_all(wanted)
    tracer = Tracer(Path.cwd(), wanted)
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
        with tracer.phase(f"pass:{step.label.split('#')[0]}"):
            stage = run(self, step)
        tracer.tokens.update(r.rule for r in stage.rewrites)
        for function in (stage.module.main, *stage.module.functions.values()):
            tracer.tokens.update(_kinds(function.body))
        return stage

    def in_check(self: Any) -> Any:
        with tracer.phase("check"):
            return check(self)

    numba.njit = recorded
    Compilation._run, Compilation._check = in_pass, in_check  # type: ignore[method-assign]
    try:
        with _untraced_numba(), tracer.running():
            yield tracer
    finally:
        numba.njit, Compilation._run, Compilation._check = njit, run, check  # type: ignore


@contextmanager
def _untraced_numba() -> Iterator[None]:
    """Let Numba compile without a tracer: it executes nothing of ours, and millions of calls."""
    from numba.core import base, compiler, dispatcher

    def untraced(inner: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            tracing = sys.gettrace()
            sys.settrace(None)
            try:
                return inner(*args, **options)
            finally:
                sys.settrace(tracing)

        return run

    places = (
        (dispatcher.Dispatcher, "compile"),
        (compiler.CompilerBase, "compile_extra"),
        (base.BaseContext, "refresh"),
    )
    kept = [getattr(owner, name) for owner, name in places]
    for (owner, name), inner in zip(places, kept, strict=True):
        setattr(owner, name, untraced(inner))
    try:
        yield
    finally:
        for (owner, name), inner in zip(places, kept, strict=True):
            setattr(owner, name, inner)


def _kinds(block: Any) -> set[str]:
    found: set[str] = set()
    for op in block.ops:
        found |= {op.kind, op.kind.rpartition(".")[2]}
        for region in op.regions:
            found |= _kinds(region)
    return found


def _import_all(files: Sequence[str]) -> None:
    """What is imported while it is traced would count its import."""
    import importlib
    from contextlib import suppress

    for file in files:
        with suppress(Exception):
            importlib.import_module(file.removesuffix(".py").replace("/", "."))
