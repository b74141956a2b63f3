"""Targets that execute what they claim and leave the rest to a host: accelerators beside a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from core_compiler.ir import Function, Module
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.targets import Target


class HostedTarget(Target):
    """A target with a ``host``; subclasses have ``host``, ``claims``, ``assemble`` and ``device``.

    Everything else is the host's by default: its pipeline (whose passes do not touch what this
    target claims), its schedules and code for the kernels that are not claimed, its linker.
    """

    host: Target

    def owns(self, kernel: Function) -> bool:
        """Return whether a kernel belongs to an op that this target claims."""
        return kernel.attributes.get("target") == self.name

    def assemble(self, kernel: Function) -> Any:
        """Return the code of a scheduled kernel that this target owns.

        It is an object with ``ref`` (a :class:`~core_compiler.runtime.program.KernelRef`),
        ``seconds``, ``cached`` and ``text(file)`` (``source.py``, ``kernel.s``...; "" if there is
        none).
        """
        raise NotImplementedError(f"{self.name}: assemble")

    @property
    @override
    def machine(self):
        return self.host.machine

    @override
    def machine_of(self, options: Mapping[str, Any]):
        return self.host.machine_of(options)

    @property
    @override
    def options(self) -> Mapping[str, str]:
        return self.host.options

    @override
    def prepare(self) -> None:
        self.host.prepare()

    @override
    def available(self) -> str | None:
        return self.host.available()

    @override
    def pipeline(self, options: Mapping[str, Any]) -> Sequence:
        return self.host.pipeline(options)

    @override
    def schedule(self, kernel: Function, options: Mapping[str, Any], launches=()) -> Scheduled:
        if self.owns(kernel):
            return Scheduled.of(kernel)
        return self.host.schedule(kernel, options, launches)

    @override
    def compile(
        self, kernels: Mapping[str, Function], options: Mapping[str, Any], progress
    ) -> Mapping[str, Any]:
        rest = {name: f for name, f in kernels.items() if not self.owns(f)}
        made = dict(self.host.compile(rest, options, progress))
        own = [name for name in kernels if name not in rest]
        for done, name in enumerate(own):
            progress(f"assemble {name}", done, len(own))
            made[name] = self.assemble(kernels[name])
        return {name: made[name] for name in kernels}

    @override
    def link(self, module: Module, facts: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        return self.host.link(module, facts, options)

    @override
    def load(self, module: Module, facts: Mapping[str, Any], threads: int = 0) -> Any:
        program, arrays, _ = facts["program"]
        return self.device(threads=threads).load(program, arrays)
