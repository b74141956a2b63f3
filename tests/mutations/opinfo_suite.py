"""Samples of torch's operator database, several in one program: the arguments and dtypes that
nobody here thought of.

Those that the conformance record has as passed, at most two of an op and dtype, and of these ops
one sample in f64, in a float of 16 bits and in a narrow integer, where they can be imported; ops
that torch executes as the same ATen calls on the same kinds of tensors count once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

from core_compiler.frontends.pytorch import import_exported
from core_compiler.support.errors import UserError
from tests.conformance import opinfo
from tests.conformance.outcomes import passed
from tests.mutations.torch_models import Joined, Spec

#: Samples in one program.
EACH = 12
#: What a saved program cannot be read with: sizes that are pieces of formulas.
_LEFT_OUT = frozenset({"item"})
#: Dtypes that the record does not have: of each line the ops take one in turn.
_FURTHER = (
    (torch.float64,),
    (torch.float16, torch.bfloat16),
    (torch.int8, torch.uint8, torch.int16, torch.int32),
)


def models(names: Sequence[str] = ()) -> Iterator[Spec]:
    """Every program (``names``: of these)."""
    if names and not any(name.startswith("opinfo_") for name in names):
        return
    for start, every in (("opinfo", _recorded()), ("opinfo_other", _further())):
        chosen = list(_different(every))
        for place in range(0, len(chosen), EACH):
            samples = chosen[place : place + EACH]
            name = f"{start}_{place // EACH}_{letters(samples[0][0])}"
            if not names or name in names:
                parts = [part for _, part, _ in samples]
                inputs = tuple(tensor for _, _, tensors in samples for tensor in tensors)
                joined = Joined(parts, [sum(part.holes) for part in parts])
                yield Spec(name, " ".join(own for own, _, _ in samples), joined, inputs)


#: A sample: name, program, tensors.
_Sample = tuple[str, opinfo.Program, list[torch.Tensor]]


def _recorded() -> Iterator[_Sample]:
    """Each sample that passes."""
    known = passed("opinfo")
    stems = {opinfo.stem(name) for name in known}
    for op, dtype, own in opinfo.ops(opinfo.DTYPES):
        if op.name in opinfo.OPEN_CONTENT | _LEFT_OUT or own not in stems:
            continue
        for number, sample in opinfo.evenly(opinfo.all_samples(op, dtype), opinfo.SAMPLES):
            if f"{own}-{number}" in known:
                yield _sample(f"{own}-{number}", op, sample)


def _further() -> Iterator[_Sample]:
    """Samples in dtypes that the record does not have, of ops that pass in those that it has."""
    known = {opinfo.stem(name).rpartition("-")[0] for name in passed("opinfo")}
    for dtypes in _FURTHER:
        ops = itertools.groupby(opinfo.ops(dtypes), key=lambda row: row[2].rpartition("-")[0])
        for place, (name, rows) in enumerate((name, list(rows)) for name, rows in ops):
            op, dtype, own = rows[place % len(rows)]
            if op.name in opinfo.OPEN_CONTENT | _LEFT_OUT or name not in known:
                continue
            samples = opinfo.all_samples(op, dtype)
            if isinstance(samples, str):
                continue
            number, sample = samples[len(samples) // 2]
            made = _sample(f"{own}-{number}", op, sample)
            with suppress(UserError):
                import_exported(opinfo.export(*made[1:]), name=name)
                yield made


def _sample(own: str, op: Any, sample: Any) -> _Sample:
    program, tensors = opinfo.parts(op, sample)
    return own, program, [v.detach().clone() for v in tensors]


def _different(samples: Iterable[_Sample]) -> Iterator[_Sample]:
    """Without those that come to calls that were there before."""
    seen = set()
    for own, program, tensors in samples:
        if (found := calls(program, tensors)) not in seen:
            seen.add(found)
            yield own, program, tensors


def calls(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> tuple:
    """What a program does, whatever sizes above one its values have."""
    return tuple(map(_call, opinfo.export(module, tensors).graph.nodes))


def _call(node: Any) -> tuple[str, ...]:
    made = node.meta.get("val")
    shape: tuple[str, ...] = ()
    if isinstance(made, torch.Tensor):
        sizes = (min(n, 2) if isinstance(n, int) else n for n in made.shape)  # or a symbol
        shape = (str(made.dtype), *map(str, sizes))
    return (
        node.op,
        str(node.target) if node.op == "call_function" else "",
        str(node.args),
        (str(node.kwargs)),
        *shape,
    )


def letters(name: str) -> str:
    """A sample's op and dtype as part of a file's name."""
    return "".join(c if c.isalnum() else "_" for c in name.rpartition("-")[0])
