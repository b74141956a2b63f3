"""Small torch programs and how to run an import by the reference."""

from __future__ import annotations

import torch

from core_compiler.debug.evaluate import Evaluator
from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.tensors import to_numpy


class Program(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def exported(function, *inputs, **options):
    return torch.export.export(Program(function), inputs, strict=False, **options)


def execute(imported, *inputs):
    """The import's results by the reference, as torch tensors."""
    arrays = [to_numpy(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    module = imported.module
    made = Evaluator(module.weights).block(module.main.body, arrays)
    return [torch.from_numpy(m.copy()) for m in made]


def agrees(function, *inputs, **options) -> None:
    """The import of ``function`` gives what torch gives."""
    wanted = function(*(x.clone() for x in inputs))
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    made = execute(import_exported(exported(function, *inputs, **options)), *inputs)
    assert len(made) == len(wanted)
    for ours, theirs in zip(made, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
