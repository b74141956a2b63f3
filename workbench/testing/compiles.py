"""Compiles in tests."""

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
    """Keep nothing, because nothing is recorded."""


@dataclass(frozen=True, repr=False)
class Compiles:
    """The fixture ``compiled``.

    ``check``: check every rewrite if there are example inputs; ``remember`` is called with the
    compilations to keep.
    """

    check: bool
    remember: Callable[[Compilation], None] = _forget

    def __call__(
        self,
        model: Any,
        inputs: Sequence | None = None,
        *,
        check: bool = False,
        finish: bool = True,
        record: str | Path | None = None,
        **how: Any,
    ) -> Any:
        """Return the result of ``core_compiler.compile``, which documents the arguments.

        With ``--workbench-check``, AssertionError if a rewrite fails its check.
        """
        __tracebackhide__ = True
        checked = check or (self.check and inputs is not None)
        record_from_start = None if finish else record  # rejected by it
        made = cc.compile(
            model, inputs, check=checked, finish=False, record=record_from_start, **how
        )
        compilation = getattr(made, "compilation", made)  # that of a training step
        if finish:
            finished(compilation, record)
            if self.check and checked:
                check_passes(compilation)
        return made

    def keep(self, compilation: Compilation) -> Compilation:
        """Keep ``compilation``, made before the test began (at import), for its recording."""
        self.remember(compilation)
        return compilation


@dataclass(frozen=True, repr=False)
class RunPass:
    """The fixture ``run_pass``."""

    def __call__(
        self,
        pass_: Pass,
        module: Module | str,
        inputs: Sequence | None = None,
        *,
        target: str | Any = "cpu",
        limit: int | None = None,
    ) -> Stage:
        """Return the stage after ``pass_`` has run on ``module``, a module or MLIR text.

        The stage has ``module``, ``rewrites``, ``text()``, ``diff()``...

        ``inputs`` are arrays, one per argument of main: every rewrite is checked on them, and
        AssertionError names the first that fails. ``target`` supplies claims and costs for the
        pass; ``limit`` stops it after that many rewrites. UserError (InvalidModule, PassRaised) if
        the module is invalid, before the pass or after it, and if the pass raises.
        """
        __tracebackhide__ = True
        before = parse(module, where="the module's text") if isinstance(module, str) else module
        made = start(before, target, Options(check=inputs is not None), inputs)
        made.steps = [Step(pass_.name(), pass_, limit)]
        # Record the pass: `workbench reduce` runs it alone again.
        limits = {} if limit is None else {pass_.name(): limit}
        edit = PipelineEdit(insert=((0, pass_),), limits=limits)
        made.options = replace(made.options, edit=edit)
        made.about = {"model": pass_.name(), "target": made.target.name, "alone": True}
        stage = made.step()
        if inputs is not None:
            check_passes(made)
        return stage
