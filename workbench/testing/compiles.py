"""What compiles in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import core_compiler as cc
from core_compiler.driver.compilation import Compilation, Options, start
from core_compiler.driver.session import finished
from core_compiler.driver.stage import Stage
from core_compiler.ir import Module
from core_compiler.ir.parser import parse
from core_compiler.passes.base import Pass
from core_compiler.pipelines.pipeline import PipelineEdit, Step
from workbench.testing.checks import check_passes


def _forget(compilation: Compilation) -> None:
    """Where nothing is recorded, nothing is kept."""


@dataclass(frozen=True, repr=False)
class Compiles:
    """The fixture ``compiled``.  ``check``: check every rewrite where there are example inputs;
    ``remember`` is told what is to be kept."""

    check: bool
    remember: Callable[[Compilation], None] = _forget

    def __call__(
        self, model: Any, inputs: Sequence | None = None, *, check: bool = False,
        finish: bool = True, record: str | Path | None = None, **how: Any,
    ) -> Any:  # fmt: skip
        """What ``core_compiler.compile`` answers, which also says what the arguments are.

        With ``--workbench-check`` AssertionError where a rewrite fails its check.
        """
        __tracebackhide__ = True
        checked = check or (self.check and inputs is not None)
        at_once = None if finish else record  # is refused there
        made = cc.compile(model, inputs, check=checked, finish=False, record=at_once, **how)
        compilation = getattr(made, "compilation", made)  # of a training step: its
        if finish:
            finished(compilation, record)
            if self.check and checked:
                check_passes(compilation)
        return made

    def keep(self, compilation: Compilation) -> Compilation:
        """``compilation``, made before the test began (as its file was imported); a failing test
        leaves its recording too."""
        self.remember(compilation)
        return compilation


@dataclass(frozen=True, repr=False)
class RunPass:
    """The fixture ``run_pass``."""

    def __call__(
        self, pass_: Pass, module: Module | str, inputs: Sequence | None = None, *,
        target: str | Any = "cpu", limit: int | None = None,
    ) -> Stage:  # fmt: skip
        """The stage after ``pass_`` has run on ``module``, or on the module that an MLIR text is:
        ``module``, ``rewrites``, ``text()``, ``diff()``...

        ``inputs`` are arrays, one an argument of main: every rewrite is checked on them, and
        AssertionError names the first that fails.  ``target`` is what the pass asks for claims and
        costs; ``limit`` stops it after so many rewrites.
        UserError (InvalidModule, PassRaised) where the module is not valid, before the pass or
        after, and where the pass raises.
        """
        __tracebackhide__ = True
        before = parse(module, where="the module's text") if isinstance(module, str) else module
        made = start(before, target, Options(check=inputs is not None), inputs)
        made.steps = [Step(pass_.name(), pass_, limit)]
        # A recording says which pass it was: `workbench reduce` runs it alone again.
        limits = {} if limit is None else {pass_.name(): limit}
        edit = PipelineEdit(insert=((0, pass_),), limits=limits)
        made.options = replace(made.options, edit=edit)
        made.about = {"model": pass_.name(), "target": made.target.name, "alone": True}
        stage = made.step()
        if inputs is not None:
            check_passes(made)
        return stage
