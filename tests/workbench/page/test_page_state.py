"""The selection in the URL."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.state import VIEWS, Sight

numbers = st.none() | st.integers(0, 10**9)
sights = st.builds(
    Sight,
    run=st.text(max_size=40),
    stage=numbers,
    rewrite=numbers,
    op=numbers,
    buffer=numbers,
    kernel=numbers,
    scope=st.text(max_size=40),
    panes=st.lists(st.sampled_from(list(VIEWS)), min_size=1, max_size=2, unique=True).map(tuple),
    fold=st.sampled_from([(), ("rail",), ("inspector",), ("rail", "inspector")]),
    find=st.text(max_size=40),
    skip=numbers,
    shelf=st.sampled_from(["", "trend", "trash"]),
    stops=st.lists(st.text(max_size=20), max_size=3).map(tuple),
    views=st.dictionaries(
        st.sampled_from(list(VIEWS)), st.text(min_size=1, max_size=40), max_size=3
    ).map(lambda d: tuple(sorted(d.items()))),
)


@given(sights)
def test_a_link_opens_the_same_sight(sight):
    assert Sight.parse(sight.query()) == sight
    assert Sight.parse("?" + sight.query()) == sight


@given(st.text(max_size=200))
def test_any_text_is_a_sight_of_some_kind(text):
    sight = Sight.parse(text)
    assert Sight.parse(sight.query()) == sight
    assert 1 <= len(sight.panes) <= 2 and set(sight.panes) <= set(VIEWS)


def test_what_makes_no_sense_is_left_out():
    sight = Sight.parse("stage=-3&op=1e9&panes=graph,graph,nonsense&zoom=5&fold=x&kernel=7")
    assert sight == Sight(kernel=7, panes=("graph",))


def test_selecting_forgets_what_was_selected():
    sight = Sight(run="a.run", stage=3, op=5, kernel=2, scope="layer", panes=("graph", "diff"))
    assert sight.select(buffer=4) == Sight(run="a.run", stage=3, buffer=4, panes=("graph", "diff"))


def test_a_sight_that_says_nothing_has_an_empty_query():
    assert Sight().query() == ""
