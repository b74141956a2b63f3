"""Chains: a product, programs of its rows and a product of them, as one kernel.

A work item computes a block of rows from the first part to the last, so that what is between the
parts (the scores of attention, their shares) stays in a thread's scratch memory. Each part is
scheduled as if it were alone and computes the same elements in the same order: the bits are those
of the separate kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from typing_extensions import override

from core_compiler.ir import Function
from core_compiler.kernel_ir.abi import buffer_arguments, index_arguments, parallel_nest
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.schedules.chain_loops import Joined, Plain
from core_compiler.scheduling.schedules.chain_parts import Chain, Name, Part
from core_compiler.scheduling.schedules.product import (
    PANEL_CYCLES,
    ROWS_CYCLES,
    TILE_CYCLES,
    ProductPlan,
    extents,
)
from core_compiler.scheduling.schedules.steps import LaunchPlan, Scheduled, Step
from core_compiler.scheduling.transforms.edit import need

#: The most bytes of a block between the parts: a share of the last cache, which is faster than
#: memory; blocks of a single register tile may be larger.
BLOCK_BYTES = 1 << 21
#: The most register tiles that a product of a chain sums at a time, so that totals, panels and the
#: block are in the second cache together.
TILES_AT_ONCE = 128


def schedule(name: str, chain: Chain) -> Scheduled:
    """Return the kernel of a product, programs of its rows, and a product of those.

    Raise :class:`Refused` if the parts are something else, or are not scheduled by rows.
    """
    parts = chain.parts
    plans = [part.scheduled.launch for part in parts]
    products = [plan for plan in plans if isinstance(plan, ProductPlan)]
    need(
        isinstance(plans[0], ProductPlan)
        and isinstance(plans[-1], ProductPlan)
        and not any(plans[1:-1]),
        "the parts are not a product, programs of rows, and a product",
    )
    need(not any(plan.pack for plan in products), "an operand is packed beforehand")
    for part in parts:
        for place in part.between:
            _need_rows(part, place)
    forms = {(len(plan.product.batch), len(plan.product.rows)) for plan in products}
    may_merge = all(batch and rows == 1 for batch, rows in forms)  # batch axes, not rows
    need(len(forms) == 1 or may_merge, "the products have other batch axes")
    need(all(len(plan.product.columns) == 1 for plan in products), "columns have several axes")
    need(len(products[-1].product.terms) == 1, "the last product sums over several axes")
    heights = {plan.rows for plan in products}
    need(len(heights) == 1, "the products have tiles of different heights")
    plain = Plain(name, chain).function()
    joined = Joined(name, chain, heights.pop()).function()
    cores = {n: core for part in parts for n, core in part.scheduled.cores.items()}
    steps = [
        step
        for part in parts
        for step in part.scheduled.steps
        if step.kernel != part.plain.name and step.kernel in cores
    ]
    first, last = Step("unscheduled", name, plain), Step("chain", name, joined)
    return Scheduled(joined, cores, (first, *steps, last), ChainPlan(chain))


def _need_rows(part: Part, place: int) -> None:
    """Raise :class:`Refused` unless a part reads and writes its rows of a value of the chain.

    Else rows of one part would not be those of the next: a product may sum over the rows of the
    shares (the gradient of the values), or have them as its columns.
    """
    plan = part.scheduled.launch
    product = plan.product if isinstance(plan, ProductPlan) else None
    kernel = plan.kernel if isinstance(plan, ProductPlan) else part.plain
    loops = {For.of(op).index: For.of(op).name for op in parallel_nest(kernel)}
    rows = list(loops.values()) if product is None else [*product.batch, *product.rows]
    value = buffer_arguments(kernel)[place]
    for op in kernel.body.walk():
        if op.kind in ("kernel.load", "kernel.store") and access(op)[0] is value:
            *lead, column = access(op)[1]
            need([loops.get(v) for v in lead] == rows, f"{value.name} is not read by rows")
            need(loops.get(column) not in rows, f"the columns of {value.name} are rows")


@dataclass(frozen=True)
class ChainPlan(LaunchPlan):
    """The sizes of work items of a chain: rows, and columns of its products at a time."""

    chain: Chain
    pack: Mapping[int, Function] = field(default_factory=dict)

    @override
    def more_sizes(self, sizes: Sequence[int], threads: int) -> list[int]:
        first, last = self._extents(0, sizes), self._extents(-1, sizes)
        batch, rows, width, terms = first
        plan = self._product(0)
        return list(
            block(
                batch,
                -(-rows // plan.rows),
                (terms, -(-width // plan.columns)),
                (width, -(-last[2] // plan.columns)),
                max(1, plan.rows * width * self._bytes),
                threads,
            )
        )

    def _product(self, number: int) -> ProductPlan:
        plan = self.chain.parts[number].scheduled.launch
        assert isinstance(plan, ProductPlan)
        return plan

    def _extents(self, number: int, sizes: Sequence[int]) -> tuple[int, int, int, int]:
        chain = self.chain
        number %= len(chain.parts)
        given = dict(zip(chain.sizes, sizes, strict=True))
        part = chain.parts[number]

        def value(name: Name) -> int:
            return given[name] if name in given else prod(given[n] for n in chain.same[name])

        own = [value((number, str(v.name))) for v in index_arguments(part.plain)]
        plan = self._product(number)
        return extents(plan.kernel, plan.product, own)

    @property
    def _bytes(self) -> int:
        """The bytes of an element of all values between the parts together."""
        return sum(
            buffer_arguments(part.plain)[part.writes].type.dtype.bytes
            for part in self.chain.parts
            if part.writes is not None
        )


@lru_cache(maxsize=1024)
def block(
    batch: int,
    tiles: int,
    first: tuple[int, int],
    last: tuple[int, int],
    tile_bytes: int,
    threads: int,
) -> tuple[int, int, int]:
    """Return a block's rows in register tiles, and the panels that each product sums at a time.

    ``first``, ``last``: terms and panels of the products; ``tile_bytes``: bytes between the parts
    for a row of register tiles. The block is the one of the shortest time of the thread with the
    most blocks: each copies all panels again.
    """
    most = max(1, min(tiles, BLOCK_BYTES // tile_bytes))

    def cost(tall: int) -> tuple[int, int]:
        items = batch * -(-tiles // tall)
        cycles = sum(
            terms * (tall * panels * TILE_CYCLES + tall * ROWS_CYCLES + panels * PANEL_CYCLES)
            for terms, panels in (first, last)
        )
        return -(-items // threads) * cycles, tall

    tall = min(range(1, most + 1), key=cost)
    one, other = (max(1, min(panels, TILES_AT_ONCE // tall)) for _, panels in (first, last))
    return tall, one, other
