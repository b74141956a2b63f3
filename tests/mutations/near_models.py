"""Neighbours of the corpus's models: each with one op, operand order, axis or number of its own
exchanged, several in one program.

A rule that a fault made fire too often shows on what nearly has its form.  Nobody thinks of all
that has: the edits are drawn, and kept where the model still runs and says something else.
"""

from __future__ import annotations

import copy
import io
import random
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from typing import Any

import torch
from torch.fx import GraphModule, Node
from typing_extensions import override

from tests.mutations.torch_models import Joined, Spec

_aten = torch.ops.aten
#: Ops with the same arguments, each for the next one of its row.
_ROWS = (
    ("add.Tensor", "sub.Tensor"), ("mul.Tensor", "div.Tensor"), ("maximum", "minimum"),
    ("relu", "abs", "neg"), ("exp", "expm1"), ("sigmoid", "tanh"), ("sqrt", "rsqrt"),
    ("log", "log1p"), ("amax", "amin"), ("eq.Scalar", "ne.Scalar"), ("eq.Tensor", "ne.Tensor"),
    ("lt.Scalar", "le.Scalar"), ("lt.Tensor", "le.Tensor"), ("gt.Scalar", "ge.Scalar"),
    ("gt.Tensor", "ge.Tensor"), ("logical_and", "logical_or"), ("sum.dim_IntList", "mean.dim"),
    ("bitwise_and.Tensor", "bitwise_or.Tensor"), ("floor", "round", "trunc", "ceil"),
    ("silu", "hardswish", "elu"), ("softmax.int", "log_softmax.int"), ("sin", "cos"),
    ("argmax", "argmin"), ("erf", "erfc"),
)  # fmt: skip
#: Edits of a model, and neighbours in one program.
_OF_A_MODEL, _EACH = 5, 10
#: Ops that crash torch where other ops give them positions out of range.
_TRUSTING = "embedding_bag"
#: Longer models take too long for what one op of theirs says.
_LONGEST = 60


def models(every: Iterator[Spec], names: Sequence[str] = ()) -> Iterator[Spec]:
    """Programs of the neighbours of ``every`` model (``names``: only these programs)."""
    if names and not any(name.startswith("near_") for name in names):
        return
    made = [found for spec in every if not spec.extra for found in _neighbours(spec)]
    for place in range(0, len(made), _EACH):
        parts = made[place : place + _EACH]
        name = f"near_{place // _EACH}_{parts[0][0]}"
        if not names or name in names:
            yield Spec(
                name,
                " ".join(f"{of}:{edit}" for of, edit, _, _ in parts),
                Joined([module for *_, module, _ in parts], [len(inputs) for *_, inputs in parts]),
                tuple(value for *_, inputs in parts for value in inputs),
            )


def _neighbours(spec: Spec) -> Iterator[tuple[str, str, GraphModule, tuple]]:
    """Name of the model, what was exchanged, the module, inputs of its own."""
    if not all(isinstance(value, torch.Tensor) for value in spec.inputs):
        return
    whole = torch.export.export(spec.module, spec.inputs).module()
    if not isinstance(whole, GraphModule):
        return
    calls = _calls(whole)
    if len(calls) > _LONGEST or any(_TRUSTING in str(call.target) for call in calls):
        return
    if _makes_empty(whole, spec.inputs):  # torch hardly checks what fits them
        return
    chance = random.Random(zlib.crc32(spec.name.encode()))
    edits = [(place, edit) for place, node in enumerate(calls) for edit in _edits(node)]
    chance.shuffle(edits)
    want, count, seen = _run(whole, spec.inputs), 0, set()
    for place, (target, arguments) in edits:
        if count == _OF_A_MODEL:
            return
        if place in seen:
            continue
        other = copy.deepcopy(whole)
        node = _calls(other)[place]
        own = {n.name: n for n in other.graph.nodes}
        node.target = target
        node.args = torch.fx.map_arg(arguments, lambda n, own=own: own[n.name])
        other.recompile()
        got = _run(other, spec.inputs)
        if got is None or want is None or _alike(want, got):
            continue
        seen.add(place)
        count += 1
        yield (
            spec.name,
            f"{node.name} {target} {node.args}",
            other,
            tuple(value.clone() for value in spec.inputs),
        )


def _makes_empty(module: GraphModule, inputs: tuple) -> bool:
    """Whether a value of a module has no elements."""
    found = []

    class Looking(torch.fx.Interpreter):
        @override
        def run_node(self, n: Node) -> Any:
            made = super().run_node(n)
            found.append(isinstance(made, torch.Tensor) and made.numel() == 0)
            return made

    with torch.no_grad():
        Looking(module).run(*(value.clone() for value in inputs))
    return any(found)


def _calls(module: GraphModule) -> list[Node]:
    return [n for n in module.graph.nodes if n.op == "call_function"]


def _edits(node: Node) -> Iterator[tuple[Any, tuple]]:
    """Targets and arguments to exchange a call's for."""
    arguments = tuple(node.args)
    if not str(node.target).startswith("aten.") or any(map(_is_tensors, arguments)):
        return  # torch crashes where what it has from elsewhere does not fit
    known = str(node.target).removeprefix("aten.").removesuffix(".default")
    for row in _ROWS:
        if known in row:
            name = row[(row.index(known) + 1) % len(row)]
            packet, _, overload = name.partition(".")
            yield getattr(getattr(_aten, packet), overload or "default"), arguments
    if len(arguments) >= 2 and all(isinstance(a, Node) for a in arguments[:2]):
        yield node.target, (arguments[1], arguments[0], *arguments[2:])
    for place, value in enumerate(arguments):
        for other in _other(value):
            yield node.target, (*arguments[:place], other, *arguments[place + 1 :])


def _is_tensors(argument: Any) -> bool:
    return isinstance(argument, list | tuple) and any(isinstance(a, Node) for a in argument)


def _other(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (value * 1.5, -value)
    elif isinstance(value, list | tuple) and value and all(type(v) is int for v in value):
        last = [*value[:-1], value[-1] + 1]
        yield from (last, [value[0] - 1, *value[1:]], list(reversed(value)))


def _run(module: Any, inputs: tuple) -> list[torch.Tensor] | None:
    """What a module makes of its inputs; None where it refuses them, or makes something else."""
    try:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            made = module(*(value.clone() for value in inputs))
    except Exception:
        return None
    flat = torch.utils._pytree.tree_leaves(made)
    return flat if all(isinstance(v, torch.Tensor) for v in flat) else None


def _alike(want: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> bool:
    return len(want) == len(got) and all(
        a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        for a, b in zip(want, got, strict=True)
    )
