"""The record of each pass of a compile: the module after it, and the effect of the pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from core_compiler.ir import Module, Op, Rewrite, attributes_key
from core_compiler.ir.events import Diagnostic, StageRecord
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.text import print_module
from core_compiler.ir.types import is_sized
from core_compiler.ops import typed
from core_compiler.ops.costs import cost
from core_compiler.pipelines.pipeline import Step

if TYPE_CHECKING:
    from core_compiler.exporters.dot import Drawing
    from core_compiler.exporters.notebook import TextDiff


@dataclass(frozen=True, eq=False, repr=False)
class Stage:
    """The module after a pass, with its effect; stage 0 is the import (``step`` None)."""

    index: int
    name: str
    module: Module
    step: Step | None = None
    rewrites: Sequence[Rewrite] = ()
    seconds: float = 0.0
    diagnostics: Sequence[Diagnostic] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    before: Module | None = None
    #: The model's names of its inputs and outputs; empty if unknown.
    names: tuple[Sequence[str], Sequence[str]] = ((), ())
    #: The facts that the passes so far have left for later ones.
    facts: Mapping[str, Any] = field(default_factory=dict)

    def diff(self, whole: bool = False, context: int = 3) -> TextDiff:
        """Return the pass's change as a text diff.

        It has changed lines with ``context`` lines around them, or the ``whole`` module.
        """
        from core_compiler.exporters.notebook import TextDiff
        from core_compiler.ir.line_diff import diff_lines

        before = self.module if self.before is None else self.before
        rows = diff_lines(
            before, self.module, rewrites=self.rewrites, changed_only=not whole, context=context
        )
        return TextDiff(f"stage {self.index - 1}", f"stage {self.index} ({self.name})", rows)

    def text(self) -> str:
        """Return the module as MLIR."""
        return print_module(self.module)

    def export(self, path: str | Path, **options: Any) -> list[Path]:
        """Write the stage to a file for another tool and return the written files.

        Formats: ``.onnx``, ``.pt2`` (PyTorch), ``.py`` (NumPy), ``.tosa.mlir``, ``.linalg.mlir``,
        or ``.mlir`` (our IR, any level). ``options`` are the format's own; see
        `core_compiler.driver.export`.
        """
        from core_compiler.driver.export import export
        from core_compiler.frontends.base import unique_names

        inputs, outputs = self.names
        body = self.module.main.body
        inputs = inputs or [v.name or f"input{i}" for i, v in enumerate(body.arguments)]
        outputs = outputs or [f"output{i}" for i in range(len(body.outputs))]
        # A model may return one value twice, or one of its inputs, under one name.
        every = unique_names([*inputs, *outputs])
        inputs, outputs = every[: len(inputs)], every[len(inputs) :]
        return export(self.module, path, inputs=inputs, outputs=outputs, **options)

    def draw(self) -> Drawing:
        """Return the module as a drawing: ``.dot``, ``.svg``; UserError if it is too large."""
        from core_compiler.exporters.dot import draw

        return draw(self.module)

    @override
    def __repr__(self) -> str:
        ops = int(self.figures.get("ops", 0))
        return f"<stage {self.index}: {self.name}, {ops} ops, {len(self.rewrites)} rewrites>"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        from core_compiler.exporters.notebook import drawn
        from core_compiler.ir.markup import bundle, code

        return bundle(repr(self), drawn(self.module) + code(self.text(), repr(self)[1:-1]))

    @property
    def changed(self) -> bool:
        return bool(self.rewrites) or self.step is None or self.figures.get("changed", 0) > 0

    def record(self) -> StageRecord:
        pass_ = self.step.pass_ if self.step else None
        return StageRecord(
            self.index,
            self.name,
            self.module,
            self.rewrites,
            self.seconds,
            self.figures,
            self.diagnostics,
            half=self.step.half if self.step else "meaning",
            exact=pass_.exact if pass_ else True,
            tolerance_class=pass_.tolerance if pass_ else "",
            changed=self.changed,
            options=pass_.serializable_options() if pass_ else {},
            doc=pass_.summary() if pass_ else "The model as the frontend read it.",
        )


#: Kinds that are not counted as ops.
_NO_WORK = CONSTANTS | {"onnx.absent"}


def module_figures(module: Module) -> dict[str, float]:
    """Return ops, flops, compulsory bytes and live weights of a stage's ``main``."""
    ops = sum(op.kind not in _NO_WORK for op in module.main.body.ops)
    flops, moved = _work(module.main.body.ops)
    kernels = sum(f.level == "kernel" for f in module.functions.values())
    return {"ops": ops, "flops": flops, "bytes": moved, "kernels": kernels}


def _work(ops: Iterable[Op]) -> tuple[int, int]:
    """Return the flops and compulsory bytes of ops.

    Loops count all iterations if the trip count is known (else one), branches count the larger one.
    """
    flops = moved = 0
    for op in ops:
        if op.kind in _NO_WORK or not op.kind.startswith("core."):
            continue
        one = 0, 0
        if op.kind == "core.group":
            flops += sum(_cost(o)[0] for o in op.regions[0].ops if o.kind != "core.constant")
            moved += sum(v.type.bytes for v in (*op.operands, *op.results))
        elif op.kind == "core.while":
            trips = typed.While.of(op).trips
            tests, runs = (1, 1) if trips is None else (trips + 1, trips)
            condition, body = (_work(region.ops) for region in op.regions)
            one = tests * condition[0] + runs * body[0], tests * condition[1] + runs * body[1]
        elif op.kind == "core.if":
            one = max(_work(region.ops) for region in op.regions)
        elif not op.regions and all(is_sized(v.type) for v in (*op.operands, *op.results)):
            one = _cost(op)
        flops, moved = flops + one[0], moved + one[1]
    return flops, moved


#: Flops and bytes of ops by everything they depend on: a network repeats layers, and stages their
#: ops.
_COSTS: dict[tuple, tuple[int, int]] = {}


def _cost(op) -> tuple[int, int]:
    key = (
        op.kind,
        tuple(v.type for v in op.operands),
        len(set(op.operands)),
        attributes_key(op.attributes.items()),
        tuple(v.type for v in op.results),
    )
    if op.regions or key not in _COSTS:
        one = cost(op)
        if op.regions:
            return one.flops, one.bytes
        if len(_COSTS) > 100_000:
            _COSTS.clear()
        _COSTS[key] = one.flops, one.bytes
    return _COSTS[key]
