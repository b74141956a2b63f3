"""The graph of the model's framework beside the module that was imported from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from core_compiler.ir.core import Value

#: Executes one node in f64 on the operands it had; None where the framework cannot.  Only to be
#: called while the node's tensors are told.
InF64 = Callable[[], "Sequence[np.ndarray | None] | None"]


@dataclass(frozen=True, eq=False)
class Iteration:
    """What the condition (``region`` 0) or the body (1) of a loop made in one iteration of the
    framework's: ``number`` from 1, arrays, and how to execute it in f64."""

    region: int
    number: int
    operands: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    in_f64: InF64


class TellNode(Protocol):
    """Is told the tensors of a node of the framework's graph as soon as they are computed, an array
    each (None: it is no tensor of ours), and how to execute that node in f64; of a loop some of its
    iterations, from the first to the last.  Says of each tensor whether later nodes are judged on
    it: in f64 those go on from it, else from what it was made of."""

    def __call__(
        self, name: str, arrays: Sequence[np.ndarray | None], in_f64: InF64,
        iterations: Sequence[Iteration] = (), /,
    ) -> Sequence[bool]: ...  # fmt: skip


@dataclass(frozen=True, eq=False)
class Nodes:
    """The framework's own graph beside its import.

    ``values`` has the import's values for each node's tensors, by the node's name (None: what is
    not one value).  ``run(inputs, tell)`` executes the graph in ``framework`` on arrays for the
    model's own inputs and tells each node's tensors, in an order in which they can be computed; it
    returns the model's results and the state that it leaves, by their places in ``main.outputs``.
    ``sized`` has the axes along which data decide how much of a value counts: there the framework's
    tensor may be smaller.  ``constants``: of some nodes how far, relative to themselves, numbers
    that are written in their kernels may be off in f64.  ``open_ties`` are the nodes whose
    documentation leaves open which of equal elements a position is of.  ``declared``: the import's
    types were held to those that the nodes declare, so that a narrower tensor is their kernels'.
    ``parts``: of each part of a complex tensor the other one, which the same node tells.
    """

    framework: str
    values: Mapping[str, Sequence[Value | None]]
    run: Callable[[Sequence[np.ndarray], TellNode], Mapping[int, np.ndarray]]
    sized: Mapping[Value, Collection[int]] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    open_ties: Collection[str] = ()
    declared: bool = False
    parts: Mapping[Value, Value] = field(default_factory=dict)
