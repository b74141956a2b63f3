"""``workbench compile MODEL -o FILE.run``: compile, record, check every rewrite."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import CANNOT_HERE, UserError
from workbench.commands import common
from workbench.commands.printing import emit, table
from workbench.support import units

#: The most failed checks that the text lists.
SHOWN = 20
#: The quantised values with the largest errors that the text lists.
WORST = 3


def add_arguments(parser) -> None:
    common.add_model(parser)
    common.add_compile(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.run", help="record the compile (default: not recorded)"
    )
    parser.add_argument(
        "--weights",
        action="store_true",
        help="also write the weights, into FILE.run.weights: `workbench run FILE.run` then needs "
        "neither the model nor its framework",
    )
    parser.add_argument("--check", action="store_true", help="check every rewrite on real tensors")
    parser.add_argument(
        "--execute", action="store_true", help="also execute, and record each launch's time"
    )
    parser.add_argument(
        "--against",
        metavar="NAME",
        default="",
        help="compare each value of the import with that of its framework (torch, onnxruntime, "
        "jax, keras, tensorflow); exit code 1 if more than rounding differs, 3 if nothing can be "
        "compared",
    )
    parser.add_argument(
        "--integer-only",
        action="store_true",
        help="with --quantize: exit code 1 if an op is left in floats",
    )
    parser.add_argument(
        "--no-source", action="store_true", help="do not record the model's source files"
    )


def run(arguments) -> int:
    from core_compiler.debug.check import summary
    from core_compiler.driver.quantization_report import report
    from core_compiler.ir.events import Observers
    from core_compiler.record import weight_files
    from workbench.commands.execution_times import ExecutionTimes
    from workbench.model import failures
    from workbench.queries.numeric_results import FrameworkComparison

    path = output(arguments.output) if arguments.output else None
    if arguments.weights and path is None:
        raise UserError("no recording to write weights for", "--weights", "add -o FILE.run")
    if arguments.integer_only and not arguments.quantize:
        raise UserError("nothing is quantised", "--integer-only", "add --quantize int8")
    options = common.options(arguments, arguments.check)
    model = common.load(arguments)
    from workbench.model import jobs

    comparison, executed = FrameworkComparison(), ExecutionTimes()
    started = time.perf_counter()
    made = jobs.compile(
        model,
        arguments.target,
        options,
        path=path,
        observer=Observers(common.progress(), comparison, executed),
        execute=arguments.execute,
        source_text=not arguments.no_source,
        against=arguments.against,
        seconds=common.seconds(arguments),
    )
    if arguments.weights and path is not None:
        weight_files.write(path, made.stages[0].module)
    seconds, result = time.perf_counter() - started, comparison.result()
    checks = summary(made.checks)
    if not arguments.check:
        checks["unchecked"] = sum(len(stage.rewrites) for stage in made.stages)
    import_rows = failures.import_failures(result)
    data = {
        "passes": len(made.stages) - 1,
        "ops_before": int(made.stages[0].figures["ops"]),
        "ops_after": int(made.stages[-1].figures["ops"]),
        "seconds": seconds,
        "kernels": len(made.facts.get("compiled", ())),
        "checks": checks,
        "failures": [*import_rows, *failures.rows(made)],
        "model": model.name,
        "target": made.target.name,
        "identity": made.identity,
        "contract": CONTRACT_VERSION,
        "recording": None if path is None else str(path),
        "predicted": _predicted(made),
        "not_executed": made.not_executed if arguments.execute else None,
        "execution": executed.result,
        "against": result,
    }
    if arguments.quantize:
        data["quantised"] = report(made)
    emit(arguments, data, lambda: _text(made, model, data, import_rows))
    left = arguments.integer_only and data["quantised"]["left_float"]
    if checks["failed"] or left or data["against"] is None:
        return int(bool(checks["failed"] or left))
    return exit_code(data["against"]["verdict"])


def _predicted(made) -> dict[str, Any] | None:
    """Return the predicted time of one execution, where the target has a model of its machine."""
    from core_compiler.hardware.prediction import total
    from core_compiler.targets.link import launch_runs

    if not made.predicted:
        return None
    runs = launch_runs(made.module.main.body.ops)
    us, bound = total((each, runs.get(op, 1)) for op, each in made.predicted.items())
    machine = made.target.machine_of(made.options.target)
    return {"us": us, "bound": bound, "machine": machine.name}


def exit_code(verdict: str) -> int:
    """Return 1 if values differ from a framework's, 3 if nothing could be compared."""
    return {"differs": 1, "not_compared": CANNOT_HERE}.get(verdict, 0)


def counted(checks) -> str:
    """Return the number of checks with each verdict, as a line."""
    return "checks: " + ", ".join(f"{n} {verdict}" for verdict, n in checks.items() if n)


def listed(rows) -> list[str]:
    """Return failed checks (``failures.rows``) as lines."""
    if not rows:
        return []
    shown = [
        (
            r["pass"],
            r["rule"],
            "" if r["error"] is None else f"{r['error']:.3g}",
            r["line"] or "",
            r["note"],
        )
        for r in rows[:SHOWN]
    ]
    more = [f"and {len(rows) - SHOWN} more (--json has all)"] if len(rows) > SHOWN else []
    return ["", table(("pass", "rule", "error", "model", ""), shown), *more]


def output(text: str, suffix: str = ".run") -> Path:
    """Return the file to write; UserError, before any work, if it is not writable."""
    path = Path(text)
    if path.suffix.lower() != suffix:
        raise UserError(f"the name does not end in {suffix}", text, f"use {path.stem}{suffix}")
    if path.is_dir():
        raise UserError("expected a file, got a folder", text, "name a file in it")
    if not path.parent.is_dir():
        raise UserError("folder not found", str(path.parent), "create it first")
    return path


def quantised(found) -> str:
    """Return what is in integers, what was lost, and what stayed in floats, as lines."""
    ratio = "" if found["sqnr_db"] is None else f", {found['sqnr_db']:.1f} dB at the outputs"
    left = found["left_float"]
    floats = units.counted(len(left), "op")
    lines = [f"quantised: {found['ops']} results in integers, {floats} in floats{ratio}"]
    if found["losses"]:
        rows = [
            (row["op"], row["scope"], f"{row['sqnr_db']:.1f}", row["line"])
            for row in found["losses"][:WORST]
        ]
        lines.append(table(("lost most", "module", "dB", "model"), rows, right=(2,)))
    if left:
        reasons = [(row["op"], row["reason"], row["line"]) for row in left[:SHOWN]]
        lines.append(table(("left in floats", "why", "model"), reasons))
    return "\n".join(lines)


def _against_text(against) -> str:
    if against is None:
        return ""
    verdict = against["verdict"].replace("_", " ")
    left = f" (values not compared: {against['left_out']})" if against["left_out"] else ""
    return f"; against {against['framework']}: {verdict}{left}"


def _text(made, model, data, import_rows) -> str:
    """Return the report as text.

    ``import_rows``: failures already printed with the comparison of the import.
    """
    from workbench.commands import execution_times
    from workbench.queries import numeric_results

    checks = data["checks"]
    lines = [
        (
            "{model} for {target}: {passes} passes, {ops_before} ops became {ops_after}, "
            "{kernels} kernels, {seconds:.2f} s"
        ).format(**data)
        + _against_text(data["against"]),
        counted(checks),
        f"identity {data['identity']}",
        *listed([r for r in data["failures"] if r not in import_rows]),
    ]
    if data["against"]:
        lines.append(numeric_results.against(data["against"]))
    if data["execution"]:
        lines.append(execution_times.describe(data["execution"]))
    if data["predicted"] and not data["execution"]:
        lines.append(
            "predicted {us} on {machine}, mostly bound by {bound}".format(
                **{**data["predicted"], "us": units.duration(data["predicted"]["us"])}
            )
        )
    if data["not_executed"]:
        lines.append(f"not executed: {data['not_executed']}")
    if data.get("quantised"):
        lines.append(quantised(data["quantised"]))
    if data["recording"]:
        lines.append(f"recorded in {data['recording']}")
    return "\n".join(lines)
