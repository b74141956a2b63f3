"""A schedule in progress: the kernel, its outlined kernels, and every intermediate step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core_compiler.ir import DType, Function
from core_compiler.kernel_ir.abi import buffer_arguments
from core_compiler.kernel_ir.product import unmarked


@dataclass(frozen=True)
class Step:
    """A named transformation and the kernel after it; ``kernel`` names the changed function."""

    name: str
    kernel: str
    function: Function


class LaunchPlan:
    """The requirements of a schedule's launches; families with added arguments subclass it.

    ``pack`` maps a buffer argument (by its position among the buffers) to the kernel that packs its
    constant data. That kernel's arguments are the buffers (raw, packed), then the index arguments
    of :meth:`pack_arguments`.
    """

    pack: Mapping[int, Function]

    def more_sizes(self, sizes: Sequence[int], threads: int) -> list[int]:
        """Return the values of the added index arguments, given the unscheduled kernel's."""
        raise NotImplementedError

    def pack_arguments(self, position: int, sizes: Sequence[int]) -> list[int]:
        """Return the values of the index arguments of the kernel ``pack[position]``."""
        raise NotImplementedError

    def packed_elements(self, sizes: Sequence[int]) -> int:
        """Return the number of elements of the packed buffer."""
        raise NotImplementedError

    def packed_dtype(self, position: int) -> DType:
        """Return the dtype of the packed buffer ``position``."""
        return buffer_arguments(self.pack[position])[1].type.dtype


@dataclass(frozen=True)
class Scheduled:
    """A kernel with its schedule applied.

    ``function`` invokes kernels of ``cores`` by name. ``steps`` lists every intermediate function
    in order, each equivalent to the previous one (the first is the unscheduled kernel). ``launch``
    describes what a launch passes besides the unscheduled kernel's arguments: buffers keep their
    positions, and index arguments that the schedule added come after all others.
    """

    function: Function
    cores: Mapping[str, Function] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    launch: LaunchPlan | None = None

    @staticmethod
    def of(function: Function) -> Scheduled:
        return Scheduled(unmarked(function), {}, (Step("unscheduled", function.name, function),))

    def apply(self, transformation: Callable[..., Function], *args, **options) -> Scheduled:
        """Apply a transformation to the kernel; refusals propagate."""
        made = transformation(self.function, *args, **options)
        return self._with(_title(transformation, args, options), made)

    def each(self, transformation: Callable[..., Function], loops, *args) -> Scheduled:
        """Apply a transformation to several loops, one step each."""
        here = self
        for loop in loops:
            here = here.apply(transformation, loop, *args)
        return here

    def split_off(self, transformation, *args, **options) -> Scheduled:
        """Apply a transformation that returns (kernel, outlined kernel)."""
        made, core = transformation(self.function, *args, **options)
        here = self.with_core(core, (Step(f"outlined from {self.function.name}", core.name, core),))
        return here._with(_title(transformation, args, options), made)

    def with_core(self, core: Function, steps: tuple[Step, ...]) -> Scheduled:
        """Return this schedule with another invoked kernel, and the steps that created it."""
        return replace(self, cores={**self.cores, core.name: core}, steps=(*self.steps, *steps))

    def refine(self, core: str, transformation: Callable[..., Function], *args) -> Scheduled:
        """Apply a transformation to one of the invoked kernels."""
        made = transformation(self.cores[core], *args)
        return self.with_core(made, (Step(_title(transformation, args, {}), core, made),))

    def without_core(self, name: str) -> Scheduled:
        return replace(self, cores={k: v for k, v in self.cores.items() if k != name})

    def _with(self, title: str, function: Function) -> Scheduled:
        step = Step(title, function.name, function)
        return replace(self, function=function, steps=(*self.steps, step))


def _title(transformation, args, options) -> str:
    """Return ``split(i, 14)``: the transformation with its main arguments, for display."""

    def show(value) -> str:
        if isinstance(value, tuple):
            return "(" + " ".join(map(show, value)) + ")"
        return str(value)

    shown = [show(a) for a in args] + [f"{k}={show(v)}" for k, v in options.items()]
    return f"{transformation.__name__}({', '.join(shown)})"
