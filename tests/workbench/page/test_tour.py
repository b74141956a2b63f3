"""The guided tour: it opens a recording of its own, outlines what it tells about, and ends."""

from __future__ import annotations

import shutil

import pytest

from tests.workbench.page.conftest import of_the_tour
from workbench.app import tour
from workbench.queries.run import Run
from workbench.state.view_state import ViewState

pytestmark = pytest.mark.playwright

CARD = "#cw-tour .card"


def outlined(page) -> bool:
    """Whether the ring stands around the place of the shown step."""
    return page.page.evaluate(
        """([places]) => {
          const ring = document.querySelector('#cw-tour').shadowRoot.querySelector('.ring');
          const at = ring.getBoundingClientRect();
          return places.some((place) => {
            const box = document.querySelector(place).getBoundingClientRect();
            const [x, y] = [box.left - at.left, box.top - at.top];
            return box.width > 50 && Math.abs(x) < 2 && Math.abs(y) < 2;
          });
        }""",
        [[f"#cw-{name}" for name in ("rail", "inspector", "panes")] + [".cw-view.left"]],
    )


@pytest.fixture
def sample(server, recording):
    """A recording in the server's library that has all the tour needs: nothing is compiled."""
    path = server.root / "recordings" / "sample.run"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(recording, path)
    of_the_tour(path)
    yield path
    path.unlink()


@pytest.mark.slow
def test_the_tour_is_walked_with_the_keyboard(server, tab, recording, sample):
    run = Run(recording)
    wanted = tour.steps(run, "sample.run")
    run.close()
    page = tab(server.url)
    page.locate("#cw-start [data-do=tour]").click()
    for number, step in enumerate(wanted, 1):
        page.wait(f'{CARD}:has-text("{number} of {len(wanted)}")')
        assert page.text(f"{CARD} h2") == step["title"] and page.text(f"{CARD} p") == step["text"]
        for view in ViewState.parse(step["query"]).panes:
            page.wait(f"#cw-view-{view}", state="visible")
        page.wait_query(
            "panes",
            ",".join(ViewState.parse(step["query"]).panes) if "panes" in step["query"] else None,
        )
        assert outlined(page), step["place"]
        page.press("ArrowRight" if number % 2 else "Enter")
    page.wait("#cw-tour", state="detached")
    # It is in the help as well, goes back, and ends with Esc wherever the focus is.
    page.press("?")
    page.locate("#cw-bar dialog [data-do=tour]").click()
    page.wait(f'{CARD}:has-text("1 of")')
    page.press("Enter")
    page.wait(f'{CARD}:has-text("2 of")')
    page.press("ArrowLeft")
    page.wait(f'{CARD}:has-text("1 of")')
    page.locate("#cw-view-overview h1").click()
    page.press("Escape")
    page.wait("#cw-tour", state="detached")
    assert page.errors == []


@pytest.mark.slow
def test_it_compiles_its_model_where_the_library_has_no_recording(own_server, tab):
    page = tab(own_server().url)
    page.locate("#cw-start [data-do=tour]").click()
    page.wait(f'{CARD}:has-text("compiling")')
    page.wait(f'{CARD}:has-text("1 of")')
    page.wait("#cw-view-overview .figure")
    assert page.text("#cw-view-overview h1") == tour.MODEL
    assert page.errors == []
