"""Quantised models on Arm's Ethos-U NPUs, as its compiler Vela estimates them: operators, cycles.

    python -m benchmarks.vela [MODEL ...] [-o benchmarks/results/vela.json]

`make setup-tosa` installs Vela. Each model is quantised on its example inputs and exported to
TOSA's integer profile. Vela says which operators are left to a CPU, and estimates cycles and memory
with its default system and memory mode of each NPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / os.environ.get("TOSA_VENV", ".venv-tosa")
MODELS = ("digits-cnn", "mobilenet-v2", "resnet18", "resnet50")
ACCELERATORS = ("ethos-u65-256", "ethos-u85-256")
#: Figures of the summary: its column, and ours.
FIGURES = {
    "cycles_total": "cycles",
    "cycles_npu": "npu_cycles",
    "sram_memory_used": "sram_kib",
    "dram_memory_used": "dram_kib",
    "nn_macs": "macs",
}
_OPERATORS = re.compile(r"^(CPU|NPU) operators = (\d+)", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if not (ENVIRONMENT / "bin" / "vela").exists():
        raise SystemExit(f"Vela is not installed in {ENVIRONMENT}: make setup-tosa")
    rows = []
    for name in given.models:
        with tempfile.TemporaryDirectory() as folder:
            file = _exported(name, Path(folder))
            for accelerator in ACCELERATORS:
                rows.append({"model": name, **_estimated(file, accelerator)})
                print(" ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    found = {"versions": {"ethos-u-vela": _run("vela", "--version").strip()}, "models": rows}
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


def _exported(name: str, folder: Path) -> Path:
    """The model's integers as TOSA's flatbuffer."""
    import core_compiler as cc
    from workbench.model import models
    from workbench.model.spec import read_spec

    model = models.load(read_spec(name, "torch"))
    quantize = cc.Quantization()
    made = cc.compile(model.imported.module, model.inputs, quantize=quantize, finish=False)
    while made.next is not None and made.next.half != "implementation":
        made.step()
    text, file = folder / f"{name}.tosa.mlir", folder / f"{name}.tosa"
    made.stages[-1].export(text, integer_only=True)
    serialize = f"--tosa-flatbuffer-filename={file}"
    _run("tosa-opt", str(text), "--tosa-serialize", serialize, "-o", os.devnull)
    return file


def _estimated(file: Path, accelerator: str) -> dict[str, Any]:
    folder = file.parent / accelerator
    said = _run("vela", f"--accelerator-config={accelerator}", f"--output-dir={folder}", str(file))
    (summary,) = folder.glob("*_summary_*.csv")
    (row,) = csv.DictReader(summary.read_text().splitlines())
    operators = {f"{which.lower()}_operators": int(n) for which, n in _OPERATORS.findall(said)}
    figures = {ours: _number(row[theirs]) for theirs, ours in FIGURES.items()}
    return {
        "accelerator": accelerator,
        "system": row["system_config"],
        "memory_mode": row["memory_mode"],
        **operators,
        **figures,
        "inferences_per_second": _number(row["inferences_per_second"]),
    }


def _number(text: str) -> float | int:
    number = round(float(text), 1)
    return int(number) if number.is_integer() else number


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [ENVIRONMENT / "bin" / program, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
