"""Arm's reference model of TOSA as the judge of exported integers: validates a file, and runs it.

`make setup-tosa` installs it in an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
#: The environment; relative to the repository, as in the Makefile.
ENVIRONMENT = ROOT / os.environ.get("TOSA_VENV", ".venv-tosa")
#: The programs themselves; those of the environment's `bin` start Python first.
_PROGRAMS = next(ENVIRONMENT.glob("lib/python*/site-packages/bin"), None)

needs_tosa = pytest.mark.skipif(
    _PROGRAMS is None, reason="TOSA's reference model is not installed: make setup-tosa"
)
#: The integer profile of the specification's first version, and its limits of sizes.
_TARGET = "--tosa-attach-target=profiles=pro_int level=8k specification_version=1.0"
_STEPS = ("--tosa-validate=strict-op-spec-alignment", "--tosa-serialize")


def run(
    text: str, arrays: Sequence[np.ndarray], folder: Path, extensions: str = ""
) -> list[np.ndarray]:
    """The results of a text of the integer profile on arrays; unsigned integers come as signed."""
    model = serialized(text, folder / "model.tosa", extensions)
    results = text.partition("-> (")[2].partition("\n")[0].count("tensor<")
    given = [folder / f"in{place}.npy" for place in range(len(arrays))]
    made = [folder / f"out{place}.npy" for place in range(results)]
    for path, array in zip(given, arrays, strict=True):
        signed = array.dtype if array.dtype == bool else f"i{array.dtype.itemsize}"
        np.save(path, array.view(signed))
    command = ["tosa_reference_model", "--tosa_level=EIGHTK", f"--tosa_file={model}"]
    if given:
        command += [f"--ifm_name={_names('Input', given)}", f"--ifm_file={_joined(given)}"]
    _do([*command, f"--ofm_name={_names('Output', made)}", f"--ofm_file={_joined(made)}"])
    return [np.load(path) for path in made]


def serialized(text: str, path: Path, extensions: str = "") -> Path:
    """The text validated against the integer profile, and written as TOSA's flatbuffer."""
    source = path.with_suffix(".mlir")
    source.write_text(text)
    target = f"{_TARGET} extensions={extensions}" if extensions else _TARGET
    steps = (target, *_STEPS, f"--tosa-flatbuffer-filename={path}")
    _do(["tosa-opt", str(source), *steps, "-o", os.devnull])
    return path


def _names(side: str, paths: Sequence[Path]) -> str:
    return ",".join(f"Tosa{side}_{place}" for place in range(len(paths)))


def _joined(paths: Sequence[Path]) -> str:
    return ",".join(map(str, paths))


def _do(command: list[str]) -> None:
    assert _PROGRAMS is not None
    done = subprocess.run(
        [_PROGRAMS / command[0], *command[1:]], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr[:2000]}{done.stdout[:2000]}"
