"""Torch's operator database, backward: gradients of every float sample against torch.autograd.

Which samples: those in f32 of ops that torch can differentiate, where the op is called like an ATen
op that torch tags as core, or the sample is such ops and views alone once torch's own composites
and core ATen decompositions are taken apart (``nn.functional.conv2d`` is ``convolution``,
``softmax`` is ``_softmax``); nothing is chosen by hand.  What is random, and what gives complex or
sparse results, does not count; neither does a sample that torch itself does not execute or
differentiate.

Each program is imported and turned into its pullback
(:func:`core_compiler.training.graph.autodiff.pullback`); random cotangents are the same for both
sides. Varied are all float inputs; where torch allows no gradient of some (running statistics),
those that the database varies.  Compared as the forward suite is.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.support.errors import UserError
from core_compiler.training.graph.autodiff import pullback
from tests.conformance import opinfo
from tests.conformance.outcomes import Case, NotASample, Wrong, installed

SUITE, LIBRARY = "opinfo_gradients", "torch"
DTYPES = (torch.float32,)
SAMPLES = 2

#: Ops that are no part of the suite, and why (at most ten).
LEFT_OUT: dict[str, str] = {}
#: Ops that give statistics beside their result, whose cotangents torch drops: they are 0 here.
STATISTICS = frozenset({"native_layer_norm", "native_batch_norm", "_native_batch_norm_legit"})


def stems() -> list[str]:
    """Every op that torch can differentiate: which of its samples count shows when they are
    made."""
    return [own for op, _dtype, own in opinfo.ops(DTYPES) if op.supports_autograd]


def cases(names: Collection[str] | None = None) -> Iterator[Case]:
    """A few samples of every op: all, or those called ``names`` (without asking again whether they
    count, which takes seconds)."""
    if names is None:
        yield from _cases(stems(), SAMPLES)
        return
    for op, own, samples in made(set(map(stem, names))):
        for number, sample in samples:
            if f"{own}-{number}" in names:
                yield Case(f"{own}-{number}", _runner(op, sample))


def cases_of(chosen: Collection[str]) -> Iterator[Case]:
    return _cases(chosen, None)


def left_out(name: str) -> str:
    return LEFT_OUT.get(opinfo.stem(name).rpartition("-")[0], "")


def stem(name: str) -> str:
    """The op and dtype of a case: its samples are made together."""
    return opinfo.stem(name)


def _cases(chosen: Collection[str], limit: int | None) -> Iterator[Case]:
    for op, own, samples in made(chosen):
        counting = [(n, s) for n, s in samples if opinfo.is_core(op) or is_of_core_ops(op, s)]
        for number, sample in opinfo.evenly(counting, limit):
            yield Case(f"{own}-{number}", _runner(op, sample))


def made(chosen: Collection[str]) -> Iterator[tuple]:
    """(op, its name, its samples with their numbers) of each of ``chosen``."""
    logging.disable(logging.WARNING)
    for op, dtype, own in opinfo.ops(DTYPES):
        samples = opinfo.all_samples(op, dtype, requires_grad=True) if own in chosen else ""
        if not isinstance(samples, str):
            yield op, own, samples


# -- which samples count ---------------------------------------------------------------------------


class _Executed(TorchDispatchMode):
    """Keeps which ops torch executes; composites of several ops arrive here taken apart, and those
    that are not core by a decomposition of torch's."""

    def __init__(self):
        super().__init__()
        self.ops: set[torch._ops.OpOverload] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made_of = None if _is_core(func) else _decompositions().get(func)
        if made_of is not None:
            with self:
                return made_of(*args, **(kwargs or {}))
        self.ops.add(func)
        return func(*args, **(kwargs or {}))


@functools.cache
def _decompositions():
    return dict(torch._decomp.core_aten_decompositions().items())


def _is_core(func) -> bool:
    return opinfo.has_core_overload(func.overloadpacket)


def is_of_core_ops(op, sample) -> bool:
    """Whether a sample is core ops and views alone, at least one core op and none that is random,
    and gives real dense tensors."""
    program, tensors, _marks = _parts(op, sample)
    try:
        with warnings.catch_warnings(), torch.no_grad(), _Executed() as executed:
            warnings.simplefilter("ignore")
            outs = program(*tensors)
    except Exception:
        return False
    random = any(torch.Tag.nondeterministic_seeded in f.tags for f in executed.ops)
    only_core = all(f.is_view or _is_core(f) for f in executed.ops)
    some_core = any(map(_is_core, executed.ops))
    return some_core and only_core and not random and not any(map(_is_odd, outs))


def _is_odd(tensor) -> bool:
    return tensor.is_complex() or tensor.layout != torch.strided


def _parts(op, sample):
    """A sample as a program, its tensors, and which of them the database varies."""
    program, tensors = opinfo.parts(op, sample)
    return program, [t.detach().clone() for t in tensors], [t.requires_grad for t in tensors]


# -- a sample --------------------------------------------------------------------------------------


def _runner(op, sample):
    def run(execute) -> None:
        program, tensors, marks = _parts(op, sample)
        first_only = op.name in STATISTICS
        varied, outs, cotangents, wanted = _by_torch(program, tensors, marks, first_only)
        exported = opinfo.export(_Keeping(program, varied), tensors)
        imported = import_exported(exported, name=op.name)
        if len(imported.inputs) != len(tensors):
            raise UserError("torch merges inputs of this sample")
        sizes = imported.facts.get("run_time_sizes") or {}
        own = imported.module.main.outputs[: len(outs)]
        if len(imported.outputs) != len(outs) + sum(map(len, sizes.values())):
            raise Wrong(f"{len(imported.outputs)} results, {len(outs)} wanted")
        module = pullback(imported.module, op.name)
        shapes = [v.type.shape for v in own if v.type.dtype.is_float]
        given = [_filled(c, shape) for c, shape in zip(cotangents, shapes, strict=True)]
        joint = replace(imported, module=module, facts={}, state=())
        made = execute(joint, [to_numpy(t) for t in (*tensors, *given)])
        if len(made) != len(wanted):
            raise Wrong(f"{len(made)} gradients, {len(wanted)} wanted")
        for place, (ours, theirs) in enumerate(zip(made, wanted, strict=True)):
            if theirs is None:
                continue
            try:
                opinfo.compare(ours, theirs, False, opinfo.tolerance(op, theirs.dtype))
            except Wrong as wrong:
                exact = _in_f64(program, tensors, varied, cotangents)
                raise Wrong(_beside(exact, place, ours, theirs) + str(wrong)) from None

    return run


class _Keeping(torch.nn.Module):
    """A program that is given copies of what torch allows no gradient of: running statistics, into
    which it writes (a model that changes what it is given is not imported)."""

    def __init__(self, program, varied: Sequence[bool]):
        super().__init__()
        self.program, self.varied = program, varied

    def forward(self, *tensors):
        given = zip(tensors, self.varied, strict=True)
        copied = (v if varied or not v.is_floating_point() else v.clone() for v, varied in given)
        return self.program(*copied)


def _filled(cotangent, shape):
    """A cotangent of a result whose size depends on data, with zeros up to its largest size."""
    if tuple(cotangent.shape) == tuple(shape):
        return cotangent
    made = torch.zeros(tuple(shape), dtype=cotangent.dtype)
    made[tuple(map(slice, cotangent.shape))] = cotangent
    return made


def _by_torch(program, tensors, marks: Sequence[bool], first_only: bool):
    """Which inputs are varied, the results, random cotangents of the float ones (only of the first
    where ``first_only``), and torch's gradient of each float input: zeros for what has no
    influence, None for what is not varied."""
    floats = [t.is_floating_point() for t in tensors]

    def cotangents_of(results):
        torch.manual_seed(0)
        made = [torch.randn(v.shape, dtype=v.dtype) for v in results]
        return [c.zero_() if first_only and i else c for i, c in enumerate(made)]

    try:
        return floats, *_differentiated(program, tensors, floats, cotangents_of)
    except NotASample:
        if marks == floats or not any(marks):
            raise
        return marks, *_differentiated(program, tensors, marks, cotangents_of)


def _differentiated(program, tensors, varied: Sequence[bool], cotangents_of):
    given = [t.clone().requires_grad_(v) for t, v in zip(tensors, varied, strict=True)]
    ways = [t for t in given if t.requires_grad]
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outs = program(*(t.clone() for t in given))
            if any(map(_is_odd, outs)):
                raise NotASample("a complex or sparse result")
            floats = [v for v in outs if v.is_floating_point()]
            cotangents = cotangents_of(floats)
            pairs = [(v, c) for v, c in zip(floats, cotangents, strict=True) if v.requires_grad]
            if not pairs or not ways:
                raise NotASample("torch has no gradient of this sample")
            found = torch.autograd.grad(
                [v for v, _ in pairs], ways, [c for _, c in pairs], allow_unused=True
            )
    except NotASample:
        raise
    except Exception as error:
        raise NotASample(f"torch does not differentiate it ({type(error).__name__})") from None
    slopes = {
        id(t): torch.zeros_like(t) if g is None or g._is_zerotensor() else g
        for t, g in zip(ways, found, strict=True)
    }
    return outs, cotangents, [slopes.get(id(t)) for t in given if t.is_floating_point()]


def _in_f64(program, tensors, varied: Sequence[bool], cotangents):
    """Torch's gradients in f64, None where it has none."""
    wide = [t.double() if t.is_floating_point() else t for t in tensors]
    try:
        return _differentiated(program, wide, varied, lambda _: [c.double() for c in cotangents])[2]
    except NotASample:
        return None


def _beside(exact, place: int, ours, theirs) -> str:
    """How far ours and torch's are from those in f64: who of the two is off, and by what."""
    if exact is None or exact[place].dtype != torch.float64:
        return ""
    off = [
        float((torch.as_tensor(np.array(v)).double() - exact[place]).abs().max())
        for v in (ours, theirs)
    ]
    return "off from f64 by {:.2g}, torch by {:.2g}; ".format(*off)


def about() -> dict[str, str]:
    return {
        "suite": "OpInfo op_db, backward",
        "library": LIBRARY,
        "cases": f"at most {SAMPLES} samples, taken evenly, of each differentiable op in f32 that "
        "is, or decomposes to, core ATen ops",
    }


def versions() -> dict[str, str]:
    return installed(LIBRARY)
