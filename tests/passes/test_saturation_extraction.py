"""Choosing among e-nodes: random small e-graphs against all choices tried one by one."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from core_compiler.ir import Op
from core_compiler.passes.saturation.egraph import Classes, Node, Signature
from core_compiler.passes.saturation.extraction import choose

GIVEN = 0


@st.composite
def graphs(draw):
    """(classes, price of each e-node by its order): class 0 is an argument, each class has an
    e-node on classes before it, some have more on any; two classes may be results of one op."""
    count = draw(st.integers(2, 6))
    nodes: dict[int, list[Node]] = {GIVEN: []}
    prices: dict[int, int] = {}

    def node(operands, whole=None, price=None, place=0) -> Node:
        order = len(prices)
        prices[order] = draw(st.integers(1, 9)) if price is None else price
        return Node(Signature("core.any", (("n", order),), None, whole, place), operands, order)

    def below(most: int):
        return tuple(draw(st.lists(st.integers(0, most), max_size=2)))

    numbers = iter(range(1, count + 1))
    for number in numbers:
        operands = below(number - 1)
        if draw(st.integers(0, 4)) == 0:
            whole = Op("core.topk", (), ())
            nodes[number] = [node(operands, whole)]
            second = next(numbers, None)
            if second is not None:
                price = prices[nodes[number][0].order]
                nodes[second] = [node(operands, whole, price, 1)]
        else:
            nodes[number] = [node(operands)]
    for number in range(1, len(nodes)):
        for _ in range(draw(st.integers(0, 2)) if nodes[number][0].whole is None else 0):
            operands = below(len(nodes) - 1)
            if number not in operands:
                nodes[number].append(node(operands))
    return Classes({n: n for n in nodes}, {n: [] for n in nodes}, nodes), prices


def needed(taken, roots) -> list[int] | None:
    """The classes that a choice needs, each after those that it needs; None of a circle."""
    order: list[int] = []

    def visit(number: int, above: tuple[int, ...]) -> bool:
        if number in above:
            return False
        if number not in order:
            below = taken[number].operands if taken[number] is not None else ()
            if not all(visit(n, (*above, number)) for n in below):
                return False
            order.append(number)
        return True

    return order if all(visit(root, ()) for root in roots) else None


def cost(taken, order, prices) -> int:
    """What the e-nodes cost, an op of several results once."""
    found = {}
    for number in order:
        node = taken[number]
        if node is not None:
            found[node.whole or number] = prices[node.order]
    return sum(found.values())


def chosen(graph, roots):
    classes, prices = graph
    taken, order = choose(classes, prices, {GIVEN}, roots)
    assert order == list(dict.fromkeys(order)) and set(roots) <= set(order)
    for place, number in enumerate(order):
        assert taken[number] is None or set(taken[number].operands) <= set(order[:place])
    return cost(taken, order, prices)


@given(graphs(), st.data())
def test_it_has_no_circle_and_costs_no_more_than_what_was_written(graph, data):
    classes, prices = graph
    numbers = sorted(classes.nodes)
    roots = data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=2, unique=True))
    got = chosen(graph, roots)
    written = {n: classes.nodes[n][0] if classes.nodes[n] else None for n in numbers}
    assert got <= cost(written, needed(written, roots), prices)
    every = product(*([None] if n == GIVEN else classes.nodes[n] for n in numbers))
    choices = (dict(zip(numbers, choice, strict=True)) for choice in every)
    orders = ((taken, needed(taken, roots)) for taken in choices)
    best = min(cost(taken, order, prices) for taken, order in orders if order is not None)
    assert best <= got
    for number in numbers[1:]:  # nothing better is one step away
        one = [
            cost({**written, number: node}, order, prices)
            for node in classes.nodes[number]
            if (order := needed({**written, number: node}, roots)) is not None
        ]
        assert got <= min(one)


def graph_of(nodes, prices):
    made = {
        number: [
            Node(Signature("core.any", (("n", order),), None, whole), operands, order)
            for order, operands, whole in forms
        ]
        for number, forms in nodes.items()
    }
    return Classes({n: n for n in made}, {n: [] for n in made}, made), prices


def test_what_is_needed_anyway_costs_nothing_more():
    """Class 3 is cheaper on 1 alone (4 against 5 + 1), and dearer where 2 is needed as well."""
    nodes = {
        0: [],
        1: [(0, (0,), None)],
        2: [(1, (0,), None)],
        3: [(2, (1,), None), (3, (2,), None)],
    }
    graph = graph_of(nodes, {0: 3, 1: 5, 2: 1, 3: 1})
    assert chosen(graph, [3]) == 4
    assert chosen(graph, [2, 3]) == 6


def test_an_op_of_several_results_costs_once():
    """Two results of one op for 5, or each by its own op for 3."""
    op = Op("core.topk", (), ())
    nodes = {0: [], 1: [(0, (0,), None), (2, (0,), op)], 2: [(1, (0,), None), (3, (0,), op)]}
    graph = graph_of(nodes, {0: 3, 1: 3, 2: 5, 3: 5})
    assert chosen(graph, [1]) == 3
    dear = graph_of(nodes, {0: 6, 1: 6, 2: 5, 3: 5})
    assert chosen(dear, [1, 2]) == 5
