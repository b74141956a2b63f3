"""The sample models on the GPU of this machine: recordings that everyone can open, and times.

    python -m benchmarks.gpu_recordings [MODEL ...] [--recordings FOLDER] [-o FILE]

Each model is compiled for CUDA and for the CPU; the digests of their results must be equal.  Every
launch is timed by events on the stream; beside it, in turns in the same run, torch eager in f32
(TF32 off) where torch has CUDA.  A recording of each goes to sample_models/recordings/, the times
to benchmarks/results/.  Exit code 3 where this machine cannot execute, 1 where a model did not.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.runtime.profiler import Timing
from core_compiler.support.errors import CANNOT_HERE, UserError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "sample_models" / "recordings"
#: Recordings are part of the package: larger ones are left out, in bytes.
MAX_BYTES = 10_000_000
#: Turns of ours and torch's, and timed runs in each.
ROUNDS, RUNS = 7, 3


def record(
    spec: Any,
    folder: Path,
    target: Any = "cuda",
    *,
    repeats: int = 20,
    rounds: int = ROUNDS,
    runs: int = RUNS,
    max_bytes: int = MAX_BYTES,
) -> dict:
    """Compile and execute a model, write ``folder/NAME.run``, and say what came out (JSON values).

    ``equal``: whether the digest is the CPU's; a model whose digest is not gets no recording, nor
    one that would be larger than ``max_bytes`` (``recording`` is then None, ``left_out`` why).
    ``ours_us`` and ``torch_us`` are times on the GPU of a whole run without copies of its inputs
    and results; ``torch_us`` is None where ``torch`` says why.  ``roofline_us`` is what the machine
    model predicts at least: the sum over launches of compulsory work under the device's limits;
    ``predicted_us`` is the predicted time of all launches, also of each kernel.
    """
    from core_compiler.driver.compilation import Options
    from core_compiler.numerics.reference.digest import digest
    from workbench.model import jobs, models

    model = models.load(spec)
    made = jobs.compile(model, target)
    wanted = digest(jobs.compile(model, "cpu")(*model.inputs))
    got = digest(made(*model.inputs))
    found = made.profile(*model.inputs, repeats=repeats)
    device = device_of(made)
    made.about = {**jobs.describe(model, made.target.name, Options()), "device": device}
    predicted = predicted_of(made)
    torch, why = torch_eager(model)
    ours, theirs = interleave(made, model.inputs, torch, rounds, runs)
    row = {
        "model": model.name,
        "device": device["name"],
        "identity": made.identity,
        "digest": got,
        "cpu_digest": wanted,
        "equal": got == wanted,
        "ours_us": _times(ours),
        "torch_us": _times(theirs) if theirs else None,
        "torch": why,
        "ratio": float(np.median(theirs) / np.median(ours)) if theirs else None,
        "roofline_us": sum(k.total_us * k.percent_of_limit / 100 for k in found.kernels),
        "predicted_us": sum(predicted.values()) if predicted else None,
        "launches": len(found.launches),
        "kernels": [{**asdict(k), "predicted_us": predicted.get(k.name)} for k in found.kernels],
    }
    if not row["equal"]:
        return {**row, "recording": None, "left_out": "the digest is not the CPU's"}
    folder.mkdir(parents=True, exist_ok=True)
    path = made.record(folder / f"{model.name}.run")
    shorten_paths(path)
    size = path.stat().st_size
    if size > max_bytes:
        path.unlink()
        reason = f"{size:,} bytes, more than {max_bytes:,}"
        return {**row, "recording": None, "left_out": reason}
    return {**row, "recording": path.name, "recording_bytes": size}


def predicted_of(made: Any) -> dict[str, float]:
    """Return the predicted microseconds of all launches of each kernel in one execution."""
    from core_compiler.ir.target import Launch
    from core_compiler.targets.link import launch_runs

    runs = launch_runs(made.module.main.body.ops)
    found: dict[str, float] = {}
    for op, each in made.predicted.items():
        name = Launch.of(op).kernel
        found[name] = found.get(name, 0.0) + runs.get(op, 1) * each.us
    return found


def shorten_paths(path: Path) -> None:
    """Cut this machine's folders off the names of source files in a recording: those of this
    repository become relative to it, those of packages to the folder they are installed in."""
    folders = [f"{ROOT}/", *{f"{sysconfig.get_path(kind)}/" for kind in ("purelib", "platlib")}]
    with closing(sqlite3.connect(path)) as file, file:
        for folder in folders:
            for table, column in (("node", "file"), ("node", "stack"), ("source_file", "name")):
                file.execute(f"UPDATE {table} SET {column} = replace({column}, ?, '')", (folder,))
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM")


def device_of(made: Any) -> dict[str, Any]:
    """The GPU that a compilation executes on, its driver's CUDA version and what compiled."""
    from core_compiler.codegen.cuda import toolchain

    gpu = made.executable.device.driver.gpu
    return {**asdict(gpu), "versions": toolchain.versions(), "when": time.strftime("%Y-%m-%d")}


def torch_eager(model: Any) -> tuple[Callable[[], float] | None, str]:
    """A run of the model by torch on the GPU, in microseconds between two events on its stream, and
    what that was; None and the reason where torch cannot."""
    try:
        import torch
    except ImportError:
        return None, "torch is not installed"
    if not torch.cuda.is_available():
        built = "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
        return None, f"torch {torch.__version__} ({built}) finds no GPU"
    from sample_models.catalogue import build

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if model.spec.kind == "sample":
        module = build(model.spec.text, **model.spec.sizes).module.cuda()
    else:
        module = model.live.cuda()
    inputs = [torch.from_numpy(np.array(x)).cuda() for x in model.inputs]

    def run() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.inference_mode():
            start.record()
            module(*inputs)
            end.record()
        torch.cuda.synchronize()
        return 1e3 * start.elapsed_time(end)

    return run, f"torch {torch.__version__} eager, f32, TF32 off"


def interleave(
    made: Any, inputs: Sequence, torch: Callable[[], float] | None, rounds: int, runs: int
) -> tuple[list[float], list[float]]:
    """Microseconds of whole runs, ours and torch's in turns; [] where there is no torch."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        samples = made.executable.profile(inputs, repeats=runs, warmup=1 if number == 0 else 0)
        ours += [float(t) / 1e3 for t in samples.totals]
        if torch is not None:
            torch()
            theirs += [torch() for _ in range(runs)]
    return ours, theirs


def _times(samples: Sequence[float]) -> dict[str, float]:
    timing = Timing(tuple(samples))
    return {"median": timing.median_us, "min": timing.min_us, "p95": timing.p95_us}


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "numba", "numba-cuda", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def main(words: Sequence[str] | None = None) -> int:
    from core_compiler import targets
    from sample_models.catalogue import CATALOGUE
    from workbench.model.spec import read_spec

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(CATALOGUE))
    parser.add_argument("--recordings", type=Path, default=FOLDER)
    results = ROOT / "benchmarks" / "results" / f"gpu-{time.strftime('%Y-%m-%d')}.json"
    parser.add_argument("-o", "--output", type=Path, default=results)
    arguments = parser.parse_args(words)
    missing = targets.target("cuda").available()
    if missing:
        print(f"no recordings were made: {missing.partition(': kernels')[0]}", file=sys.stderr)
        print(
            "run this on a machine with an NVIDIA GPU; `workbench doctor` lists what is missing",
            file=sys.stderr,
        )
        return CANNOT_HERE
    rows = []
    for name in arguments.models:
        try:
            rows.append(record(read_spec(name), arguments.recordings))
        except UserError as problem:
            rows.append({"model": name, "error": str(problem)})
        print(summary(rows[-1]), flush=True)
    report = {"python": platform.python_version(), "versions": _versions(), "models": rows}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(row.get("equal") and row.get("recording") for row in rows) else 1


def summary(row: dict) -> str:
    """A line about a model: what it took beside torch, and what was kept."""
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    times = f"{row['ours_us']['median'] / 1e3:.3f} ms on {row['device']}"
    comparison = (
        f"{row['ratio']:.2f} times as fast as {row['torch']}" if row["ratio"] else row["torch"]
    )
    bits = "the CPU's digest" if row["equal"] else "NOT the CPU's digest"
    outcome = row["recording"] or f"no recording ({row['left_out']})"
    return f"{row['model']}: {times}, {comparison}; {bits}; {outcome}"


if __name__ == "__main__":
    sys.exit(main())
