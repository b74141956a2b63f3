"""Hazards of GPU kernels: spilled registers, few warps, few blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.runtime.memory import show_bytes
from workbench.advice.finding import EXPERIMENT, NOTHING, Cost, Fact, Finding, Suggestion, severity
from workbench.advice.offers import skip, target_option
from workbench.advice.program import Launch, Program, family_of, of_line
from workbench.queries.kernel_table import table
from workbench.queries.numeric_results import as_count
from workbench.support import units

#: With a smaller fraction of the maximum resident warps a kernel hides little of memory's latency.
#: Matrix products run well at a quarter: what they keep in registers is reuse (Volkov, "Better
#: performance at lower occupancy", GTC 2010).
OCCUPANCY = 0.25
#: Kernels below this share of the time are not reported.
MIN_TIME_SHARE = 0.10
#: Descriptions of the resources that limit the warps, by the calculator's names.
_LIMITS = {
    "registers": "registers",
    "shared": "shared memory",
    "blocks": "blocks of a multiprocessor",
    "warps": "warps of a multiprocessor",
}

#: The pass that fuses the ops of each family.
_FUSION = {
    "contraction": FuseEpilogues.name(),
    "reduction": FuseReductions.name(),
    "map": FuseElementwise.name(),
}


def spills(program: Program) -> Iterator[Finding]:
    """Yield findings for kernels that ran out of registers and spill values to memory."""
    for row in table(program.run):
        if not row["spilled"] or not row["count"]:
            continue
        share = _share(row)
        threads = (row["threads"] or 0) * (row["grid"] or 1) * row["count"]
        how = (
            f"ptxas counts {row['spilled']:,.0f} B per thread, times {threads:,.0f} threads; "
            "each at least once"
        )
        cost = Cost(row["spilled"] * max(threads, 1), "B", how, share, "of the time in it", True)
        facts = [
            Fact(
                f"{row['registers']:,.0f} registers per thread, "
                f"{row['threads']:,.0f} threads per block"
            )
        ]
        yield _finding(
            program,
            row,
            "spill",
            f"{row['name']} spills registers",
            cost,
            facts,
            f"each thread spills {row['spilled']:,.0f} B to memory",
        )


def occupancy(program: Program) -> Iterator[Finding]:
    """Yield findings for kernels of which few warps fit a multiprocessor at once."""
    for row in table(program.run):
        share, part = _share(row), row["occupancy"]
        if part is None or part >= OCCUPANCY or share < MIN_TIME_SHARE:
            continue
        limit = _LIMITS.get(row["occupancy_limit"], row["occupancy_limit"])
        facts = [
            Fact(
                f"{row['registers']:,.0f} registers per thread, "
                f"{show_bytes(int(row['shared'] or 0))} of shared memory and "
                f"{row['threads']:,.0f} threads per block: limited by {limit}"
            )
        ]
        yield _finding(
            program,
            row,
            "low occupancy",
            f"{row['name']} fills {part:.0%} of a multiprocessor",
            _kernel(row),
            facts,
            f"limited by {limit}",
        )


def grid(program: Program) -> Iterator[Finding]:
    """Yield findings for kernels with fewer blocks than the GPU has multiprocessors."""
    processors = as_count(program.run.figures().get("machine_units"))
    for row in table(program.run):
        if row["registers"] is None or row["grid"] is None or _share(row) < MIN_TIME_SHARE:
            continue
        if not 0 < row["grid"] < processors:
            continue
        facts = [
            Fact(
                f"{row['grid']:,.0f} blocks of {row['threads']:,.0f} threads in its largest "
                f"launch, {processors:,.0f} multiprocessors"
            )
        ]
        yield _finding(
            program,
            row,
            "low occupancy",
            f"{row['name']} leaves {1 - row['grid'] / processors:.0%} of the GPU idle",
            _kernel(row),
            facts,
            f"{row['grid']:,.0f} blocks",
        )


def _share(row: dict[str, Any]) -> float:
    """Return the share of the time, or of the predicted time if it was not measured."""
    return float(row["share"] if row["share"] is not None else row["predicted_share"] or 0.0)


def _kernel(row: dict[str, Any]) -> Cost:
    """Return the time of the kernel: how much more warps would save cannot be predicted."""
    measured = row["total_us"] is not None
    us = row["total_us"] if measured else row["predicted_us"] or 0.0
    unmeasured = "predicted, the whole kernel" if row["needs"] else "the minimum time for its work"
    how = "measured, the whole kernel" if measured else unmeasured
    return Cost(us, "us", how, _share(row), "of the time", not measured)


def _tries(program: Program, kernel_launches: Sequence[Launch]) -> Iterator[Suggestion]:
    """Yield suggestions for fewer resources per kernel.

    They are smaller tiles for products, less fusion for fused kernels, else a sentence.
    """
    family = family_of([op for launch in kernel_launches for op in launch.computes])
    is_product = family == "contraction"
    small = program.bench.target("tiles") not in ("", "default")
    if is_product and not small:
        yield Suggestion(
            "Use small tiles for products: fewer registers per thread and more blocks, but "
            "operands are read more often.",
            (target_option("tiles", "small"),),
        )
        return
    if is_product:
        yield Suggestion(
            f"{EXPERIMENT}this run uses small tiles; try the default ones, which read "
            "operands less often.",
            (target_option("tiles", ""),),
        )
    name = _FUSION.get(family, "")
    row = program.bench.row(name)
    is_fused = any(len(launch.kinds) > 1 for launch in kernel_launches)
    if is_fused and row is not None and not row.skipped:
        yield Suggestion(
            f"{EXPERIMENT}skip {name}. The kernels then hold fewer values at once, and "
            "pass them on in memory instead of registers.",
            (skip(name),),
        )
    elif not is_product:
        yield Suggestion(
            f"{NOTHING}the kernel has no tiles to choose and nothing was fused into it. Give "
            "each launch more rows (a larger batch)."
        )


def _finding(
    program: Program,
    row: dict[str, Any],
    hazard: str,
    title: str,
    cost: Cost,
    facts: list[Fact],
    detail: str,
) -> Finding:
    kernel_launches = [launch for launch in program.launches if launch.kernel == row["name"]]
    tries = list(_tries(program, kernel_launches))
    return Finding(
        severity(cost),
        title + of_line(row["place"]),
        f"{detail}; {units.launches(row['count'])}",
        {"kernel": row["id"], "panes": ["kernels", "code"]},
        hazard,
        cost,
        tuple(facts),
        tuple(tries),
    )
