"""Extremes and orders with NaN of either sign bit: NaN is one value.

x86's own operations give NaN with the sign bit set, constants without.  After numpy/numpy#15127,
pytorch/pytorch#46544, microsoft/onnxruntime reports of ArgMax.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from core_compiler.driver import compilation
from core_compiler.frontends.pytorch import import_exported
from tests.frontends.programs import exported
from tests.trials.everywhere import run_numpy, same

PLUS, MINUS = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
INF = np.float32(np.inf)
ROWS = np.array(
    [
        [1, MINUS, PLUS, 3],
        [1, PLUS, MINUS, 3],
        [MINUS, PLUS, 1, PLUS],
        [-INF, MINUS, 1, MINUS],
        [INF, 2, -INF, 2],
        [MINUS] * 4,
    ],
    np.float32,
)

PROGRAMS = {
    "argmax": lambda x: (x.argmax(1), x.argmax(), x.argmax(0)),
    "argmin": lambda x: (x.argmin(1), x.argmin(), x.argmin(0)),
    "max with indices": lambda x: tuple(x.max(1)),
    "min with indices": lambda x: tuple(x.min(1)),
    "amax, amin": lambda x: (x.amax(1), x.amin(1), x.max(), x.min()),
    "sort": lambda x: tuple(torch.sort(x, stable=True, dim=1)),
    "descending": lambda x: tuple(torch.sort(x, stable=True, dim=1, descending=True)),
    "values of topk": lambda x: (x.topk(3, 1).values, x.topk(3, 1, largest=False).values),
    "maximum": lambda x: (torch.maximum(x, x.flip(1)), torch.minimum(x, x.flip(1))),
    "max_pool": lambda x: torch.nn.functional.max_pool1d(x[None], 2),
    "log of negatives": lambda x: (torch.log(x - 2).argmax(1), torch.sqrt(x - 2).argmin(1)),
}


def _exported(function, x: torch.Tensor, folder: Path) -> tuple[np.ndarray, ...]:
    """The results of the NumPy file of a function."""
    made = compilation.start(import_exported(exported(function, x)).module)
    made.stages[0].export(folder / "made.py")
    return run_numpy(folder / "made.py", [x.numpy()])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_numpy_files_agree_with_torch(tmp_path, name, dtype):
    x = torch.from_numpy(ROWS).to(dtype)
    assert torch.signbit(x[-1]).all()  # the conversion kept the bit
    wanted = PROGRAMS[name](x)
    same(_exported(PROGRAMS[name], x, tmp_path), wanted if isinstance(wanted, tuple) else [wanted])


def test_running_extremes_agree_with_jax(tmp_path):
    import jax

    import core_compiler as cc

    def running(x):
        return jax.lax.cummax(x, axis=1), jax.lax.cummin(x, axis=1, reverse=True)

    compiled = cc.compile(running, (ROWS,))
    compiled.stages[0].export(tmp_path / "running.py")
    same(run_numpy(tmp_path / "running.py", [ROWS]), running(ROWS))
