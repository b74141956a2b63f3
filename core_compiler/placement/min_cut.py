"""Minimum cuts of directed graphs with integer capacities, by Dinic's algorithm.

Dinic, "Algorithm for solution of a problem of maximum flow in a network with power estimation"
(Soviet Math. Doklady 11, 1970): shortest augmenting paths, all of one length at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: The capacity of an edge that must not be cut.
UNLIMITED = 1 << 62


@dataclass
class Network:
    """A flow network; nodes are numbers from 0, and :meth:`edge` adds capacity between two."""

    nodes: int
    _targets: list[int] = field(default_factory=list)
    _residual: list[int] = field(
        default_factory=list
    )  # residual capacities; the reverse is edge ^ 1
    _edges: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._edges = [[] for _ in range(self.nodes)]

    def edge(self, source: int, to: int, capacity: int) -> None:
        for a, b, residual in ((source, to, capacity), (to, source, 0)):
            self._edges[a].append(len(self._targets))
            self._targets.append(b)
            self._residual.append(residual)

    def cut(self, source: int, sink: int) -> tuple[int, set[int]]:
        """Return the value of a minimum cut and its smallest source side.  Uses the network up."""
        total = 0
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return total, {n for n, at in enumerate(level) if at >= 0}
            total += self._augment(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        """Return the distance of each node from ``source`` over residual edges; -1: unreachable."""
        level = [-1] * self.nodes
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self._edges[node]:
                to = self._targets[edge]
                if self._residual[edge] and level[to] < 0:
                    level[to] = level[node] + 1
                    queue.append(to)
        return level

    def _augment(self, source: int, sink: int, level: list[int]) -> int:
        """Saturate all shortest paths and return the additional flow."""
        path: list[int] = []
        total, next_edge, node = 0, [0] * self.nodes, source
        while True:
            if node == sink:
                flow = min(self._residual[e] for e in path)
                total += flow
                for edge in path:
                    self._residual[edge] -= flow
                    self._residual[edge ^ 1] += flow
                full = next(i for i, e in enumerate(path) if not self._residual[e])
                node = self._targets[path[full] ^ 1]
                del path[full:]
                continue
            edges = self._edges[node]
            while next_edge[node] < len(edges):
                edge = edges[next_edge[node]]
                if self._residual[edge] and level[self._targets[edge]] == level[node] + 1:
                    path.append(edge)
                    node = self._targets[edge]
                    break
                next_edge[node] += 1
            else:
                if node == source:
                    return total
                edge = path.pop()
                node = self._targets[edge ^ 1]
                next_edge[node] += 1
