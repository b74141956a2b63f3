"""Targets: plug-ins that turn the shared tensor IR into an executable program.

A target is found by the entry point group ``core_compiler.targets``; a third party's package needs
no change in this one.  It provides a machine description, legality tables, a pipeline for the
implementation half, a code generator and a device.  A target that executes only some ops leaves the
rest to a host: :class:`core_compiler.targets.hosted.HostedTarget`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Any

from typing_extensions import override

from core_compiler.hardware.costs import CostModel
from core_compiler.hardware.prediction import Prediction
from core_compiler.ir import Function, Module, Op
from core_compiler.support.errors import UserError, nearest
from core_compiler.support.renamed import refuse_old_names

GROUP = "core_compiler.targets"


class Target:
    """The base class of targets.  A subclass overrides what it needs; see ``docs/architecture.md``.

    ``name``     the value of ``-t``.
    ``machine``  a :class:`core_compiler.hardware.machine.Machine`.
    ``host``     the target that runs what this one does not claim (None: it runs everything).
    """

    name = ""
    summary = ""
    host: Target | None = None
    #: Whether a subprocess can execute the target's programs from the kernel cache alone.
    runs_in_subprocess = False

    @override
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_old_names(cls, {"apart": "runs_in_subprocess"})

    @property
    def machine(self):
        raise NotImplementedError(f"{self.name}: machine")

    def machine_of(self, options: Mapping[str, Any]):
        """Return the machine of a compile with these options."""
        return self.machine

    @property
    def costs(self) -> CostModel:
        """Return the cost model, for passes that choose among forms of a program (``saturate``)."""
        return CostModel.of(self.machine)

    def claims(self, op: Op) -> bool:
        """Return whether this target executes ``op`` whole.

        A claimed composite is not decomposed, a claimed op is not fused, and its kernel carries the
        target's name (attribute ``target``).  The result may depend on the op's kind, attributes
        and types.
        """
        return False

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options of a compile for this target: name to description."""
        return {}

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Return the defaults of options that are not given; a recording stores them."""
        return {}

    def prepare(self) -> None:
        """Prepare code generation; called when a compile starts, to warm up."""

    def legal(self, level: str) -> Collection[str] | None:
        """Return the additional kinds of op that functions of a level may contain for this target.

        (``kernel``: the kernels of the ops that it claims.)  None accepts every declared op.  The
        verifier uses it.
        """
        return None

    def pipeline(self, options: Mapping[str, Any]) -> Sequence:
        """Return the implementation half: exact passes from tensor IR to launches."""
        raise NotImplementedError(f"{self.name}: pipeline")

    def schedule(self, kernel: Function, options: Mapping[str, Any], launches: Sequence = ()):
        """Return the kernel scheduled for this target, with its named steps.

        The result is a :class:`core_compiler.scheduling.schedules.steps.Scheduled`; ``launches``
        are the size arguments of the launches that use the kernel.
        """
        raise NotImplementedError(f"{self.name}: schedule")

    def compile(
        self, kernels: Mapping[str, Function], options: Mapping[str, Any], progress
    ) -> Mapping[str, Any]:
        """Return machine code of scheduled kernels by name; ``progress(what, done, total)``."""
        raise NotImplementedError(f"{self.name}: compile")

    def predict(
        self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Mapping[Op, Prediction]:
        """Return the predicted time of each launch of a linked program; {} without a model."""
        return {}

    def link(self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """Return the program of a planned module, for :meth:`load`."""
        raise NotImplementedError(f"{self.name}: link")

    def load(self, module: Module, facts: Mapping[str, Any], threads: int = 0) -> Any:
        """Return the program bound to a device: a callable of NumPy arrays."""
        raise NotImplementedError(f"{self.name}: load")

    def device(self, **options):
        """Return a device of ``core_compiler.runtime.device`` that loads and launches the code."""
        raise NotImplementedError(f"{self.name}: device")

    def available(self) -> str | None:
        """Return what is missing to execute for the target on this machine, or None."""
        return None


@lru_cache(maxsize=1)
def _installed() -> dict[str, Any]:
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def rescan() -> None:
    """Search for installed targets again (after a package was installed into this process)."""
    _installed.cache_clear()
    target.cache_clear()


def names() -> tuple[str, ...]:
    return tuple(_installed())


@cache
def target(name: str) -> Target:
    """Return the target of this name; UserError lists those installed."""
    if name not in _installed():
        listed = f"choose one of {', '.join(names())}"
        raise UserError(f"unknown target {name!r}", "-t", nearest(name, names(), listed))
    made = _installed()[name].load()
    return made() if isinstance(made, type) else made
