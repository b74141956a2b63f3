"""The first difference of two runs: the iteration, the op, the value and the element.

Receipts are compared from the roots down. Only the iteration in which the runs diverge is computed
again, from the last checkpoint before it. If a run cannot be repeated on this machine (its target
is missing, or the recipe of the run is unknown), only its receipts are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.numerics.reference.difference import first_element
from core_compiler.numerics.reference.digest import same_bits
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.training.audit.probes import NamedValue, Probe, meaning_of
from core_compiler.training.audit.receipts import Book, Receipt
from core_compiler.training.audit.replay import Run, first, mismatch


@dataclass(frozen=True)
class Difference:
    """The first difference of two runs.

    ``value`` is ``shard/number`` of the first differing value in program order. ``element`` is its
    first differing element, with the values of both runs and the number of representable numbers
    between them (``count`` 0: unknown). ``lasting`` is true if the state differs afterwards.
    ``missing`` says why a run cannot be repeated here, so that the op or the element is unknown
    ("": it can). ``passing`` names what the receipts of a run contain and a repeated run does not
    reproduce ("": everything is reproduced): a transient fault of that moment or machine, so that
    no element differs.
    """

    iteration: int
    lasting: bool
    op: str = ""
    value: str = ""
    element: tuple[int, ...] = ()
    numbers: tuple[float, float] = (0.0, 0.0)
    ulps: int = 0
    count: int = 0
    origin: str = ""
    history: tuple[str, ...] = ()
    kernels: tuple[str, str] = ("", "")
    missing: tuple[str, str] = ("", "")
    passing: tuple[str, str] = ("", "")

    def to_json(self) -> dict[str, Any]:
        held = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**held, "element": list(self.element)}


@dataclass(frozen=True)
class Divergence:
    """The point at which two runs diverge, as far as their receipts show.

    ``leaf`` is the first differing hash of that iteration: ``state NAME``, ``gradient of NAME``,
    ``value SHARD/NUMBER`` or ``loss``. ``until`` is the last iteration after which the state
    differs (0: none), among the iterations up to ``last`` for which both runs have receipts.
    """

    iteration: int
    leaf: str
    until: int
    last: int

    @property
    def lasting(self) -> bool:
        return self.until > 0


def part(a: Book, b: Book) -> Divergence | None:
    """Compare the receipts of two runs without computing anything.

    Return None if they agree in everything that both contain. Runs of two pipelines (numerics
    identities) are compared by state, gradients and loss, because their ops are numbered
    differently. Raise UserError if the runs train different things.
    """
    if a.identity != b.identity:
        a, b = a.without_ops(), b.without_ops()
    iteration = first_differing_iteration(a, b)
    if iteration is None:
        return None
    shared = sorted(a.receipts.keys() & b.receipts.keys())
    until = next(
        (
            i
            for i in reversed(shared)
            if i >= iteration and first(i, a.receipts[i].state, b.receipts[i].state) is not None
        ),
        0,
    )
    leaf = mismatch(a.receipts[iteration], b.receipts[iteration]) or ""
    return Divergence(iteration, leaf, until, shared[-1])


def diverge(a: Run, b: Run, say: Callable[[str], None] = lambda text: None) -> Difference | None:
    """Return the first difference of two runs of one step.

    Return None if the receipts that both runs have do not differ. Raise UserError if the runs
    compute different things.
    """
    if a.book.identity != b.book.identity:
        raise UserError(
            f"the runs compute different things (numerics identities {a.book.identity[:12]} and "
            f"{b.book.identity[:12]})",
            "diverge",
            "compare runs of the same model and configuration; for two pipelines use which_pass",
        )
    found = part(a.book, b.book)
    if found is None:
        return None
    iteration, lasting = found.iteration, found.lasting
    one, other = a.book.receipts[iteration], b.book.receipts[iteration]
    say(f"the runs diverge in iteration {iteration}; it is run again")
    key = first(iteration, one.ops, other.ops)
    folders = a.folder, b.folder
    if key is None:
        receipts = one, other
        repeated = [_repeat_receipt(run, iteration, folders) for run in (a, b)]
        x, y = ((r or kept).ops for r, kept in zip(repeated, receipts, strict=True))
        key = first(iteration, x, y)
        if key is None:
            missing = _unavailable_reasons(a, b) if not (x and y) else ("", "")
            return Difference(
                iteration,
                lasting,
                value=found.leaf,
                missing=missing,
                passing=_unreproduced(receipts, repeated),
            )
    named: NamedValue = a.book.names[int(key.split("/")[1])]
    values = [_repeat_value(run, iteration, key, folders) for run in (a, b)]
    available = [(run, value[0]) for run, value in zip((a, b), values, strict=True) if value]
    difference = Difference(
        iteration,
        lasting,
        named.op,
        key,
        origin=named.origin,
        history=history(*available[0]) if available else (),
        kernels=tuple(value[0].kernel if value else "" for value in values),  # type: ignore[arg-type]
        missing=_unavailable_reasons(a, b),
    )
    if len(available) < 2:
        return difference
    arrays = [value[1] for value in values if value]
    if same_bits(*arrays):
        repeated = [_repeat_receipt(run, iteration, folders) for run in (a, b)]
        return replace(difference, passing=_unreproduced((one, other), repeated))
    index, numbers, ulps, count = first_element(*arrays)
    return replace(difference, element=index, numbers=numbers, ulps=ulps, count=count)


def _repeat_receipt(run: Run, iteration: int, folders: tuple[Path, ...]) -> Receipt | None:
    """Return the receipt of a repeated iteration, or None if this machine cannot repeat it."""
    try:
        return run.receipt(iteration, folders)
    except UserError as error:
        _raise_unless_unavailable(run, error)
        return None


def _repeat_value(
    run: Run, iteration: int, key: str, folders: tuple[Path, ...]
) -> tuple[Probe, np.ndarray] | None:
    """Return a value of a repeated iteration, or None if this machine cannot repeat it."""
    try:
        return run.value(iteration, key, folders)
    except UserError as error:
        _raise_unless_unavailable(run, error)
        return None


def _raise_unless_unavailable(run: Run, error: UserError) -> None:
    """Raise the error unless it is a limit of this machine."""
    if error.exit_code != CANNOT_HERE:
        raise error
    run.unavailable = error


def _unavailable_reasons(a: Run, b: Run) -> tuple[str, str]:
    x, y = (run.unavailable.what if run.unavailable is not None else "" for run in (a, b))
    return x, y


def _unreproduced(kept: Iterable[Receipt], repeated: Iterable[Receipt | None]) -> tuple[str, str]:
    """Return the parts of two receipts that the repeated iterations do not reproduce."""
    x, y = ((r and mismatch(k, r)) or "" for k, r in zip(kept, repeated, strict=True))
    return x, y


def first_differing_iteration(a: Book, b: Book) -> int | None:
    """Return the first iteration whose receipts differ in what both contain.

    If both contain the same entries, bisect: each root covers all earlier receipts.
    """
    shared = sorted(a.receipts.keys() & b.receipts.keys())
    if a.leaves != b.leaves:
        raise UserError(
            f"the runs hash their receipts differently: {a.leaves} and {b.leaves}",
            "diverge",
            "train both with the same --leaves",
        )
    if not shared:
        raise UserError(
            "the runs have no iteration in common",
            "diverge",
            "train both with --receipts from the same iteration",
        )

    def has_same_entries(i: int) -> bool:
        one, other = a.receipts[i], b.receipts[i]
        return all(
            getattr(one, n).keys() == getattr(other, n).keys()
            for n in ("state", "gradients", "ops")
        )

    receipts = a.receipts, b.receipts
    names = [set(book[shared[0]].state) for book in receipts]
    if names[0] != names[1]:
        name = min(names[0] ^ names[1])
        raise UserError(
            f"the runs have different state: only one has {name}",
            "diverge",
            "compare runs of the same model and optimiser",
        )
    is_complete = (
        a.identity == b.identity
        and all(map(has_same_entries, shared))
        and all(
            book[shared[0]].before == "" and list(book) == list(range(shared[0], max(book) + 1))
            for book in receipts
        )
    )
    if not is_complete:
        return next((i for i in shared if mismatch(receipts[0][i], receipts[1][i])), None)
    low, high = 0, len(shared)
    while low < high:
        mid = (low + high) // 2
        if receipts[0][shared[mid]].root == receipts[1][shared[mid]].root:
            low = mid + 1
        else:
            high = mid
    return shared[low] if low < len(shared) else None


def history(run: Run, probe: Probe) -> tuple[str, ...]:
    """Return the effects of the passes on the op of a value, latest first."""
    ops = [op for op in meaning_of(run.step.compilation).main.body.ops for _ in op.results]
    origin = ops[probe.number].origin
    return () if origin is None else origin.rules()
