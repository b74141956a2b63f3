"""Torch's operator database (OpInfo, forward): every op's samples as one-op exported programs.

For each op and dtype at most ``SAMPLES`` of its sample inputs, taken evenly; tensors are the
program's inputs, all else is part of the program.  Where torch exports no program (a Python number
or a shape that depends on data) or its own two executions differ (random ops), the case says so.
Compared by ``torch.testing.assert_close`` with its defaults for the dtype, or with the tolerance
that the database declares for all of torch's common tests of an op.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import torch
from torch.utils import _pytree as pytree

from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.support.errors import UserError
from tests.conformance.outcomes import Case, NotASample, Wrong, installed

SUITE, LIBRARY = "opinfo", "torch"
DTYPES = (torch.float32, torch.int64, torch.bool)
SAMPLES = 2
#: Of these dtypes all samples of the core ops are taken where a whole suite is asked for.
CORE_DTYPES = (torch.float32, torch.int64)
#: Ops whose positions of equal elements torch leaves open, and ops whose content it leaves open.
OPEN_ORDER = frozenset({"sort", "argsort", "topk", "kthvalue", "msort"})
#: Ops of whose eigenvectors torch leaves the signs open.
OPEN_SIGNS = frozenset({"linalg.eigh"})
OPEN_CONTENT = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


def cases(names: Collection[str] | None = None) -> Iterator[Case]:
    """``name[/variant]-dtype-number`` for every op, dtype and chosen sample: all, or those called
    ``names`` (samples of other ops are not made)."""
    wanted = None if names is None else frozenset(names)
    stems = None if wanted is None else frozenset(map(stem, wanted))
    for case in _cases(stems, SAMPLES):
        if wanted is None or case.name in wanted:
            yield case


def stems() -> list[str]:
    """Op and dtype of everything that :func:`cases_of` has: the ops that torch tags as core ATen,
    in ``CORE_DTYPES``."""
    return [own for op, _dtype, own in ops(CORE_DTYPES) if is_core(op)]


def cases_of(chosen: Collection[str]) -> Iterator[Case]:
    """Every sample of these ops and dtypes."""
    return _cases(frozenset(chosen), None, CORE_DTYPES)


#: Ops that are no part of the suite, and why (at most ten).
LEFT_OUT: dict[str, str] = {"randn": "its numbers are those of torch's own generator"}


def left_out(name: str) -> str:
    """Why a case is not eligible; "" where it is."""
    return LEFT_OUT.get(stem(name).rpartition("-")[0], "")


def is_core(op) -> bool:
    packet = getattr(torch.ops.aten, op.aten_name or op.name, None)
    return packet is not None and has_core_overload(packet)


@functools.cache
def has_core_overload(packet) -> bool:
    return any(torch.Tag.core in getattr(packet, each).tags for each in packet.overloads())


def stem(name: str) -> str:
    """The op and dtype of a case: its samples are made together."""
    return name.rpartition("-")[0]


def ops(dtypes) -> Iterator[tuple]:
    """(op, dtype, their name) of the database."""
    # Takes seconds: only where the cases are asked for, not where tests are collected.
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        base = op.name + (f"/{op.variant_test_name}" if op.variant_test_name else "")
        for dtype in dtypes:
            if dtype in op.dtypes:
                yield op, dtype, f"{base}-{str(dtype).removeprefix('torch.')}"


def _cases(stems: Collection[str] | None, limit: int | None, dtypes=DTYPES) -> Iterator[Case]:
    return made_cases(stems, limit, dtypes, _runner)


def made_cases(
    stems: Collection[str] | None, limit: int | None, dtypes, runner: Callable
) -> Iterator[Case]:
    """A case for every op, dtype and chosen sample (all where ``limit`` is None), executed by
    ``runner(op, sample)``."""
    logging.disable(logging.WARNING)
    for op, dtype, own in ops(dtypes):
        if stems is not None and own not in stems:
            continue
        samples = all_samples(op, dtype)
        if isinstance(samples, str):
            yield Case(f"{own}-0", _refused(samples))
            continue
        for number, sample in evenly(samples, limit):
            yield Case(f"{own}-{number}", runner(op, sample))


def all_samples(op, dtype, requires_grad: bool = False):
    """The samples with their numbers, or why there are none."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            every = list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    except Exception as error:
        return f"the suite makes no samples here ({type(error).__name__})"
    return list(enumerate(every)) or "the suite has no samples"


def evenly(samples: Sequence, limit: int | None) -> Sequence:
    """At most ``limit`` of them; all where it is None."""
    step = 1 if limit is None else max(1, -(-len(samples) // limit))
    return samples[::step]


def _refused(reason: str):
    def run(execute) -> None:
        raise UserError(reason)

    return run


class Program(torch.nn.Module):
    """``op`` on a sample whose tensors are the arguments."""

    def __init__(self, op, leaves, spec):
        super().__init__()
        self.op, self.spec = op, spec
        self.holes = [isinstance(v, torch.Tensor) for v in leaves]
        self.leaves = [None if hole else v for hole, v in zip(self.holes, leaves, strict=True)]

    def forward(self, *tensors):
        given = iter(tensors)
        places = self.holes
        leaves = [next(given) if hole else v for hole, v in zip(places, self.leaves, strict=True)]
        sample, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        made = self.op(sample, *args, **kwargs)
        return [v for v in pytree.tree_leaves(made) if isinstance(v, torch.Tensor)]


def parts(op, sample) -> tuple[Program, list[torch.Tensor]]:
    """A sample as a program, and the tensors that it takes."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    return Program(op.op, leaves, spec), [v for v in leaves if isinstance(v, torch.Tensor)]


def _runner(op, sample):
    def run(execute) -> None:
        program, held = parts(op, sample)
        tensors = [v.detach().clone() for v in held]
        wanted, after = _eager(program, tensors, op.name in OPEN_CONTENT)
        exported = export(program, tensors)
        imported = import_exported(exported, name=op.name)
        if len(imported.inputs) != len(tensors):
            raise UserError("torch merges inputs of this sample")
        for row in imported.facts.get("stood_in") or ():  # its numbers are torch's decomposition's
            raise Wrong(f"the translation of {row['op']}: {row['reason']}")
        made = imported.trimmed(execute(imported, [to_numpy(t) for t in tensors]))
        wanted = [*wanted, *(after[i] for i in imported.facts["written"])]  # as main hands them on
        if len(made) != len(wanted):
            raise Wrong(f"{len(made)} results, {len(wanted)} wanted")
        for ours, theirs in zip(made, wanted, strict=True):
            if op.name in OPEN_ORDER and theirs.dtype == torch.int64:
                ours = _settled(to_numpy(tensors[0]), ours, to_numpy(theirs))
            if op.name in OPEN_SIGNS and theirs.ndim > 1:
                opposite = (ours * to_numpy(theirs)).sum(-2, keepdims=True) < 0
                ours = np.where(opposite, -ours, ours)
            try:
                compare(ours, theirs, op.name in OPEN_CONTENT, tolerance(op, theirs.dtype))
            except Wrong:
                if (drawn := _drawn(exported)) is None:
                    raise
                compare(ours, theirs, True, {})  # shape and dtype are the suite's all the same
                raise NotASample(f"random: {drawn} draws numbers of torch's generator") from None

    return run


def _drawn(exported) -> str | None:
    """An op of a program that draws numbers; the database gives some of them a seed, so that two
    executions are alike."""
    called = (n.target for n in exported.graph.nodes if n.op == "call_function")
    tag = torch.Tag.nondeterministic_seeded
    return next((str(op) for op in called if tag in getattr(op, "tags", ())), None)


def tolerance(op, dtype) -> dict[str, float]:
    """The op's own tolerance on a CPU, where it has one; as torch's tests do, no less than the
    defaults."""
    from torch.testing._comparison import default_tolerances
    from torch.testing._internal.common_device_type import toleranceOverride

    for info in op.decorators:
        if (
            getattr(info, "cls_name", "") != "TestCommon"
            or info.test_name is not None
            or (info.device_type not in (None, "cpu"))
        ):
            continue
        for own in info.decorators:
            if isinstance(own, toleranceOverride) and dtype in own.d:
                rtol, atol = default_tolerances(dtype)
                return {"rtol": max(rtol, own.d[dtype].rtol), "atol": max(atol, own.d[dtype].atol)}
    return {}


def _eager(program, tensors, is_open: bool):
    """Torch's own results and what it leaves of its inputs; UserError where two executions differ
    (unless their content is open)."""
    torch.manual_seed(0)
    given = [t.clone() for t in tensors]
    try:
        first, second = program(*given), program(*(t.clone() for t in tensors))
    except Exception as error:
        raise UserError(f"torch does not execute it here ({type(error).__name__})") from None
    for a, b in zip(first, second, strict=True):
        if a.is_complex() or a.layout != torch.strided:
            raise UserError("a complex or sparse result")
        if is_open or torch.equal(a, b):
            continue
        if not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
            raise UserError("random or undetermined: two executions of torch differ")
    return first, given


def export(program, tensors):
    quiet = contextlib.redirect_stderr(None), contextlib.redirect_stdout(None)
    with warnings.catch_warnings(), quiet[0], quiet[1], torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(program, tuple(tensors), strict=False)
        except Exception as error:
            raise UserError(f"torch exports no program ({type(error).__name__})") from None


def _settled(x, ours, theirs):
    """Torch's positions in place of ours where, along some axis, both name equal elements."""
    for axis in range(x.ndim):
        if ours.shape != theirs.shape:
            break
        a, b = (np.expand_dims(v, axis) if v.ndim < x.ndim else v for v in (ours, theirs))
        if any(v.max(initial=0) >= x.shape[axis] for v in (a, b)):
            continue
        try:
            named = [np.take_along_axis(x, v, axis) for v in (a, b)]
        except (ValueError, IndexError):
            continue
        if np.array_equal(*named, equal_nan=x.dtype.kind == "f"):
            return theirs
    return ours


def compare(ours, theirs, is_open: bool, tolerance: dict[str, float]) -> None:
    wanted = to_numpy(theirs)
    if ours.shape != wanted.shape or ours.dtype != wanted.dtype:
        raise Wrong(f"{ours.dtype}{ours.shape}, wanted {wanted.dtype}{wanted.shape}")
    if is_open:
        return
    if wanted.dtype.kind not in "fiub":  # torch takes no arrays of ml_dtypes
        ours, wanted = ours.astype("float32"), wanted.astype("float32")
        theirs = torch.from_numpy(wanted)
    try:
        torch.testing.assert_close(
            torch.from_numpy(np.array(ours)), theirs.contiguous(), equal_nan=True, **tolerance
        )
    except AssertionError as error:
        lines = [x for x in str(error).splitlines() if "difference" in x or "Mismatched" in x]
        raise Wrong("; ".join(lines) or "values differ") from None


def about() -> dict[str, str]:
    return {
        "suite": "OpInfo op_db, forward",
        "library": LIBRARY,
        "cases": f"at most {SAMPLES} samples, taken evenly, of each op in "
        f"{', '.join(str(d).removeprefix('torch.') for d in DTYPES)}",
    }


def versions() -> dict[str, str]:
    return installed(LIBRARY)
