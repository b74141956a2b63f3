"""Torch's operator database, backward: gradients of every float sample against torch.autograd.

The samples are those of :mod:`.opinfo` in f32, of ops that torch can differentiate.  Each program
is imported and turned into its pullback (:func:`core_compiler.training.autodiff.pullback`); random
cotangents are the same for both sides.  Compared as the forward suite is.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from torch.utils import _pytree as pytree

from core_compiler.errors import UserError
from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.training.autodiff import pullback
from tests.conformance import opinfo
from tests.conformance.outcomes import Case, Wrong, installed

SUITE, LIBRARY = "opinfo_gradients", "torch"
DTYPES = (torch.float32,)
SAMPLES = 2

#: Ops that are no part of the suite, and why (at most ten).
LEFT_OUT: dict[str, str] = {}
#: Ops that give statistics beside their result, whose cotangents torch drops: they are 0 here.
STATISTICS = frozenset({"native_layer_norm", "_native_batch_norm_legit"})


def _is_eligible(op) -> bool:
    return opinfo.is_core(op) and op.supports_autograd


def stems() -> list[str]:
    return [own for op, _dtype, own in opinfo.ops(DTYPES) if _is_eligible(op)]


def cases(names: Collection[str] | None = None) -> Iterator[Case]:
    """A few samples of every op: all, or those called ``names``."""
    wanted = None if names is None else frozenset(names)
    chosen = stems() if wanted is None else sorted(set(map(opinfo.stem, wanted)))
    for case in _cases(frozenset(chosen), SAMPLES):
        if wanted is None or case.name in wanted:
            yield case


def cases_of(chosen: Collection[str]) -> Iterator[Case]:
    return _cases(frozenset(chosen), None)


def left_out(name: str) -> str:
    return LEFT_OUT.get(opinfo.stem(name).rpartition("-")[0], "")


def stem(name: str) -> str:
    """The op and dtype of a case: its samples are made together."""
    return opinfo.stem(name)


def _cases(chosen: Collection[str], limit: int | None) -> Iterator[Case]:
    yield from opinfo.made_cases(chosen, limit, DTYPES, _runner)


def _runner(op, sample):
    def run(execute) -> None:
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [v.detach().clone() for v in leaves if isinstance(v, torch.Tensor)]
        program = opinfo.Program(op.op, leaves, spec)
        given = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
        outs, cotangents, wanted = _by_torch(program, given, op.name in STATISTICS)
        imported = import_exported(opinfo.export(program, tensors), name=op.name)
        if len(imported.inputs) != len(tensors):
            raise UserError("torch merges inputs of this sample")
        if len(imported.outputs) != len(outs):
            raise Wrong(f"{len(imported.outputs)} results, {len(outs)} wanted")
        module = pullback(imported.module, op.name)
        arrays = [to_numpy(t) for t in (*tensors, *cotangents)]
        joint = replace(imported, module=module, facts={}, state=())
        made = execute(joint, arrays)
        if len(made) != len(wanted):
            raise Wrong(f"{len(made)} gradients, {len(wanted)} wanted")
        for ours, theirs in zip(made, wanted, strict=True):
            opinfo.compare(ours, theirs, False, opinfo.tolerance(op, theirs.dtype))

    return run


def _by_torch(program, given, first_only: bool):
    """The results, random cotangents of the float ones, and torch's gradients (zeros for what
    has no influence)."""
    torch.manual_seed(0)
    varied = [t for t in given if t.requires_grad]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outs = program(*(t.clone() for t in given))
            floats = [v for v in outs if v.is_floating_point()]
            if any(v.is_complex() or v.layout != torch.strided for v in outs):
                raise UserError("a complex or sparse result")
            cotangents = [torch.randn(v.shape, dtype=v.dtype) for v in floats]
            for other in cotangents[1:] if first_only else ():
                other.zero_()
            pairs = [(v, c) for v, c in zip(floats, cotangents, strict=True) if v.requires_grad]
            if not pairs or not varied:
                raise UserError("torch has no gradient of this sample")
            found = torch.autograd.grad(
                [v for v, _ in pairs], varied, [c for _, c in pairs], allow_unused=True
            )
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"torch does not differentiate it here ({type(error).__name__})") from None
    zeros = (torch.zeros_like(t) for t in varied)
    return outs, cotangents, [z if g is None else g for g, z in zip(found, zeros, strict=True)]


def about() -> dict[str, str]:
    return {
        "suite": "OpInfo op_db, backward",
        "library": LIBRARY,
        "cases": f"at most {SAMPLES} samples, taken evenly, of each differentiable core op in f32",
    }


def versions() -> dict[str, str]:
    return installed(LIBRARY)
