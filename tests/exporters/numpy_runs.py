"""Running exported NumPy files in tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.exporters.numpy_source import write
from core_compiler.ir import Module
from tests.exporters.onnx_runs import named


def namespace(path: Path) -> dict[str, Any]:
    """What a file defines, as an import of it would."""
    made = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), made)
    return made


def computed(module: Module, folder: Path, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of the file that ``module`` is written to."""
    path = write(module, folder / "exported.py", **named(module))[0]
    return [np.asarray(a) for a in namespace(path)["main"](*arrays)]
