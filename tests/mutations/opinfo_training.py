"""Training steps made of samples of torch's operator database, several in one model: the gradients
of arguments that nobody here thought of.

The samples are those whose gradients the conformance record has as passed and that are finite.
What the database varies is a parameter, every other tensor a buffer, and the loss the sum of all
results times fixed weights; ops that torch executes as the same ATen calls count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tests.conformance import opinfo, opinfo_gradients
from tests.conformance.outcomes import passed
from tests.mutations import opinfo_suite

#: Samples in one model.
EACH = 8


class Task(NamedTuple):
    """A model with its data (arrays by name, the examples first); ``source``: what it is made
    of."""

    name: str
    source: str
    module: nn.Module
    data: dict[str, np.ndarray]


def models(names: Sequence[str] = ()) -> Iterator[Task]:
    """Every task (``names``: of these)."""
    if names and not any(name.startswith("opinfo_gradients_") for name in names):
        return
    every = list(_samples())
    data = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    for place in range(0, len(every), EACH):
        owns, parts = zip(*every[place : place + EACH], strict=True)
        name = f"opinfo_gradients_{place // EACH}_{opinfo_suite.letters(owns[0])}"
        if not names or name in names:
            yield Task(name, " ".join(owns), _Summed(parts), {"x": data, "t": data[:, :1].copy()})


def _samples() -> Iterator[tuple[str, _Sample]]:
    known, seen = passed("opinfo_gradients"), set()
    for op, own, samples in opinfo_gradients.made({opinfo.stem(name) for name in known}):
        for number, sample in samples:
            if f"{own}-{number}" not in known:
                continue
            part = _Sample(op, sample)
            if part.is_finite() and (calls := opinfo_suite.calls(part, ())) not in seen:
                seen.add(calls)
                yield f"{own}-{number}", part


class _Sample(nn.Module):
    """A sample that holds its tensors; its value is what it adds to the loss."""

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        self.program, tensors = opinfo.parts(op, sample)
        self.held: list[str] = []
        for number, tensor in enumerate(tensors):
            self._hold(f"value_{number}", tensor)
        made = self._results()
        self.places = [i for i, value in enumerate(made) if _is_differentiable(value)]
        torch.manual_seed(len(self.held))
        for i in self.places:
            self.register_buffer(f"weight_{i}", torch.rand_like(made[i].detach()) + 0.5)

    def _hold(self, name: str, value: torch.Tensor) -> None:
        own = value.detach().clone()
        if value.requires_grad:
            self.register_parameter(name, nn.Parameter(own))
        else:
            self.register_buffer(name, own)
        self.held.append(name)

    def _results(self) -> list[torch.Tensor]:
        # Copies: a sample may write to what it is given.
        return self.program(*(getattr(self, name).clone() for name in self.held))

    def forward(self) -> torch.Tensor:
        made = self._results()
        return torch.stack(
            [(getattr(self, f"weight_{i}") * made[i]).sum() for i in self.places]
        ).sum()

    def is_finite(self) -> bool:
        """The value and all gradients, as torch has them."""
        varied = list(self.parameters())
        if not varied or not self.places or not (value := self()).isfinite():
            return False
        gradients = torch.autograd.grad(value, varied, allow_unused=True)
        return all(g is not None and bool(g.isfinite().all()) for g in gradients)


def _is_differentiable(value: torch.Tensor) -> bool:
    return value.is_floating_point() and value.requires_grad


class _Summed(nn.Module):
    """The sum of the samples' values and of the data's means."""

    def __init__(self, parts: Sequence[_Sample]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.stack([part() for part in self.parts]).sum() + (x.mean() - t.mean())
