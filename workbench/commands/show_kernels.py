"""``workbench kernels RUN|MODEL``: the kernels with their times, and each one's code."""

from __future__ import annotations

from collections.abc import Mapping

from core_compiler.support.errors import UserError, nearest
from workbench.commands import subject
from workbench.commands.printing import emit, number, painter, printable, table
from workbench.queries.numeric_results import as_count, as_number, by_launch

WHAT = {
    "source": "source",
    "llvm": "intermediate",
    "ptx": "intermediate",
    "assembly": "assembly",
    "sass": "assembly",
    "steps": "",
}


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument("--show", metavar="NAME", help="print one kernel")
    parser.add_argument(
        "--what", choices=tuple(WHAT), default="source", help="what --show prints (default source)"
    )


def run(arguments) -> None:
    with subject.recording(
        arguments, execute=not arguments.show and not _is_file(arguments)
    ) as opened:
        kernels = opened.kernels()
        if not kernels:
            made = any(s.pass_name == "generate_code" for s in opened.stages())
            raise UserError(
                "the program needs no kernels" if made else "no kernels were compiled",
                arguments.model,
                "it only moves inputs and constants"
                if made
                else "the compile stopped before code generation",
            )
        if arguments.show:
            _show(arguments, opened, kernels)
            return
        rows = timed(kernels, opened.timings(), by_launch(opened.figures("timing"), "runs"))
        if not opened.timings():
            _add_predictions(rows, kernels, opened)
        meta = opened.figures("timing")
    emit(arguments, {"kernels": rows, "figures": meta}, lambda: _text(rows, meta))


def _is_file(arguments) -> bool:
    return subject.is_recording(arguments.model)


def timed(kernels, timings, runs: Mapping[int, float]) -> list[dict]:
    """Return one row per kernel, the most expensive first; times are None if nothing was executed.

    Shares are of all launches, including copies. ``runs``: how often launches ran, if more than
    once.
    """
    total_us = sum(t.median_us or 0.0 for t in timings)
    measured: dict[str, list] = {}
    for timing in timings:
        if timing.median_us is not None:
            measured.setdefault(timing.kernel, []).append(timing)
    rows = []
    for kernel in kernels:
        timings_of_kernel = measured.get(kernel.name, [])
        total = sum(t.median_us for t in timings_of_kernel)
        count = len(kernel.launches)
        if timings_of_kernel:
            count = sum(int(runs.get(t.launch, 1)) for t in timings_of_kernel)
        rows.append(
            {
                "name": kernel.name,
                "count": count,
                "cached": kernel.cached,
                "compile_seconds": kernel.compile_seconds,
                "key": kernel.key,
                "steps": list(kernel.steps),
                "total_us": total if timings_of_kernel else None,
                "median_us": total / count if timings_of_kernel and count else None,
                "share": total / total_us if timings_of_kernel and total_us else None,
                "predicted_us": None,
                "bound_by": None,
                "gflops": _rate(sum(t.flops for t in timings_of_kernel), total),
                "gbytes_per_s": _rate(sum(t.bytes for t in timings_of_kernel), total),
            }
        )
    return sorted(rows, key=lambda r: (-(r["total_us"] or 0), -(r["predicted_us"] or 0), r["name"]))


def _add_predictions(rows: list[dict], kernels, opened) -> None:
    """Add the recorded predictions to the rows: the time of all launches, and what bounds most."""
    from core_compiler.targets.link import launch_runs

    if not any(kernel.facts.get("predictions") for kernel in kernels):
        return
    ops = opened.module(opened.stage_count() - 1).main.body.ops
    runs = {opened.op_id(op): count for op, count in launch_runs(ops).items()}
    by_name = {row["name"]: row for row in rows}
    for kernel in kernels:
        bounds: dict[str, float] = {}
        for launch, each in zip(kernel.launches, kernel.facts.get("predictions", ()), strict=False):
            us = runs.get(launch, 1) * each["us"]
            bounds[each["bound_by"]] = bounds.get(each["bound_by"], 0.0) + us
        if bounds:
            row = by_name[kernel.name]
            row["predicted_us"] = sum(bounds.values())
            row["bound_by"] = max(bounds, key=lambda name: bounds[name])
    rows.sort(key=lambda r: (-(r["predicted_us"] or 0), r["name"]))


def _rate(amount: int, microseconds: float) -> float | None:
    """Return 1e9 units per second."""
    return amount / (microseconds * 1e-6) / 1e9 if microseconds else None


def _text(rows, figures) -> str:
    if any(r["predicted_us"] for r in rows) and not any(r["total_us"] for r in rows):
        return _predicted_text(rows)
    cells = [
        (
            r["name"],
            r["count"] or "core",
            number(r["median_us"], 1),
            number(r["total_us"], 1),
            "" if r["share"] is None else f"{100 * r['share']:.1f}",
            number(r["gflops"], 1),
            number(r["gbytes_per_s"], 1),
            max(0, len(r["steps"]) - 1),
            "cached" if r["cached"] else f"{r['compile_seconds']:.2f} s",
        )
        for r in rows
    ]
    head = ("kernel", "launches", "us", "total us", "%", "GFLOP/s", "GB/s", "steps", "compiled")
    lines = [table(head, cells, right=(1, 2, 3, 4, 5, 6, 7))]
    total = as_number(figures.get("total_ms"))
    if total is not None:
        from core_compiler.runtime.samples import executed_on

        threads = as_number(figures.get("threads"))
        known = None if threads is None else as_count(threads)
        shown = f"{total:.3f}" if total >= 0.01 else f"{total:.3g}"
        lines.append(f"one execution {shown} ms on {executed_on(known)}")
    return "\n".join(lines)


def _predicted_text(rows) -> str:
    cells = [
        (
            r["name"],
            r["count"] or "core",
            number(r["predicted_us"], 1),
            r["bound_by"] or "",
            max(0, len(r["steps"]) - 1),
            "cached" if r["cached"] else f"{r['compile_seconds']:.2f} s",
        )
        for r in rows
    ]
    head = ("kernel", "launches", "predicted us", "bound by", "steps", "compiled")
    spent = sum(r["predicted_us"] or 0.0 for r in rows)
    return f"{table(head, cells, right=(1, 2, 4))}\none execution {spent / 1e3:.3g} ms, predicted"


def _show(arguments, opened, kernels) -> None:
    found = next((k for k in kernels if k.name == arguments.show), None)
    if found is None:
        names = [k.name for k in kernels]
        fix = nearest(arguments.show, names, f"kernels: {', '.join(names)}")
        raise UserError(f"unknown kernel {arguments.show!r}", "--show", fix)
    if arguments.what == "steps":
        steps = _derived(opened, found)
        emit(arguments, {"name": found.name, "steps": steps}, lambda: _steps(steps))
        return
    _check_language(arguments.what, found)
    text = opened.kernel_text(found.id, WHAT[arguments.what])
    data = {
        "name": found.name,
        "what": arguments.what,
        "text": text,
        "line_map": found.line_map,
        "intermediate_map": found.intermediate_map,
        "assembly_map": found.assembly_map,
    }
    emit(arguments, data, printable(text.rstrip("\n")))


def _check_language(what: str, kernel) -> None:
    """Raise UserError if PTX of a CPU kernel is requested, or LLVM IR of a GPU kernel."""
    available = "ptx" if kernel.facts.get("intermediate") == "PTX" else "llvm"
    if what in ("llvm", "ptx") and what != available:
        name = {"llvm": "LLVM IR", "ptx": "PTX"}
        raise UserError(
            f"kernel {kernel.name} has {name[available]}, not {name[what]}",
            "--what",
            f"use --what {available}",
        )


def _derived(opened, kernel) -> list[dict]:
    """Return the steps of a kernel's schedule, derived again from the stage before it.

    They are not stored in the recording.

    If this program no longer has the target, or the kernel is an inner function that others
    invoke, the recorded facts are all there is.
    """
    from core_compiler import targets
    from core_compiler.driver.kernel_records import schedule_steps
    from core_compiler.ir.text import print_function

    recorded = [
        {"name": name, "kernel": kernel.name, "text": opened.kernel_step_text(kernel.id, i)}
        for i, name in enumerate(kernel.steps)
    ]
    names = [stage.pass_name for stage in opened.stages()]
    target = str(opened.meta().get("target", ""))
    if "outline_kernels" not in names or target not in targets.names():
        return recorded
    module = opened.module(names.index("outline_kernels"))
    if kernel.name not in module.functions:
        return recorded
    return [
        {"name": name, "kernel": changed, "text": print_function(function)}
        for name, changed, function in schedule_steps(module, kernel.name, targets.target(target))
    ]


def _steps(steps) -> str:
    paint = painter()
    return "\n".join(
        paint("bold", f"-- {i}: {step['name']} ({step['kernel']})")
        + (f"\n{printable(step['text'])}" if step["text"] else "")
        for i, step in enumerate(steps)
    )
