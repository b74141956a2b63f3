"""The selection in the URL."""

from __future__ import annotations

import base64
import json
import os
import zlib
from pathlib import Path
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from workbench.model import user_pass
from workbench.state import url_text
from workbench.state.view_state import VIEWS, ViewState

numbers = st.none() | st.integers(0, 10**9)
sights = st.builds(
    ViewState,
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
        st.sampled_from(list(VIEWS)),
        st.text(min_size=1, max_size=40)
        | st.text("ab{", min_size=999, max_size=1002)
        | st.text(min_size=1, max_size=20).map("z.".__add__),
        max_size=3,
    ).map(lambda d: tuple(sorted(d.items()))),
)


@given(sights)
def test_a_link_opens_the_same_sight(state):
    assert ViewState.parse(state.query()) == state
    assert ViewState.parse("?" + state.query()) == state


@given(st.text(max_size=200))
def test_any_text_is_a_sight_of_some_kind(text):
    state = ViewState.parse(text)
    assert ViewState.parse(state.query()) == state
    assert 1 <= len(state.panes) <= 2 and set(state.panes) <= set(VIEWS)


def test_what_makes_no_sense_is_left_out():
    state = ViewState.parse("stage=-3&op=1e9&panes=graph,graph,nonsense&zoom=5&fold=x&kernel=7")
    assert state == ViewState(kernel=7, panes=("graph",))


def test_selecting_forgets_what_was_selected():
    state = ViewState(run="a.run", stage=3, op=5, kernel=2, scope="layer", panes=("graph", "diff"))
    assert state.select(buffer=4) == ViewState(
        run="a.run", stage=3, buffer=4, panes=("graph", "diff")
    )


def test_a_sight_that_says_nothing_has_an_empty_query():
    assert ViewState().query() == ""


def test_a_link_carries_a_whole_pass():
    code = Path(user_pass.__file__).read_text()
    assert len(code) > 5000
    text = json.dumps({"draft": {"code": code}})
    state = ViewState(run="a.run", views=(("pipeline", text),))
    query = state.query()
    assert len(query) < len(text) / 2
    assert ViewState.parse(query) == state


def test_what_no_address_can_hold_is_left_out_of_it():
    random = json.dumps({"draft": os.urandom(20_000).hex()})
    for text in (random, "x" * (url_text.MAX_FULL + 1)):
        state = ViewState(run="a.run", views=(("pipeline", text),))
        assert ViewState.parse(state.query()) == ViewState(run="a.run")


def test_half_a_surrogate_pair_is_in_no_address():
    assert ViewState.parse("stops=" + quote('["\\ud800", "pass:a"]')) == ViewState(
        stops=("pass:a",)
    )
    assert ViewState(find="a\ud800").query() == "find=a%3F"


def test_a_text_of_an_address_that_would_become_huge_is_refused():
    packed = base64.urlsafe_b64encode(zlib.compress(b"a" * 5_000_000)).decode()
    assert len(packed) < url_text.MAX_SHORT
    assert url_text.full(f"z.{packed}") == ""
    assert url_text.full("z.====") == url_text.full("z.abc") == ""
