"""Running exported programs in tests: PyTorch on this processor."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from core_compiler.exporters.pt2 import export
from core_compiler.exporters.pt2.dtypes import to_tensor
from core_compiler.ir import Module
from core_compiler.ops import evaluate_block
from core_compiler.support.arrays import as_numpy
from tests.exporters.onnx_runs import alike, named


def exported(module: Module, **options) -> Any:
    """The module as a program (guarded, where nothing else is said) that went through a file."""
    stream = io.BytesIO()
    torch.export.save(export(module, **named(module), **{"guards": True, **options}), stream)
    stream.seek(0)
    return torch.export.load(stream)


def in_torch(program: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program, which torch executes node by node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty sums, and of what torch changes next
        made = program.module()(*map(to_tensor, arrays))
    return [as_numpy(t) for t in (made if isinstance(made, tuple) else (made,))]


def agrees(module: Module, arrays: Sequence[np.ndarray], slack: float = 1.0, **options) -> None:
    """PyTorch computes from the export what our reference computes from the module."""
    with np.errstate(all="ignore"):
        wanted = evaluate_block(module.main.body, list(arrays), module.weights)
    alike(in_torch(exported(module, **options), arrays), wanted, slack)
