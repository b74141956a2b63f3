"""The description of a product that the lowering leaves for schedules: a kernel's attribute."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from core_compiler.ir import Function

ATTRIBUTE = "product"


@dataclass(frozen=True)
class Product:
    """The loops and buffers of an unscheduled kernel that form the product ``sum of a * b``.

    ``batch``: parallel loops that index both operands or neither; ``rows``: only ``a``;
    ``columns``: only ``b``; ``chunk``: the loop that carries the total; ``terms``: the loops inside
    it, outermost first; ``a`` and ``b``: the buffers; ``axis``: the position of the (last) column
    loop among the indices of ``b``; ``shared``: no other parallel loop indexes ``b``, so that it
    can be packed.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    chunk: str
    terms: tuple[str, ...]
    a: str
    b: str
    axis: int | None
    shared: bool = True

    @staticmethod
    def of(kernel: Function) -> Product | None:
        """Return the product that the lowering found in a kernel, or None."""
        held = kernel.attributes.get(ATTRIBUTE)
        if held is None:
            return None
        batch, rows, columns, chunk, terms, a, b, axis, shared = held
        place = None if axis < 0 else axis
        return Product(batch, rows, columns, chunk, terms, a, b, place, shared)

    @property
    def attribute(self) -> tuple:
        """The product as the kernel's attribute; the axis is -1 if there is none."""
        *names, axis, shared = astuple(self)
        return (*names, -1 if axis is None else axis, shared)


def unmarked(kernel: Function) -> Function:
    """Return a kernel without the attribute, whose loops a schedule may rename and split."""
    kept = {name: value for name, value in kernel.attributes.items() if name != ATTRIBUTE}
    return kernel if len(kept) == len(kernel.attributes) else kernel.with_(attributes=kept)
