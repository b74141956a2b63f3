"""Receipts: reproducible hashes of the results of every iteration.

A receipt contains the loss, a hash of every array of the state after the iteration, of every
gradient as the optimiser received it and, in selected iterations, of every value of the step that
is in memory. Hashes are leaves of a Merkle tree (Merkle, 1987) whose nodes are SHA-256. The root of
an iteration also covers the previous receipt, so that two runs with equal roots agree in
everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.numerics.contract import need_current
from core_compiler.numerics.reference.digest import digest, leaf
from core_compiler.runtime.team import default_threads
from core_compiler.support.errors import UserError
from core_compiler.training.audit.probes import NamedValue, Probes, Watch
from core_compiler.training.config import LEAVES, RECEIPTS
from core_compiler.training.run import files

FILE = "receipts.jsonl"


@dataclass(frozen=True)
class Receipt:
    """The receipt of an iteration: leaves by name.

    ``ops`` has the leaves of the values that are in memory by ``shard/number``; it is empty unless
    requested.
    """

    iteration: int
    loss: float
    state: dict[str, str]
    gradients: dict[str, str] = field(default_factory=dict)
    ops: dict[str, str] = field(default_factory=dict)
    before: str = ""

    @property
    def root(self) -> str:
        """Return the SHA-256 of the whole receipt and of the previous root."""
        parts = [
            tree(self.iteration, leaves)[-1][0] for leaves in (self.state, self.gradients, self.ops)
        ]
        text = "\n".join([str(self.iteration), float(self.loss).hex(), *parts, self.before])
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "loss": float(self.loss).hex(), "root": self.root})


def tree(iteration: int, leaves: Mapping[str, str]) -> list[list[str]]:
    """Return the levels of a Merkle tree over named leaves, in order, with the root last.

    A node without a partner moves up unchanged.
    """
    level = [_node(iteration, name, value) for name, value in leaves.items()] or [_node(iteration)]
    levels = [level]
    while len(level) > 1:
        level = [
            _node(*level[i : i + 2]) if i + 1 < len(level) else level[i]
            for i in range(0, len(level), 2)
        ]
        levels.append(level)
    return levels


def first_difference(iteration: int, a: Mapping[str, str], b: Mapping[str, str]) -> str | None:
    """Return the first name, in order, whose leaves differ, or None if all are equal.

    The trees are compared from the roots down. Both have the same names.
    """
    one, other = tree(iteration, a), tree(iteration, b)
    if one[-1] == other[-1]:
        return None
    index = 0
    for level, (left, right) in enumerate(zip(one[-2::-1], other[-2::-1], strict=True)):
        index = 2 * index
        if left[index] == right[index]:
            index += 1
        assert left[index] != right[index], level
    return list(a)[index]


def _node(*parts: Any) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _fast_hash(array: np.ndarray) -> str:
    return f"{leaf(array):016x}"


def _sha256(array: np.ndarray) -> str:
    return digest([array])


_LEAVES: Mapping[str, Callable[[np.ndarray], str]] = dict(
    zip(LEAVES, (_fast_hash, _sha256), strict=True)
)


def leaf_hash(name: str) -> Callable[[np.ndarray], str]:
    """Return the hash function of a name in ``LEAVES``; raise UserError for any other name."""
    if name not in _LEAVES:
        raise UserError(f"unknown hash {name!r}", "leaves", f"choose {', '.join(LEAVES)}")
    return _LEAVES[name]


def need_gradients(probes: Probes) -> None:
    """Raise UserError if receipts cannot contain the gradient of every parameter."""
    if probes.unseen:
        raise UserError(
            f"the gradients of {len(probes.unseen)} parameters are not kept in memory, such as "
            f"that of {probes.unseen[0]}",
            "receipts",
            "compile the step with Training(keep_gradients=True), or use receipts of state",
        )


class Step(Protocol):
    """The source of a receipt: arrays by name, as they are in memory."""

    def named_state(self) -> dict[str, np.ndarray]: ...
    def named_gradients(self) -> dict[str, np.ndarray]: ...


class Recorder:
    """Record the receipts of a running step.

    ``level`` is one of ``RECEIPTS``. All values are hashed in every ``ops_every``-th iteration (0:
    never). If several processes run the shards of one step, the process with ``is_leader`` collects
    the receipts; the others hash only the values that differ between shards and pass their hashes
    on (:meth:`add`).
    """

    def __init__(
        self,
        probes: Probes,
        level: str = "state",
        ops_every: int = 0,
        is_leader: bool = True,
        leaves: str = "fast",
    ):
        if level not in RECEIPTS:
            raise UserError(f"unknown level {level!r}", "receipts", f"choose {', '.join(RECEIPTS)}")
        if ops_every < 0:
            raise UserError(
                f"expected ops_every to be 0 or more, got {ops_every}",
                "receipts",
                "pass 1 or more, or 0 for none",
            )
        self.level, self.ops_every = level if is_leader else "off", ops_every
        self._is_leader = is_leader
        self.gradients: dict[str, str] = {}
        self.ops: dict[tuple[int, int], str] = {}
        self.before = ""
        self._threads = default_threads()
        # The calling thread is the remaining one.
        self._pool = ThreadPoolExecutor(max(1, self._threads - 1))
        self._hash = leaf_hash(leaves)
        self._observe(probes)

    def _observe(self, probes: Probes) -> None:
        """Observe the values of a program: batches of other sizes have others."""
        self._observed = probes
        self.probes = [p for p in probes.probes if self._is_leader or p.own]
        self._names = {n: name for name, n in probes.gradients.items()}
        # Values that the step returns are hashed with the state, by all threads at once.
        self._gradient_probes = [
            p for p in self.probes if self._names.get(p.number, "") not in {"", *probes.results}
        ]

    def watch(self, iteration: int, probes: Probes | None = None) -> Watch | None:
        """Return the watch of an iteration (counted from 1).

        ``probes`` are those of its program, if it is not that of the iteration before.
        """
        if probes is not None and probes is not self._observed:
            self._observe(probes)
        self.gradients, self.ops = {}, {}
        if self.hashes_all_values(iteration):
            return Watch(self.probes, self._record)
        return Watch(self._gradient_probes, self._record) if self.level == "gradients" else None

    def hashes_all_values(self, iteration: int) -> bool:
        """Return whether all values of an iteration are hashed."""
        return self.ops_every > 0 and iteration % self.ops_every == 0

    def _record(self, shard: int, probe: Any, array: np.ndarray) -> None:
        found = self._hash(array)
        if probe.number in self._names:
            self.gradients[self._names[probe.number]] = found
        self.ops[probe.number, shard if probe.own else 0] = found

    def add(self, recorded: Iterable[Mapping[tuple[int, int], str]]) -> None:
        """Add the hashes that the other processes recorded (:attr:`ops`)."""
        for ops in recorded:
            self.ops |= ops

    def receipt(self, iteration: int, loss: float, step: Step) -> Receipt:
        """Return the receipt of the iteration that ``step`` has just finished."""
        state, named = step.named_state(), step.named_gradients()
        has_gradients = self.level == "gradients"
        unrecorded = (
            {n: a for n, a in named.items() if n not in self.gradients} if has_gradients else {}
        )
        found = self._hash_all([*state.values(), *unrecorded.values()])
        leaves = dict(zip(state, found, strict=False))
        self.gradients |= zip(unrecorded, found[len(state) :], strict=True)
        gradients = dict(sorted(self.gradients.items())) if has_gradients else {}
        ops = {f"{s}/{n}": v for (n, s), v in sorted(self.ops.items())}
        ops = ops if self.hashes_all_values(iteration) else {}
        made = Receipt(iteration, loss, leaves, gradients, ops, self.before)
        self.before = made.root
        return made

    def _hash_all(self, arrays: Sequence[np.ndarray]) -> list[str]:
        """Return the hash of every array.

        Each thread receives its share as one list: hashing releases Python's lock, but handing an
        array over costs as much as hashing 0.5 MB of it.
        """
        shares: list[list[int]] = [[] for _ in range(self._threads)]
        loads = [0] * self._threads
        for index in sorted(range(len(arrays)), key=lambda index: -arrays[index].nbytes):
            lightest = loads.index(min(loads))
            shares[lightest].append(index)
            loads[lightest] += arrays[index].nbytes

        def hash_share(share: Sequence[int]) -> dict[int, str]:
            return {index: self._hash(arrays[index]) for index in share}

        others = [self._pool.submit(hash_share, share) for share in shares[1:]]
        found = hash_share(shares[0])
        for other in others:
            found |= other.result()
        return [found[index] for index in range(len(arrays))]


@dataclass(frozen=True)
class Book:
    """The receipts of a run.

    ``identity`` and the names of the values identify the computation, ``receipts`` has one receipt
    per iteration, and ``leaves`` is the hash of its tensors (one of ``LEAVES``).
    """

    identity: str
    names: tuple[NamedValue, ...]
    receipts: dict[int, Receipt]
    leaves: str = "fast"

    def without_ops(self) -> Book:
        """Return this book without the values of ops; its roots differ from the recorded ones."""
        rows = {i: replace(r, ops={}) for i, r in self.receipts.items()}
        return replace(self, receipts=rows)

    @staticmethod
    def read(path: Path) -> Book:
        """Read the receipts of a run.

        Raise UserError if the file is not a receipts file, if a root does not match its receipt, or
        if a receipt does not continue the previous one.
        """
        where = str(path)
        try:
            first, *rows = _rows(path.read_text())
            names = tuple(NamedValue(*row) for row in first["names"])
            identity, contract = first["identity"], first["contract"]
            leaves = str(first.get("leaves", "fast"))
        except FileNotFoundError:
            raise UserError(
                "no receipts found", where, "train with --receipts state or gradients"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
            raise UserError(
                f"cannot read the receipts ({error})", where, "pass the folder of a run"
            ) from None
        need_current(contract, "the receipts were", where, "compare them")
        found, last = {}, ""
        for row in rows:
            try:
                root = row.pop("root", None)
                made = Receipt(**{**row, "loss": float.fromhex(row["loss"])})
                own = made.root
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise UserError(
                    f"a receipt is damaged ({error})", where, "restore an intact copy of the file"
                ) from None
            if own != root:
                raise UserError(
                    f"the root of iteration {made.iteration} does not match its receipt",
                    where,
                    "the file was changed; restore an intact copy",
                )
            if made.before != last:
                raise UserError(
                    f"the receipt of iteration {made.iteration} does not continue the one before "
                    "it",
                    where,
                    "the file was changed; restore an intact copy",
                )
            found[made.iteration], last = made, own
        leaf_hash(leaves)
        return Book(identity, names, found, leaves)


def _rows(text: str) -> list[dict[str, Any]]:
    """Return the lines of a file, without a last line that was not completely written."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def begin(path: Path, identity: str, names: Sequence[NamedValue], leaves: str = "fast") -> None:
    """Begin the receipts of a run."""
    rows = [[n.number, n.op, n.name, n.origin] for n in names]
    header = {"identity": identity, "contract": CONTRACT_VERSION, "leaves": leaves, "names": rows}
    files.write(path, (json.dumps(header) + "\n").encode(), "the receipts")


def check_header(path: Path, identity: str, leaves: str) -> None:
    """Raise UserError if a resumed run could not append to the existing receipts."""
    with suppress(OSError, ValueError, AttributeError):  # the reader reports a damaged file
        with open(path) as file:
            header = json.loads(file.readline())
        need_current(
            header.get("contract", CONTRACT_VERSION),
            "the existing receipts were",
            str(path),
            "resume",
        )
        if header.get("identity", identity) != identity:
            raise UserError(
                "the existing receipts belong to another training step",
                str(path),
                "choose another folder",
            )
        found = header.get("leaves", "fast")
        if found != leaves:
            raise UserError(
                f"the run's receipts are hashed with {found}, not {leaves}",
                str(path),
                f"continue with --leaves {found}",
            )


def keep(path: Path, last: int) -> str:
    """Drop the receipts after iteration ``last``, where a run resumes, and return the last root."""
    book = Book.read(path)
    text = path.read_text()
    kept = [r for r in book.receipts.values() if r.iteration <= last]
    wanted = "\n".join([text.partition("\n")[0], *(r.to_json() for r in kept)]) + "\n"
    if wanted != text:
        # Only resuming rewrites the history; iterations append to it.
        files.write(path, wanted.encode(), "the receipts")
    return kept[-1].root if kept else ""


def add(path: Path, receipts: Iterable[Receipt]) -> None:
    """Append receipts; the cost of an iteration does not grow with the number of earlier ones.

    Readers ignore a line that a full disk cut off, and resuming drops it.
    """
    try:
        with open(path, "a") as out:
            out.writelines(r.to_json() + "\n" for r in receipts)
    except OSError as error:
        raise UserError(
            f"cannot write the receipt: {error.strerror}",
            str(path),
            "free disk space, then continue with --resume; the receipts before it are intact",
        ) from None
