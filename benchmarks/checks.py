"""What ``--check`` costs: seconds of a compile with checks and without, beside another checkout.

    python -m benchmarks.checks [MODEL ...] [--beside FOLDER] [--rounds N] [-o FILE]

Each compile is a process of its own with a warm kernel cache; the contenders take turns.  Seconds
are of the compile alone (imports and the import of the model left out): wall time, and processor
time of the process, which other work on the machine changes less.  ``resnet18-training`` is a
training step of ResNet-18, batch 8.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.models import ROOT, machine

MODELS = ("resnet50", "bert-base", "gpt2", "resnet18-training")
_PROGRAM = """
import json, sys, time
name, check = sys.argv[1], sys.argv[2] == "1"
from core_compiler.driver.compilation import Options
if name.endswith("-training"):
    import core_compiler as cc
    from core_compiler.training.run.data import Data
    from sample_models.catalogue import build
    from sample_models.training import task
    built = build(name.removesuffix("-training"), seed=0)
    found = task(name.removesuffix("-training"), built, 0)
    batch = Data.of(found.arrays).batch(0, 8, 0)
    began = time.perf_counter(), time.process_time()
    step = cc.compile(built.module, batch, training=cc.Training(loss=found.loss), check=check)
    made = step.compilation.finish()
else:
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec
    model = models.load(read_spec(name))
    began = time.perf_counter(), time.process_time()
    made = jobs.compile(model, "cpu", Options(check=check))
spent = time.perf_counter() - began[0], time.process_time() - began[1]
failed = sum(r.verdict == "failed" for rs in made.checks.values() for r in rs)
print(json.dumps({"wall": spent[0], "cpu": spent[1], "failed": failed,
                  "checks": sum(map(len, made.checks.values()))}))
"""


def once(folder: Path, model: str, check: bool) -> dict[str, Any]:
    """One compile in a process of its own, by the sources in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, model, str(int(check))],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{model} in {folder.name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--beside", type=Path, help="another checkout of this repository")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    sides = {"here": ROOT, **({"beside": arguments.beside} if arguments.beside else {})}
    rows = []
    for model in arguments.models:
        runs: dict[str, list] = {}
        for number in range(arguments.rounds + 1):  # the first fills the caches
            for side, folder in sides.items():
                for check in (False, True):
                    found = once(folder.resolve(), model, check)
                    if number:
                        runs.setdefault(f"{side}{' checked' if check else ''}", []).append(found)
        row: dict[str, Any] = {"model": model}
        for name, each in runs.items():
            row[name] = {k: median(r[k] for r in each) for k in ("wall", "cpu", "failed", "checks")}
        if arguments.beside:
            row["ratio"] = {
                k: row["here checked"][k] / row["beside checked"][k] for k in ("wall", "cpu")
            }
        rows.append(row)
        print(json.dumps(row), flush=True)
    if arguments.output:
        report = {"machine": machine(2), "rounds": arguments.rounds, "models": rows}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
