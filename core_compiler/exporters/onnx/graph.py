"""An ONNX graph under construction: tensors are objects that are named at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.ir import DType, Op


class Tensor:
    """A tensor of the graph.

    ``wanted`` is its preferred name; ``shape`` is known if it represents an IR value; ``array`` is
    set for a constant.
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
    """A node; an omitted input is None.

    ``op`` is the op of the IR that it belongs to, ``group`` the enclosing fusion group.
    """

    kind: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    op: Op | None
    group: str = ""


@dataclass(eq=False)
class Graph:
    """Nodes in order; attributes of nodes may hold graphs, which can access the outer tensors."""

    inputs: Sequence[Tensor] = ()
    nodes: list[Node] = field(default_factory=list)
    outputs: Sequence[Tensor] = ()

    def walk(self) -> Iterator[Graph]:
        """Yield this graph, then those in its nodes, outermost first."""
        yield self
        for node in self.nodes:
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    yield from value.walk()

    def constants(self) -> Iterator[Tensor]:
        """Yield the constants that are used, each once, in the order of their first use."""
        seen: dict[Tensor, None] = {}
        for graph in self.walk():
            for node in graph.nodes:
                seen |= {t: None for t in node.inputs if t is not None and t.array is not None}
        yield from seen
