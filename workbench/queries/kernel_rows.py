"""Inspector rows for a kernel: time, limit, launches, tiles, GPU resources, source ops."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from core_compiler.record.reader import Kernel
from workbench.queries.kernel_table import table
from workbench.queries.links import costliest_launch
from workbench.queries.rows import MAX_LISTED, as_fact, as_link, as_section, as_text
from workbench.queries.run import Run
from workbench.support import units

#: The schedule step that splits a loop: its name, and the trip count of the inner loop.
_SPLIT = re.compile(r"split\((\w+), (\w+),")
#: Kinds of steps that are counted.
MAX_KINDS = 4


def sections(run: Run, number: int) -> list[dict[str, Any]]:
    """Return the sections of kernel ``number``; [] if the recording has no kernel of that id."""
    kernel = next((k for k in run.kernels() if k.id == number), None)
    row = next((r for r in table(run) if r["id"] == number), None)
    if kernel is None or row is None:
        return []
    schedule = _schedule(run, kernel, row)
    found = [as_section("Kernel", _kernel(row)), as_section("Schedule", schedule)]
    if gpu := _gpu(row):
        found.append(as_section("On the GPU", gpu))
    found.append(as_section("Computes", _computes(run, kernel)))
    return found


def name_of(run: Run, number: int) -> str:
    kernel = next((k for k in run.kernels() if k.id == number), None)
    return "" if kernel is None else kernel.name


def _kernel(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return its time, and its ratio to the limit."""
    rows: list[dict[str, Any]] = []
    if row["core"]:
        rows.append(as_text("Called by other kernels; it is not launched."))
    if row["total_us"] is not None:
        share = "" if row["share"] is None else f", {100 * row['share']:.3g} % of the time"
        rows.append(as_fact("time", f"{units.duration(row['total_us'])} per execution{share}"))
        if row["before_us"]:
            change = 100 * (row["total_us"] / row["before_us"] - 1)
            rows.append(as_fact("before", f"{units.duration(row['before_us'])} ({change:+,.1f} %)"))
    if not row["core"]:
        median = "" if row["median_us"] is None else f", median {units.duration(row['median_us'])}"
        rows.append(as_fact("launches", units.launches(row["count"]) + median))
    if row["needs"]:
        rows.append(as_fact("predicted", units.duration(row["predicted_us"])))
    if row["least_us"] is not None:
        rows.append(as_fact("least possible", units.duration(row["least_us"])))
    if row["beyond"]:
        rows.append(as_fact("of the limit", "above the measured limit"))
    elif row["percent"] is not None:
        rows.append(as_fact("of the limit", f"{row['percent']:.3g} %"))
    if row["bound"]:
        rows.append(as_fact("bound by", row["bound"]))
    if row["needs"]:
        rows.append(as_fact("needs", row["needs"]))
    if row["flops"] is not None:
        rate = "" if row["gflops"] is None else f", {row['gflops']:.3g} GFLOP/s"
        rows.append(as_fact("work", units.work(row["flops"]) + rate))
        rate = "" if row["gbytes_per_s"] is None else f", {row['gbytes_per_s']:.3g} GB/s"
        rows.append(as_fact("traffic", units.size(row["bytes"]) + rate))
    if row["intensity"] is not None:
        rows.append(as_fact("intensity", f"{row['intensity']:.3g} flop/B"))
    return rows


def _schedule(run: Run, kernel: Kernel, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how its loops were split, the number of steps, and the kernels it calls."""
    rows: list[dict[str, Any]] = []
    tiles = dict.fromkeys(f"{m[1]} by {m[2]}" for step in kernel.steps if (m := _SPLIT.match(step)))
    if tiles:
        rows.append(as_fact("tiles", ", ".join(list(tiles)[:MAX_LISTED])))
    kinds = Counter(step.partition("(")[0] for step in kernel.steps[1:])
    if kinds:
        summary = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(MAX_KINDS))
        rows.append(as_fact("steps", f"{len(kernel.steps) - 1}: {summary}"))
    source = run.recording.kernel_text(kernel.id, "source")
    callees = [k for k in run.kernels() if k.facts.get("core") and f"{k.name} = " in source]
    rows += [as_link(f"calls {k.name}", "", {"kernel": k.id}) for k in callees[:MAX_LISTED]]
    compiled = "cached" if row["cached"] else f"in {units.duration(row['compile_seconds'] * 1e6)}"
    rows.append(as_fact("compiled", compiled))
    return rows


def _gpu(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the resource use that the assembler reports; [] for a CPU kernel."""
    if row["registers"] is None:
        return []
    rows = []
    if row["grid"] is not None:
        fewest, largest = int(row["grid_least"]), int(row["grid"])
        blocks = f"{largest:,}" if fewest == largest else f"{fewest:,} to {largest:,}"
        rows.append(as_fact("blocks", f"{blocks} of {int(row['threads'] or 0):,} threads"))
    rows.append(as_fact("registers", f"{int(row['registers'])} per thread"))
    if row["shared"] is not None:
        rows.append(as_fact("shared memory", f"{units.size(row['shared'])} per block"))
    if row["spilled"] is not None:
        rows.append(as_fact("spilled", f"{int(row['spilled'])} B per thread"))
    if row["occupancy"] is not None:
        limit = f", limited by {row['occupancy_limit']}" if row["occupancy_limit"] else ""
        rows.append(as_fact("occupancy", f"{100 * row['occupancy']:.3g} %{limit}"))
    return rows


def _computes(run: Run, kernel: Kernel) -> list[dict[str, Any]]:
    """Return its source ops, and why the slowest launch was not fused with another."""
    shown = kernel.ops[:MAX_LISTED]
    rows = [
        as_link(f"{run.name_of(op)} {run.recording.op(op).kind}", "", {"op": op}) for op in shown
    ]
    if rows:
        rows.insert(0, as_text(units.counted(len(kernel.ops), "source op")))
    if len(kernel.ops) > MAX_LISTED:
        rows.append(as_text(f"and {len(kernel.ops) - MAX_LISTED} more"))
    launch = costliest_launch(run, kernel.id)
    if launch is not None:
        why = {"rewrites": {"why": {"a": launch, "near": True}}}
        rows.append(as_link("why not fused with ...?", "", {"open": "rewrites", "state": why}))
    return rows or [as_text("No ops are recorded for it.")]
