"""Each value of an import against the framework's own: which op of the import is not what the model
says?

The framework runs the model's graph node by node, and what each node made is compared with the
value that the import has for it, evaluated by the reference.  Differences add up along the graph:
each is that of two whole computations, not of one op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core_compiler.debug.check import numbers, same_bits, worst_error
from core_compiler.debug.evaluate import Evaluator
from core_compiler.ir import Module, Value
from core_compiler.ir.events import FrameworkRecord
from core_compiler.ir.framework import Nodes

#: Bytes of results that are kept for ops that are the same on the same arrays.
KEPT = 1 << 26


@dataclass(eq=False)
class Compared:
    """``records`` in the framework's order; ``left_out`` values could not be compared: they are no
    tensors, or have another form there."""

    records: list[FrameworkRecord] = field(default_factory=list)
    left_out: int = 0


def compare(
    module: Module, inputs: Sequence[np.ndarray], nodes: Nodes, own: int,
    imported: Module | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compared:  # fmt: skip
    """Compare the values of ``module``, an import, with those of the framework.

    ``inputs`` are arrays for main's arguments, the first ``own`` of them the model's own inputs
    (the others are its state).  ``nodes`` name values of ``imported``, by default ``module``; else
    another import of the same model, whose ops are the same in the same order.  ``progress`` hears
    how many nodes of how many are done.
    """
    values = _once(nodes.values)
    if imported is not None:
        values = _there(values, imported, module)
    ours = _Ours(module, inputs, values)
    found = Compared()

    def tell(name: str, arrays: Sequence[np.ndarray | None]) -> None:
        wanted = values.get(name, ())
        progress(ours.told, len(values))
        ours.told += 1
        for value, theirs in zip(wanted, arrays, strict=False):
            if value is None:
                continue
            mine = ours.take(value)
            if mine is None or theirs is None or _form(mine) != _form(theirs):
                found.left_out += 1
            else:
                found.records.append(_record(value, nodes.framework, name, mine, theirs))

    nodes.run(list(inputs[:own]), tell)
    return found


def _record(
    value: Value, framework: str, node: str, ours: np.ndarray, theirs: np.ndarray
) -> FrameworkRecord:
    if same_bits(theirs, ours):
        return FrameworkRecord(value, framework, node)
    error, index = worst_error(theirs, ours)
    there = numbers(theirs, ours, index)
    return FrameworkRecord(
        value, framework, node, False, error, index, there.get("old"), there.get("new")
    )


def _once(values: Mapping[str, Sequence[Value | None]]) -> dict[str, list[Value | None]]:
    """Each value with the first node that has it: others only hand it on."""
    seen: set[Value] = set()
    made = {}
    for name, found in values.items():
        made[name] = [None if v in seen else v for v in found]
        seen.update(v for v in found if v is not None)
    return made


def _form(array: np.ndarray) -> tuple:
    return array.shape, array.dtype


def _there(
    values: Mapping[str, Sequence[Value | None]], imported: Module, module: Module
) -> dict[str, list[Value | None]]:
    """The values of ``module`` that stand where those of ``imported`` stand."""
    mine, theirs = module.main.body.ops, imported.main.body.ops
    same = len(mine) == len(theirs) and all(
        a.kind == b.kind and [r.type for r in a.results] == [r.type for r in b.results]
        for a, b in zip(mine, theirs, strict=True)
    )
    if not same:
        raise ValueError("the two imports are not of one model")
    pairs = zip(
        (v for op in theirs for v in op.results), (v for op in mine for v in op.results),
        strict=True,
    )  # fmt: skip
    place = dict(pairs) | dict(zip(imported.main.arguments, module.main.arguments, strict=True))
    return {
        name: [None if v is None else place.get(v) for v in found] for name, found in values.items()
    }


class _Ours:
    """The import, evaluated as far as it is asked for; a value is forgotten when no op and no node
    is left that reads it."""

    def __init__(
        self, module: Module, inputs: Sequence[np.ndarray],
        wanted: Mapping[str, Sequence[Value | None]],
    ):  # fmt: skip
        self.told = 0
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        self._ops = iter(module.main.body.ops)
        self._makes = {v for op in module.main.body.ops for v in op.results}
        self._known = dict(zip(module.main.arguments, inputs, strict=True))
        self._readers = Counter(v for op in module.main.body.ops for v in set(op.uses()))
        self._readers.update(v for values in wanted.values() for v in values if v is not None)

    def take(self, value: Value) -> np.ndarray | None:
        """The tensor of a value; None where it is no tensor of ``main``."""
        while value not in self._known and value in self._makes:
            op = next(self._ops, None)
            if op is None:
                return None  # a node that the framework runs twice
            results = self._evaluator.op(op, [self._known[v] for v in op.operands], self._known)
            self._known.update(zip(op.results, results, strict=True))
            for read in set(op.uses()):
                self._read(read)
            for made in op.results:
                if not self._readers[made]:
                    self._known.pop(made, None)
        found = self._known.get(value)
        self._read(value)
        return found if isinstance(found, np.ndarray) else None

    def _read(self, value: Value) -> None:
        self._readers[value] -= 1
        if self._readers[value] <= 0:
            self._known.pop(value, None)
