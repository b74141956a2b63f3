"""FileCheck in a test: ``CHECK:`` lines that a text, or the IR of a stage, must match in order."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from core_compiler.ir import Module
from core_compiler.ir.text import print_module
from core_compiler.support.errors import UserError


def filecheck(what: Any, checks: str) -> None:
    """Raise AssertionError if ``what``, a text, a module or a stage, does not match ``checks``.

    ``checks`` has ``CHECK``, ``CHECK-NEXT``, ``CHECK-NOT``, ``CHECK-DAG``... lines as in LLVM's
    FileCheck, implemented by the PyPI package ``filecheck``; AssertionError also if it has none.

    UserError if that package is not installed.
    """
    __tracebackhide__ = True
    try:
        from filecheck.finput import FInput
        from filecheck.matcher import Matcher
        from filecheck.options import Options
        from filecheck.parser import Parser, pattern_for_opts
    except ModuleNotFoundError:
        raise UserError(
            "the package filecheck is not installed",
            "filecheck",
            "pip install compiler-workbench[testing]",
        ) from None
    options = Options(match_filename="checks")
    parser = Parser(options, io.StringIO(checks), *pattern_for_opts(options))
    output = io.StringIO()
    with contextlib.redirect_stderr(output):  # it binds the stream when it is created
        if Matcher(options, FInput("text", text_of(what)), parser).run() == 0:
            return
    raise AssertionError(f"{output.getvalue().rstrip()}\n\n{text_of(what)}")


def text_of(what: Any) -> str:
    """Return a text itself; for a module, or the module of a stage or a compilation, its IR."""
    if isinstance(what, str):
        return what
    module = getattr(what, "module", what)
    if not isinstance(module, Module):
        raise UserError(
            f"{type(what).__name__} has no IR text",
            "workbench.testing",
            "pass a text, a module, a stage or a compilation",
        )
    return print_module(module)
