"""Predicted times of GPU kernels beside the recorded ones.

    python -m benchmarks.gpu_predictions [MODEL ...] [--compile] [-o FILE]

The recordings of sample_models/recordings hold, for each launch on an NVIDIA H200, the machine code
that ran and the time that it took (benchmarks.gpu_recordings).  Each launch is predicted from that
machine code for machines/h200.yaml, and compared with the median of its times.  One figure of the
machine was fitted to such times: the launch latency, to the short launches of FITTED.  The other
models are held out.  With --compile, each model is also compiled by today's code, whose kernels may
differ from the recorded ones, and predicted as a whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.codegen.cuda.predict import CompiledLaunches
from core_compiler.hardware.machine import shipped
from core_compiler.hardware.prediction import GPUModel, Prediction, total
from core_compiler.ir import Op, Value
from core_compiler.ir.target import ALLOC, CONSTANT, INPUT, LAUNCH, VIEW, Alloc, Launch
from core_compiler.record.reader import Recording
from core_compiler.targets.predict import cold_arguments

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "sample_models" / "recordings"
MACHINE = "h200"
#: The models whose short launches the launch latency was fitted to.
FITTED = ("digits-cnn", "gpt2", "llama-4l", "resnet18")
#: Launches of at most so many microseconds are mostly launch latency.
SHORT_US = 5.0


@dataclass(frozen=True)
class Row:
    """Launches of a kernel with the same sizes: their number, the mean time of one, the bound."""

    kernel: str
    sizes: tuple[int, ...]
    blocks: int
    launches: int
    measured_us: float
    predicted_us: float
    bound: str
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.predicted_us / self.measured_us


def rows(path: Path, model: GPUModel) -> list[Row]:
    """Return the launches of a recording, measured and predicted, in program order."""
    groups: dict[tuple, list[tuple[float, Prediction]]] = defaultdict(list)
    with Recording.open(path) as recording:
        for launch, blocks, measured, found in _launches(recording, model):
            groups[launch.kernel, launch.sizes, blocks, found.bound].append((measured, found))
    return [
        Row(
            kernel,
            sizes,
            blocks,
            len(found),
            float(np.mean([us for us, _ in found])),
            float(np.mean([p.us for _, p in found])),
            found[0][1].bound_by,
            found[0][1].note,
        )
        for (kernel, sizes, blocks, _), found in groups.items()
    ]


def _launches(
    recording: Recording, model: GPUModel
) -> Iterator[tuple[Launch, int, float, Prediction]]:
    module = recording.module(recording.stage_count() - 1)
    ops = module.main.body.ops
    makers = {value: op for op in ops for value in op.results}
    memory = recording.figures("memory")
    names = {"arena": "arena", "constant": "weight", "input": "input", "output": "output"}
    held = {space: int(memory[f"{name}_bytes"]) for space, name in names.items()}
    kernels, blocks = {}, {}
    for each in recording.kernels():
        kernels[each.name] = CompiledLaunches.of(
            module.functions[each.name],
            recording.kernel_text(each.id, "assembly"),
            each.assembly_map,
            ((line, recording.op(op)) for line, op in each.line_map),
            each.facts,
        )
        blocks[each.name] = iter(each.facts["work_items"])
    timed = {t.op: t for t in recording.timings()}
    for op in ops:
        if op.kind != LAUNCH:
            continue
        launch, timing = Launch.of(op), timed[recording.op_id(op)]
        spaces = [_space(value, makers) for value in launch.buffers]
        cold = cold_arguments(held, spaces, model.cache_bytes)
        count = next(blocks[launch.kernel])
        kernel = kernels[launch.kernel]
        found = kernel.predict(model, launch.sizes, count, timing.bytes, cold)
        yield launch, count, timing.median_us, found


def _space(value: Value, makers: dict[Value, Op]) -> str:
    op = makers[value]
    while op.kind == VIEW:
        op = makers[op.operands[0]]
    if op.kind == ALLOC:
        return "arena" if Alloc.of(op).output is None else "output"
    return {CONSTANT: "constant", INPUT: "input"}[op.kind]


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Return the geometric mean of ratios, their geometric standard deviation, their extremes."""
    logs = np.log(ratios)
    return {
        "geometric_mean": float(np.exp(logs.mean())),
        "geometric_deviation": float(np.exp(logs.std())),
        "least": float(np.exp(logs.min())),
        "most": float(np.exp(logs.max())),
        "count": len(logs),
    }


def fitted_launch_us(found: dict[str, list[Row]], model: GPUModel) -> float:
    """Return the launch latency that the short launches of FITTED have by the median."""
    return float(
        np.median(
            [
                row.measured_us - (row.predicted_us - 1e6 * model.launch)
                for name in FITTED
                for row in found.get(name, ())
                if row.measured_us <= SHORT_US
            ]
        )
    )


def compiled_today(name: str) -> dict[str, Any]:
    """Return the predicted time of a model that today's code compiles for the machine."""
    from core_compiler.driver.compilation import Options
    from core_compiler.targets.link import launch_runs
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    made = jobs.compile(models.load(read_spec(name)), "cuda", Options(target={"machine": MACHINE}))
    runs = launch_runs(made.module.main.body.ops)
    us, bound = total((each, runs.get(op, 1)) for op, each in made.predicted.items())
    return {"predicted_us": us, "bound": bound, "launches": len(made.predicted)}


def report(names: Sequence[str], compile_too: bool) -> dict[str, Any]:
    model = GPUModel.of(shipped(MACHINE))
    assert model is not None
    found = {name: rows(RECORDINGS / f"{name}.run", model) for name in names}
    made = []
    for name, each in found.items():
        sums = [sum(r.launches * us(r) for r in each) for us in (_measured, _predicted)]
        made.append(
            {
                "model": name,
                "fitted": name in FITTED,
                "measured_us": sums[0],
                "predicted_us": sums[1],
                "ratio": sums[1] / sums[0],
                "kernels_of_launches": spread([r.ratio for r in each]),
                **({"today": compiled_today(name)} if compile_too else {}),
                "launches": [{**asdict(r), "ratio": r.ratio} for r in each],
            }
        )
        print(summary(made[-1]), flush=True)
    parts = {
        "fitted": [n for n in names if n in FITTED],
        "held_out": [n for n in names if n not in FITTED],
        "all": list(names),
    }
    return {
        "machine": MACHINE,
        "launch_us": 1e6 * model.launch,
        "fitted_figures": {"launch_us": fitted_launch_us(found, model)},
        "models": {k: spread(_ratios(made, v)) for k, v in parts.items() if v},
        "launches": {
            k: spread([r.ratio for n in v for r in found[n]]) for k, v in parts.items() if v
        },
        "each": made,
    }


def _measured(row: Row) -> float:
    return row.measured_us


def _predicted(row: Row) -> float:
    return row.predicted_us


def _ratios(made: Sequence[dict], names: Sequence[str]) -> list[float]:
    return [each["ratio"] for each in made if each["model"] in names]


def summary(row: dict[str, Any]) -> str:
    """Return a line about a model: its launches' times and their errors."""
    one = row["kernels_of_launches"]
    today = row.get("today")
    return (
        f"{row['model']:12s} measured {row['measured_us']:9,.1f} us, predicted "
        f"{row['predicted_us']:9,.1f} us: {row['ratio']:.2f}; launches "
        f"{one['geometric_mean']:.2f} x/÷ {one['geometric_deviation']:.2f} "
        f"({one['least']:.2f} to {one['most']:.2f}){'' if row['fitted'] else ', held out'}"
        + (f"; compiled today: {today['predicted_us']:,.1f} us" if today else "")
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    known = sorted(path.stem for path in RECORDINGS.glob("*.run"))
    parser.add_argument("models", nargs="*", default=known)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args(words)
    made = report(arguments.models, arguments.compile)
    for what in ("models", "launches"):
        for part, each in made[what].items():
            print(
                f"{what}, {part}: predicted / measured {each['geometric_mean']:.2f} x/÷ "
                f"{each['geometric_deviation']:.2f} ({each['count']})"
            )
    print(f"launch latency by the short launches: {made['fitted_figures']['launch_us']:.2f} us")
    if arguments.output:
        arguments.output.write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
