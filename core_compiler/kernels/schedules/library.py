"""Which schedule a kernel gets: one row a family."""
from __future__ import annotations

from core_compiler.ir import Function
from core_compiler.kernels.schedules import elementwise, rows
from core_compiler.kernels.schedules.steps import Scheduled

#: The lowering writes the family into the kernel's attributes.
FAMILIES = {
    "elementwise": elementwise.schedule,
    "window": elementwise.schedule,
    "rows": rows.schedule,
}


def schedule(kernel: Function, width: int = 16) -> Scheduled:
    """The kernel's CPU schedule with vectors of ``width`` lanes (of f32; others take as many)."""
    make = FAMILIES.get(kernel.attributes.get("family"))
    return Scheduled.of(kernel) if make is None else make(kernel, width)
