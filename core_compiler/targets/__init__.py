"""Targets: plug-ins that turn the shared tensor IR into something that executes.

A target is found by the entry point group ``core_compiler.targets``; a third party's package needs
no change in this one.  It brings a machine description, legality tables, a pipeline for the
implementation half, a code generator and a device.  One that executes some ops only leaves the rest
to a host: :class:`core_compiler.targets.hosted.HostedTarget`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Any

from core_compiler.hardware.costs import CostModel
from core_compiler.ir import Function, Module, Op
from core_compiler.support.errors import UserError, nearest

GROUP = "core_compiler.targets"


class Target:
    """Base of all targets.  A subclass overrides what it needs; see ``docs/architecture.md``.

    ``name``     what ``-t`` takes.
    ``machine``  a :class:`core_compiler.hardware.machine.Machine`.
    ``host``     the target that runs what this one does not claim (None: it runs everything).
    """

    name = ""
    summary = ""
    host: Target | None = None
    #: Whether another process can execute the target's programs, from the kernel cache alone.
    apart = False

    @property
    def machine(self):
        raise NotImplementedError(f"{self.name}: machine")

    @property
    def costs(self) -> CostModel:
        """What ops cost here, for passes that choose among forms of a program (``saturate``)."""
        return CostModel.of(self.machine)

    def claims(self, op: Op) -> bool:
        """Whether this target executes ``op`` whole: a claimed composite is not decomposed, a
        claimed op is not fused, and its kernel carries the target's name (attribute ``target``).
        The answer may depend on the op's kind, attributes and types."""
        return False

    @property
    def options(self) -> Mapping[str, str]:
        """Options of a compile for this target: name to what it does."""
        return {}

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What is taken here for options that are not given; a recording keeps it."""
        return {}

    def prepare(self) -> None:
        """Called when a compile starts: time to warm up what code generation will need."""

    def legal(self, level: str) -> Collection[str] | None:
        """The kinds of op that functions of a level may hold which are for this target (``kernel``:
        the kernels of what it claims); None accepts every declared op.  The verifier asks."""
        return None

    def pipeline(self, options: Mapping[str, Any]) -> Sequence:
        """The implementation half: exact passes from tensor IR to launches."""
        raise NotImplementedError(f"{self.name}: pipeline")

    def schedule(self, kernel: Function, options: Mapping[str, Any], launches: Sequence = ()):
        """The kernel scheduled for this target, with the named steps on the way
        (:class:`core_compiler.scheduling.schedules.steps.Scheduled`); ``launches`` are the size
        arguments of the launches that use it."""
        raise NotImplementedError(f"{self.name}: schedule")

    def compile(
        self, kernels: Mapping[str, Function], options: Mapping[str, Any], progress
    ) -> Mapping[str, Any]:  # fmt: skip
        """Machine code of scheduled kernels, by name; ``progress(what, done, total)``."""
        raise NotImplementedError(f"{self.name}: compile")

    def link(self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """The program of a planned module: what :meth:`load` takes."""
        raise NotImplementedError(f"{self.name}: link")

    def load(self, module: Module, facts: Mapping[str, Any], threads: int = 0) -> Any:
        """The program bound to a device: a callable of NumPy arrays."""
        raise NotImplementedError(f"{self.name}: load")

    def device(self, **options):
        """A device of ``core_compiler.runtime.device`` that loads and launches the code."""
        raise NotImplementedError(f"{self.name}: device")

    def available(self) -> str | None:
        """None if this machine can execute for the target, else what is missing."""
        return None


@lru_cache(maxsize=1)
def _installed() -> dict[str, Any]:
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def rescan() -> None:
    """Look again for installed targets (after a package was installed into this process)."""
    _installed.cache_clear()
    target.cache_clear()


def names() -> tuple[str, ...]:
    return tuple(_installed())


@cache
def target(name: str) -> Target:
    """The target of this name; UserError lists those installed."""
    if name not in _installed():
        listed = f"choose one of {', '.join(names())}"
        raise UserError(f"unknown target {name!r}", "-t", nearest(name, names(), listed))
    made = _installed()[name].load()
    return made() if isinstance(made, type) else made
