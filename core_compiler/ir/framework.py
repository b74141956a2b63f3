"""The graph of the model's framework next to the imported module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from core_compiler.ir.core import Value

#: Executes one node in f64 on its operands; None if the framework cannot. It may only be called
#: while the node's tensors are being reported.
InF64 = Callable[[], "Sequence[np.ndarray | None] | None"]


@dataclass(frozen=True, eq=False)
class Iteration:
    """The values of one iteration of a framework loop.

    They belong to its condition (``region`` 0) or body (1). ``number`` counts from 1; the arrays
    come with a function that executes the region in f64.
    """

    region: int
    number: int
    operands: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    in_f64: InF64


class NodeCallback(Protocol):
    """A callback that receives the tensors of a framework node as soon as they are computed.

    It receives one array per tensor (None: the IR has no such tensor) and a function that executes
    the node in f64; for a loop, some of its iterations, from the first to the last. It returns for
    each tensor whether later nodes are compared given this tensor: in f64 they then continue from
    it, otherwise from its inputs.
    """

    def __call__(
        self,
        name: str,
        arrays: Sequence[np.ndarray | None],
        in_f64: InF64,
        iterations: Sequence[Iteration] = (),
        /,
    ) -> Sequence[bool]: ...


class StandIns(Protocol):
    """Tensors that replace those of a framework's nodes, so that each executes on chosen operands.

    ``executes(name)``: whether a node is to be executed and reported; otherwise its tensors are
    only replaced.  ``arrays(name)``: the tensors that later nodes read instead of the node's own
    (None: nothing reads that one); None if it keeps its own.  ``not_replaced(name)`` says that it
    keeps them although it has others.  A node that raises on such operands is not reported.
    """

    def executes(self, name: str, /) -> bool: ...

    def arrays(self, name: str, /) -> Sequence[np.ndarray | None] | None: ...

    def not_replaced(self, name: str, /) -> None: ...


class RunNodes(Protocol):
    """The execution of a framework's graph; see :class:`Nodes`."""

    def __call__(
        self,
        inputs: Sequence[np.ndarray],
        on_node: NodeCallback,
        stand_ins: StandIns | None = None,
        /,
    ) -> Mapping[int, np.ndarray]: ...


@dataclass(frozen=True, eq=False)
class Nodes:
    """The framework's own graph next to its import.

    ``values`` has the import's values of each node's tensors, by the node's name (None: not a
    single value). ``run(inputs, tell)`` executes the graph in ``framework`` on arrays for the
    model's own inputs and reports each node's tensors in an order in which they can be computed. It
    returns the model's results and its final state, by their positions in ``main.outputs``.  With
    ``stand_ins`` only what these ask for is reported, and nothing is returned.
    ``sized`` has the axes along which the number of valid elements depends on data: the framework's
    tensor may be smaller there. ``constants`` has, for some nodes, the relative f64 error of
    constants in their kernels. ``open_ties`` are the nodes whose documentation does not specify
    which of equal elements a position refers to. ``declared`` is true if the import's types were
    required to match the nodes' declarations, so that a narrower tensor is due to their kernels.
    ``parts`` maps each part of a complex tensor to the other part, which the same node reports.
    ``undefined`` are the nodes that are only defined on some operands (a factorisation that may
    fail), or that differ from their documentation on others: they are compared on the model's
    inputs alone; ``not_at_infinity`` are those whose kernels are wrong there.  ``siblings`` maps
    the name of a tensor to that of the first one that the same node computes, if it is tensors that
    have names.
    """

    framework: str
    values: Mapping[str, Sequence[Value | None]]
    run: RunNodes
    sized: Mapping[Value, Collection[int]] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    open_ties: Collection[str] = ()
    declared: bool = False
    parts: Mapping[Value, Value] = field(default_factory=dict)
    undefined: Collection[str] = ()
    not_at_infinity: Collection[str] = ()
    siblings: Mapping[str, str] = field(default_factory=dict)
