"""The classes of faults: which files, which operators, how many, and which command must see them.

Quotas are shares of their sum and are scaled to the count asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_LOGIC = ("condition", "comparison", "swap", "keyword", "twin", "removal", "arithmetic")
_PASSES = (
    "core_compiler/passes/*.py",
    "core_compiler/passes/recompose/*.py",
    "core_compiler/passes/saturation/*.py",
)
_QUANTISATION = (
    "core_compiler/passes/quantize/*.py",
    "core_compiler/passes/quantize/forms/*.py",
)
_LOWERING = (
    "core_compiler/lowering/*.py",
    "core_compiler/kernel_ir/builder.py",
    "core_compiler/ops/affine.py",
    "core_compiler/ops/index_maps.py",
)
_SCHEDULES = ("core_compiler/scheduling/schedules/*.py", "core_compiler/scheduling/transforms/*.py")
_PLANNERS = (
    "core_compiler/placement/*.py",
    "core_compiler/passes/plan_memory.py",
    "core_compiler/passes/bufferize.py",
    "core_compiler/passes/find_lifetimes.py",
    "core_compiler/lowering/in_place.py",
)
_MEANINGS = (
    "core_compiler/ops/*.py",
    "core_compiler/numerics/reference/*.py",
    "core_compiler/numerics/functions_*.py",
)

#: The commands: ``check`` is ``compile --check``, ``train`` is ``train --check``, ``against`` is
#: that of a model or of a training step with the framework's values.
CHECK, AGAINST, TRAIN = "check", "against", "train"


@dataclass(frozen=True)
class Kind:
    """A class of faults.

    ``in_passes``: only sites that a pass of the compile executes are drawn (others, which only the
    import or the check executes, are not the compiler's own work).
    """

    name: str
    quota: int
    command: str
    files: tuple[str, ...]
    operators: tuple[str, ...]
    in_passes: bool = True

    def paths(self, root: Path) -> list[str]:
        """The files that there are, relative to ``root``."""
        found = {p.relative_to(root).as_posix() for f in self.files for p in root.glob(f)}
        return sorted(p for p in found if p.rsplit("/", 1)[-1] not in _LEFT_OUT)


#: Files that decide no value: declarations of interfaces, texts, explanations, and which calls of a
#: compiled model are refused (a compile makes none).
_LEFT_OUT = {
    "__init__.py",
    "document.py",
    "verifier.py",
    "verify.py",
    "hooks.py",
    "spelling.py",
    "problem.py",
    "positions.py",
}
#: Files, or folders of them, whose answers are the work of these passes, whoever asks for them:
#: tables that are made when they are imported (the passes that form kernels ask how an op is
#: lowered), schedules that code generation asks about again.
WORK_OF = {
    "core_compiler/ops/lowerings.py": (
        "inline_broadcasts",
        "fuse_elementwise",
        "fuse_epilogues",
        "fuse_reductions",
        "outline_kernels",
    ),
    "core_compiler/scheduling/schedules/": ("schedule_kernels",),
    "core_compiler/scheduling/transforms/": ("schedule_kernels",),
}

CLASSES = {
    kind.name: kind
    for kind in (
        Kind("rules", 50, CHECK, _PASSES, _LOGIC),
        Kind("constants", 40, CHECK, (*_PASSES, *_LOWERING, *_SCHEDULES), ("constant",)),
        Kind("axes", 30, CHECK, (*_PASSES, *_LOWERING, *_SCHEDULES), ("axis",)),
        Kind("strides", 30, CHECK,
             (*_PASSES, *_LOWERING, *_SCHEDULES, "core_compiler/codegen/*.py",
              "core_compiler/codegen/cpu/*.py"), ("stride",)),
        Kind("comparisons", 40, CHECK, (*_PASSES, *_LOWERING, *_SCHEDULES, *_PLANNERS),
             ("comparison",)),
        Kind("gradients", 40, TRAIN, ("core_compiler/ops/gradients/*.py",),
             (*_LOGIC, "constant", "axis"), False),
        Kind("translations", 50, AGAINST,
             ("core_compiler/frontends/onnx/ops/*.py", "core_compiler/frontends/pytorch/aten/*.py",
              "core_compiler/frontends/stablehlo/ops/*.py"),
             (*_LOGIC, "constant", "axis", "word"), False),
        Kind("meanings", 40, AGAINST, _MEANINGS, (*_LOGIC, "constant", "axis"), False),
        Kind("schedules", 40, CHECK, _SCHEDULES, (*_LOGIC, "constant", "axis")),
        Kind("planners", 20, CHECK, _PLANNERS, (*_LOGIC, "constant", "axis")),
        Kind("quantisation", 30, CHECK, _QUANTISATION, (*_LOGIC, "constant", "axis")),
        Kind("emitted", 20, CHECK,
             ("core_compiler/codegen/*.py", "core_compiler/codegen/cpu/*.py"),
             ("emitted", "condition", "arithmetic", "swap", "removal")),
    )
}  # fmt: skip


def quotas(count: int, names: tuple[str, ...] = ()) -> dict[str, int]:
    """How many of ``count`` each class gets: in proportion, by largest remainders."""
    chosen = [CLASSES[name] for name in names or CLASSES]
    whole = sum(kind.quota for kind in chosen)
    exact = {kind.name: count * kind.quota / whole for kind in chosen}
    made = {name: int(share) for name, share in exact.items()}
    left = sorted(exact, key=lambda name: (made[name] - exact[name], name))
    for name in left[: count - sum(made.values())]:
        made[name] += 1
    return made
