"""The first difference of two runs: which iteration, op, value and element.

Receipts are compared from the roots down; nothing is computed again but the one iteration in which
the runs part, from the last checkpoint before it.  Of a run that cannot be done again on this
machine (its target is not here, or nothing says how) its receipts are what is known.
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
from core_compiler.training.audit.probes import Named, Probe, meaning_of
from core_compiler.training.audit.receipts import Book, Receipt
from core_compiler.training.audit.replay import Run, first, mismatch


@dataclass(frozen=True)
class Difference:
    """Where two runs part.  ``value``: ``shard/number`` of the first value in program order that
    differs; ``element``: its first element that does, with what the runs have there and how many
    representable numbers lie between (``count`` 0: not known); ``lasting``: whether the state
    differs afterwards; ``missing``: why the one or the other run cannot be done again here, so that
    op or element are not known ("": it can); ``passing``: what the receipts of the one or the other
    say and does not come again when the run is done again here ("": all comes): a fault of that
    moment or machine, so that no element differs."""

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
class Parting:
    """Where two runs part, as far as their receipts say.  ``leaf``: the first hash that differs in
    that iteration: ``state NAME``, ``gradient of NAME``, ``value SHARD/NUMBER`` or ``loss``;
    ``until``: the last iteration after which the state differs (0: after none), of those to
    ``last`` that both have receipts of."""

    iteration: int
    leaf: str
    until: int
    last: int

    @property
    def lasting(self) -> bool:
        return self.until > 0


def part(a: Book, b: Book) -> Parting | None:
    """What the receipts of two runs say, without computing anything; None where they agree in all
    that both speak of.  Runs of two pipelines (numerics identities) are compared by state,
    gradients and loss: their ops have other numbers.  UserError where they train different
    things."""
    if a.identity != b.identity:
        a, b = a.without_ops(), b.without_ops()
    iteration = parted(a, b)
    if iteration is None:
        return None
    shared = sorted(a.receipts.keys() & b.receipts.keys())
    until = next((
        i for i in reversed(shared)
        if i >= iteration and first(i, a.receipts[i].state, b.receipts[i].state) is not None
    ), 0)  # fmt: skip
    leaf = mismatch(a.receipts[iteration], b.receipts[iteration]) or ""
    return Parting(iteration, leaf, until, shared[-1])


def diverge(
    a: Run, b: Run, say: Callable[[str], None] = lambda text: None
) -> Difference | None:  # fmt: skip
    """The first difference of two runs of one step; None where there is none in what both have
    receipts of.  UserError where they compute different things."""
    if a.book.identity != b.book.identity:
        raise UserError(
            f"the runs compute different things (numerics identities {a.book.identity[:12]} and "
            f"{b.book.identity[:12]})", "diverge",
            "compare runs of the same model and configuration; for two pipelines use which_pass",
        )  # fmt: skip
    found = part(a.book, b.book)
    if found is None:
        return None
    iteration, lasting = found.iteration, found.lasting
    one, other = a.book.receipts[iteration], b.book.receipts[iteration]
    say(f"the runs part in iteration {iteration}; it is done again")
    key = first(iteration, one.ops, other.ops)
    both = a.folder, b.folder
    if key is None:
        receipts = one, other
        again = [_again(run, iteration, both) for run in (a, b)]
        x, y = ((r or kept).ops for r, kept in zip(again, receipts, strict=True))
        key = first(iteration, x, y)
        if key is None:
            missing = _missing(a, b) if not (x and y) else ("", "")
            return Difference(iteration, lasting, value=found.leaf, missing=missing,
                              passing=_passing(receipts, again))  # fmt: skip
    named: Named = a.book.names[int(key.split("/")[1])]
    values = [_value(run, iteration, key, both) for run in (a, b)]
    known = [(run, value[0]) for run, value in zip((a, b), values, strict=True) if value]
    made = Difference(
        iteration, lasting, named.op, key, origin=named.origin,
        history=history(*known[0]) if known else (),
        kernels=tuple(value[0].kernel if value else "" for value in values),  # type: ignore[arg-type]
        missing=_missing(a, b),
    )  # fmt: skip
    if len(known) < 2:
        return made
    arrays = [value[1] for value in values if value]
    if same_bits(*arrays):
        again = [_again(run, iteration, both) for run in (a, b)]
        return replace(made, passing=_passing((one, other), again))
    index, numbers, apart, count = first_element(*arrays)
    return replace(made, element=index, numbers=numbers, ulps=apart, count=count)


def _again(run: Run, iteration: int, folders: tuple[Path, ...]) -> Receipt | None:
    """The receipt of an iteration done again; None where this machine cannot do that."""
    try:
        return run.receipt(iteration, folders)
    except UserError as error:
        _need_elsewhere(run, error)
        return None


def _value(
    run: Run, iteration: int, key: str, folders: tuple[Path, ...]
) -> tuple[Probe, np.ndarray] | None:
    """A value of an iteration done again; None where this machine cannot do that."""
    try:
        return run.value(iteration, key, folders)
    except UserError as error:
        _need_elsewhere(run, error)
        return None


def _need_elsewhere(run: Run, error: UserError) -> None:
    """Raises what is no limit of this machine."""
    if error.exit_code != CANNOT_HERE:
        raise error
    run.refused = error


def _missing(a: Run, b: Run) -> tuple[str, str]:
    x, y = (run.refused.what if run.refused is not None else "" for run in (a, b))
    return x, y


def _passing(kept: Iterable[Receipt], again: Iterable[Receipt | None]) -> tuple[str, str]:
    """What of two receipts is not in those of the iteration done again."""
    x, y = ((r and mismatch(k, r)) or "" for k, r in zip(kept, again, strict=True))
    return x, y


def parted(a: Book, b: Book) -> int | None:
    """The first iteration whose receipts differ in what both speak of, by bisection where they
    speak of the same things: each root covers all before it."""
    shared = sorted(a.receipts.keys() & b.receipts.keys())
    if a.leaves != b.leaves:
        raise UserError(f"the runs hash their receipts differently: {a.leaves} and {b.leaves}",
                        "diverge", "train both with the same --leaves")  # fmt: skip
    if not shared:
        raise UserError("the runs have no iteration in common", "diverge",
                        "train both with --receipts from the same iteration")  # fmt: skip

    def same_kind(i: int) -> bool:
        one, other = a.receipts[i], b.receipts[i]
        return all(getattr(one, n).keys() == getattr(other, n).keys()
                   for n in ("state", "gradients", "ops"))  # fmt: skip

    receipts = a.receipts, b.receipts
    held = [set(book[shared[0]].state) for book in receipts]
    if held[0] != held[1]:
        name = min(held[0] ^ held[1])
        raise UserError(f"the runs have different state: only one has {name}", "diverge",
                        "compare runs of the same model and optimiser")  # fmt: skip
    whole = (
        a.identity == b.identity
        and all(map(same_kind, shared))
        and all(
            book[shared[0]].before == "" and list(book) == list(range(shared[0], max(book) + 1))
            for book in receipts
        )
    )
    if not whole:
        return next((i for i in shared if mismatch(receipts[0][i], receipts[1][i])), None)
    low, high = 0, len(shared)
    while low < high:
        middle = (low + high) // 2
        if receipts[0][shared[middle]].root == receipts[1][shared[middle]].root:
            low = middle + 1
        else:
            high = middle
    return shared[low] if low < len(shared) else None


def history(run: Run, probe: Probe) -> tuple[str, ...]:
    """What passes did until the op of a value was there, the last first."""
    ops = [op for op in meaning_of(run.step.compilation).main.body.ops for _ in op.results]
    origin = ops[probe.number].origin
    return () if origin is None else origin.rules()
