"""The sample models beside other frameworks, measured in the same run, interleaved.

    python benchmarks/models.py [MODEL ...] [--threads 2] [--against torch,onnxruntime] [-o FILE]

Reports medians in milliseconds and ratios (peer / ours: above 1 means that ours is faster), compile
seconds cold (no kernel known) and warm (a fresh process that finds everything in the cache), what
recording adds to a warm one, the number of compiled functions, and errors against the peers.
Absolute times of a shared machine are worth little; read the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
MODELS = (
    "resnet50",
    "bert-base",
    "gpt2",
    "gpt2-decode",
    "vit-b16",
    "llama-4l",
    "resnet18",
    "digits-cnn",
    "digits-mlp",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--against", default="torch,onnxruntime")
    parser.add_argument("--compile", action="store_true", help="also time cold and warm compiles")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        row = execute(name, arguments.threads, arguments.against.split(","))
        if arguments.compile:
            row.update(compile_times(name))
        rows.append(row)
        print(json.dumps(row), flush=True)
    if arguments.output:
        text = json.dumps({"machine": machine(arguments.threads), "models": rows}, indent=1)
        arguments.output.write_text(text + "\n")


def execute(name: str, threads: int, against: list[str]) -> dict:
    """Times and errors of one model, ours and the peers in turns."""
    from core_compiler.debug.metric import farthest
    from core_compiler.driver.compilation import Options
    from core_compiler.numerics.reference.digest import digest
    from core_compiler.runtime.peers import compare
    from workbench.model import jobs, models, peers
    from workbench.model.spec import read_spec

    model = models.load(read_spec(name))
    made = jobs.compile(model, "cpu", Options(threads=threads))
    ours = made(*model.inputs)
    runs, errors = {}, {}
    for framework in against:
        run = peers.peer(model, framework, threads)
        pairs = zip(run(*model.inputs), ours, strict=True)
        errors[framework] = farthest(pairs)[1].relative
        runs[framework] = lambda run=run: run(*model.inputs)
    found = compare(lambda: made(*model.inputs), runs).to_json()
    return {
        "model": name,
        **found,
        "errors": errors,
        "digest": digest(ours),
        "identity": made.identity,
        "functions": len(made.facts["compiled"]),
        "launches": len(made.facts["program"][0].launches),
        "arena_bytes": made.facts["plan"].peak,
        "arena_bound": made.facts["plan"].lower_bound,
    }


def compile_times(name: str, pairs: int = 9) -> dict:
    """Seconds of whole processes: cold from an empty cache, then warm with and without recording,
    in turns; ``recording`` is the median of what recording added, per second without it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COMPILER_WORKBENCH_CACHE": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second run finds bytecode
        run = str(Path(folder) / "x.run")
        plain = [sys.executable, "-m", "workbench.commands.cli", "compile", name, "--json"]
        command = [*plain, "-o", run]
        cold = _seconds(command, environment)
        size = Path(run).stat().st_size
        _seconds(command, environment)
        taken = [
            (_seconds(command, environment), _seconds(plain, environment)) for _ in range(pairs)
        ]
    warm, unrecorded = np.median(taken, axis=0).tolist()
    added = float(np.median([on - off for on, off in taken])) / unrecorded
    return {
        "cold_s": cold,
        "warm_s": warm,
        "unrecorded_s": unrecorded,
        "recording": added,
        "recording_bytes": size,
    }


def _seconds(command: list[str], environment: dict) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def machine(threads: int) -> dict:
    """What the figures were taken on."""
    from importlib.metadata import version

    from core_compiler.hardware.host import detect

    host = detect()
    return {
        "processor": f"{host.model or platform.processor()} ({host.llvm_name})",
        "vector_bits": 8 * host.vector_bytes,
        "threads": threads,
        "python": platform.python_version(),
        "versions": {n: version(n) for n in ("torch", "onnxruntime", "numba", "llvmlite", "numpy")},
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
