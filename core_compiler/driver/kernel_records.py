"""Records of a finished compile besides its stages: kernels, buffers, timings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from core_compiler.hardware.limits import of_machine
from core_compiler.hardware.machine import Machine
from core_compiler.hardware.prediction import Prediction
from core_compiler.ir import Function, Module, Op, Value
from core_compiler.ir.events import BufferRecord, KernelRecord, Observer, TimingRecord
from core_compiler.ir.target import LAUNCH
from core_compiler.ir.target import Launch as LaunchOp
from core_compiler.placement.problem import ALIGNMENT
from core_compiler.runtime.compile_worker import ASSEMBLY, INTERMEDIATE
from core_compiler.runtime.program import Launch

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Compilation
    from core_compiler.exporters.memory_map import MemoryMap

#: The memory tier of each kind of live interval.
_TIERS = {"arena": "dram", "output": "results", "input": "inputs", "constant": "weights"}
_KINDS = {"arena": "temporary", "output": "result", "input": "argument", "constant": "weight"}


def report(made: Compilation, observer: Observer) -> None:
    """Report the kernels and buffers of a finished compile to ``observer``."""
    if "compiled" in made.facts:
        observer.kernels(kernel_records(made.module, made.facts, made.predicted))
    with suppress(NotImplementedError):  # a target need not describe its machine
        observer.figures(machine_figures(made.target.machine_of(made.options.target)))
    if "plan" in made.facts:
        observer.buffers(*buffer_records(made.facts))


def kernel_records(
    module: Module, facts: Mapping[str, Any], predicted: Mapping[Op, Prediction] | None = None
) -> list[KernelRecord]:
    """Return one record per compiled kernel, in the order of the module's functions.

    ``predicted``: the predicted times of launches.
    """
    launches: dict[str, list[Op]] = {}
    for op in module.main.body.ops:
        if op.kind == LAUNCH:
            launches.setdefault(LaunchOp.of(op).kernel, []).append(op)
    walks = {
        name: list(f.body.walk()) for name, f in module.functions.items() if f.level == "kernel"
    }
    program, _, ops = facts["program"]
    linked = dict(zip(ops, program.launches, strict=True))
    records = []
    for name, compiled in facts["compiled"].items():
        used = launches.get(name, [])
        records.append(
            KernelRecord(
                name,
                source=compiled.text("source.py"),
                intermediate=compiled.text(INTERMEDIATE),
                assembly=compiled.text(ASSEMBLY),
                line_map=_line_map(compiled.text("lines.json"), walks),
                intermediate_map=_rows(compiled.text("intermediate.json")),
                assembly_map=_rows(compiled.text("assembly.json")),
                steps=[(step.name, "") for step in _steps(facts, name)],
                compile_seconds=compiled.seconds,
                ops=[op for launch in used[:1] for op in launch.regions[0].ops],
                launches=used,
                key=compiled.ref.key,
                cached=compiled.cached,
                facts={
                    "core": not used,
                    **json.loads(compiled.text("facts.json") or "{}"),
                    **_work([linked[op] for op in used if op in linked]),
                    **_predictions([op for op in used if op in linked], predicted or {}),
                },
            )
        )
    return records


def _work(launches: Sequence[Launch]) -> dict[str, Any]:
    """Return what each launch of a kernel has to do.

    ``work_items`` (on a GPU: the blocks of its grid) and ``work``: flops and compulsory bytes.
    They are recorded, so that a recording shows what its own compile counted.
    """
    if not launches:
        return {}
    return {
        "work_items": [launch.work_items for launch in launches],
        "work": [(launch.flops, launch.bytes) for launch in launches],
    }


def _predictions(ops: Sequence[Op], predicted: Mapping[Op, Prediction]) -> dict[str, Any]:
    """Return ``predictions``: the predicted time of each launch, as the compiler computed it."""
    if not ops or not all(op in predicted for op in ops):
        return {}
    return {"predictions": [predicted[op].to_json() for op in ops]}


def _rows(text: str) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in json.loads(text or "[]")]


def _steps(facts, name: str) -> Sequence:
    scheduled = facts["schedules"].get(name)
    return () if scheduled is None else scheduled.steps


def _line_map(text: str, walks: Mapping[str, list[Op]]) -> list[tuple[int, Op]]:
    """Return the ``(source line, kernel op)`` rows of a source's line table."""
    if not text:
        return []
    rows = []
    for line, function, number, *_ in json.loads(text):
        ops = walks.get(function, ())
        if 0 <= number < len(ops):
            rows.append((line, ops[number]))
    return rows


def buffer_records(facts: Mapping[str, Any]) -> tuple[list[BufferRecord], dict[str, float]]:
    """Return placed memory and its figures: arena bytes, the plan's lower bound, its planner."""
    plan = facts["plan"]
    records = []
    ends: dict[str, int] = {}
    unit = next((b.alignment for b in plan.lifetimes), ALIGNMENT)
    for life, offset in facts["lifetimes"]:
        size = -(-life.size // unit) * unit
        if offset is None:
            # Memory of the caller or of the weights has no planned offset, so it is drawn in a row.
            offset = ends.get(life.space, 0)
            ends[life.space] = offset + size
        records.append(
            BufferRecord(
                life.value,
                int(offset),
                size,
                life.size,
                _TIERS[life.space],
                life.start,
                max(life.end - 1, life.start),
                _KINDS[life.space],
                life.op,
                life.value.name or "",
            )
        )
    figures = {
        "arena_bytes": plan.peak,
        "lower_bound_bytes": plan.lower_bound,
        "planner": plan.planner,
        "gap": plan.gap,
        "planning_seconds": plan.seconds,
        "weight_bytes": ends.get("constant", 0),
        "input_bytes": ends.get("input", 0),
        "output_bytes": ends.get("output", 0),
    }
    return records, figures


def memory_map(facts: Mapping[str, Any]) -> MemoryMap:
    """Return the arena's buffers with the values that they hold first."""
    from core_compiler.exporters.memory_map import MemoryMap, Placed

    _, _, launches = facts.get("program", (None, None, ()))
    makers: dict[Value, str] = {}
    for op in launches:
        for value in LaunchOp.of(op).written if op.kind == LAUNCH else ():
            makers.setdefault(value, LaunchOp.of(op).kernel)
    plan = facts["plan"]
    placed = [
        Placed(
            life.value.name or f"buffer {number}",
            makers.get(life.value, life.op.kind),
            life.size,
            int(offset),
            life.start,
            life.end,
        )
        for number, (life, offset) in enumerate(facts["lifetimes"])
        if offset is not None
    ]
    return MemoryMap(placed, plan.peak, plan.lower_bound, plan.planner)


def timing_records(profile, ops: Sequence[Op]) -> tuple[list[TimingRecord], dict[str, Any]]:
    """Return raw samples of every launch with its op, and the figures of the whole run."""
    records = [
        TimingRecord(
            i,
            launch.timing.samples_us,
            launch.flops,
            launch.bytes,
            launch.kernel,
            op,
            profile.threads,
        )
        for i, (launch, op) in enumerate(zip(profile.launches, ops, strict=True))
    ]
    limits = profile.limits
    figures = {
        "total_samples_us": json.dumps(profile.total.samples_us),
        "total_ms": profile.total.median_us / 1e3,
        "total_min_ms": profile.total.min_us / 1e3,
        "total_p95_ms": profile.total.p95_us / 1e3,
        "threads": profile.threads,
        **profile.repeats,
        "peak_gflops": limits.peak_flops() / 1e9,
        "dram_gbytes_per_s": limits.bandwidth(1 << 30) / 1e9,
        "limits": json.dumps(asdict(limits)),
        "percent_of_limit": json.dumps(
            [round(launch.percent_of_limit, 3) for launch in profile.launches]
        ),
        "timeline": json.dumps(profile.samples.timeline(), separators=(",", ":")),
    }
    if profile.samples.loops is not None:  # there are loops
        figures["runs"] = json.dumps([launch.runs for launch in profile.launches])
    return records, figures


def machine_figures(machine: Machine) -> dict[str, Any]:
    """Return the machine that was compiled for: its cores or multiprocessors, and its roofs.

    The roofs are those of its description (GFLOP/s, GB/s), from which a kernel's time is predicted
    if nothing was measured.
    """
    roofs = of_machine(machine)
    figures: dict[str, Any] = {"machine": machine.name, "machine_summary": machine.summary}
    figures["machine_units"] = sum(int(unit.count.value) for unit in machine.units)
    if roofs is not None:
        figures["machine_limits"] = json.dumps(asdict(roofs))
    return figures


def schedule_steps(module: Module, kernel: str, target) -> list[tuple[str, str, Function]]:
    """Return the schedule of one kernel, step by step: ``(title, which function, the function)``.

    ``module`` is a stage in which the kernel is not scheduled yet (after ``outline_kernels``), as
    read from a recording: schedules are deterministic, so their many steps are not stored.
    """
    sizes = [
        LaunchOp.of(op).sizes
        for op in module.main.body.ops
        if op.kind == LAUNCH and LaunchOp.of(op).kernel == kernel
    ]
    scheduled = target.schedule(module.functions[kernel], {}, sizes)
    return [(step.name, step.kernel, step.function) for step in scheduled.steps]
