"""A graph of ONNX in the making: tensors are objects until all is known, then get their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.ir import DType, Op


class Tensor:
    """A tensor of the graph.

    ``wanted`` is the name it would like to have; ``shape`` is known of what an IR value became;
    ``array`` is there of a constant.
    """

    __slots__ = ("array", "dtype", "shape", "wanted")

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...] | None = None,
        wanted: str = "",
        array: np.ndarray | None = None,
    ):
        self.dtype, self.shape, self.wanted, self.array = dtype, shape, wanted, array


@dataclass(frozen=True, eq=False)
class Node:
    """A node; an input that is left out is None.  ``op`` is the op of the IR that it is part of,
    ``group`` the fusion group around that."""

    kind: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    op: Op | None
    group: str = ""


@dataclass(eq=False)
class Graph:
    """Nodes in order; attributes of nodes may hold graphs, which see the tensors around them."""

    inputs: Sequence[Tensor] = ()
    nodes: list[Node] = field(default_factory=list)
    outputs: Sequence[Tensor] = ()

    def walk(self) -> Iterator[Graph]:
        """This graph, then those in its nodes, outermost first."""
        yield self
        for node in self.nodes:
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    yield from value.walk()

    def constants(self) -> Iterator[Tensor]:
        """The constants that are read, each once, in the order of their first reader."""
        seen: dict[Tensor, None] = {}
        for graph in self.walk():
            for node in graph.nodes:
                seen |= {t: None for t in node.inputs if t is not None and t.array is not None}
        yield from seen
