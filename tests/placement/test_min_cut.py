"""Minimum cuts, beside networkx."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.placement.min_cut import Network
from tests.examples import examples

EDGES = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 20)), max_size=30
).map(lambda edges: [e for e in edges if e[0] != e[1]])


@given(EDGES)
@settings(max_examples=examples(300), deadline=None)
def test_a_cut_is_as_small_as_networkx_says_and_separates(edges):
    import networkx  # a second, of each process that collects tests

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(8))
    network = Network(8)
    for a, b, capacity in edges:
        network.edge(a, b, capacity)
        more = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
        graph.add_edge(a, b, capacity=capacity + more)
    value, side = network.cut(0, 7)
    assert value == networkx.minimum_cut_value(graph, 0, 7)
    assert 0 in side and 7 not in side
    assert value == sum(c for a, b, c in edges if a in side and b not in side)
