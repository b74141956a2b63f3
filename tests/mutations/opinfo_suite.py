"""Samples of torch's operator database, several in one program: the arguments and dtypes that
nobody here thought of.

Those that the conformance record has as passed, at most two of an op and dtype; ops that torch
executes as the same ATen calls on the same kinds of tensors count once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.conformance import opinfo
from tests.conformance.outcomes import passed
from tests.mutations.torch_models import Spec

#: Samples in one program.
EACH = 12
#: What a saved program cannot be read with: sizes that are pieces of formulas.
_LEFT_OUT = frozenset({"item"})


def models(names: Sequence[str] = ()) -> Iterator[Spec]:
    """Every program (``names``: of these)."""
    if names and not any(name.startswith("opinfo_") for name in names):
        return
    every = list(_different(_samples()))
    for place in range(0, len(every), EACH):
        samples = every[place : place + EACH]
        name = f"opinfo_{place // EACH}_{_letters(samples[0][0])}"
        if not names or name in names:
            parts = [part for _, part, _ in samples]
            inputs = tuple(tensor for _, _, tensors in samples for tensor in tensors)
            yield Spec(name, " ".join(own for own, _, _ in samples), _Joined(parts), inputs)


class _Joined(torch.nn.Module):
    """The programs side by side: each takes its part of the inputs."""

    def __init__(self, parts: Sequence[opinfo.Program]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        given = iter(inputs)
        return [made for part in self.parts
                for made in part(*itertools.islice(given, sum(part.holes)))]  # fmt: skip


def _samples() -> Iterator[tuple[str, opinfo.Program, list[torch.Tensor]]]:
    """Name, program and tensors of each sample that passes."""
    known = passed("opinfo")
    stems = {opinfo.stem(name) for name in known}
    for op, dtype, own in opinfo.ops(opinfo.DTYPES):
        if op.name in opinfo.OPEN_CONTENT | _LEFT_OUT or own not in stems:
            continue
        for number, sample in opinfo.evenly(opinfo.all_samples(op, dtype), opinfo.SAMPLES):
            if f"{own}-{number}" in known:
                leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
                tensors = [v.detach().clone() for v in leaves if isinstance(v, torch.Tensor)]
                yield f"{own}-{number}", opinfo.Program(op.op, leaves, spec), tensors


def _different(samples: Iterator[tuple]) -> Iterator[tuple]:
    """Without those that come to calls that were there before."""
    seen = set()
    for own, program, tensors in samples:
        calls = tuple(_call(n) for n in opinfo.export(program, tensors).graph.nodes)
        if calls not in seen:
            seen.add(calls)
            yield own, program, tensors


def _call(node: Any) -> tuple[str, ...]:
    """What a node of a program does, whatever sizes above one its values have."""
    made = node.meta.get("val")
    shape = (str(made.dtype), *(str(min(n, 2)) for n in made.shape)) if isinstance(
        made, torch.Tensor) else ()  # fmt: skip
    return node.op, str(node.target) if node.op == "call_function" else "", str(node.args), (
        str(node.kwargs)), *shape  # fmt: skip


def _letters(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name.rpartition("-")[0])
