"""Every view in every state (complete, failed checks, empty, loading, an error), light and dark, at
three sizes of the window: a picture of each as it is kept, and nothing serious that axe finds."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests import accessibility
from tests.accessibility import findings
from tests.widgets.snapshots import assert_alike
from tests.workbench.page import states
from workbench.state.view_state import VIEWS

pytestmark = [pytest.mark.playwright, pytest.mark.slow]

SIZES = {"1024": (1024, 700), "1440": (1440, 900), "2560": (2560, 1440)}
#: Dark ones are looked at by axe in all states, and kept as pictures of what is complete.
FOLDER = Path(__file__).parent / "snapshots"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory, training_runs) -> states.Recordings:
    pytest.importorskip("torch", reason="the network is written in torch")
    folder = tmp_path_factory.mktemp("states")
    training = Path(shutil.copy(training_runs.a, folder / "training.run"))
    return states.make(folder, training)


@pytest.fixture(scope="module")
def axe() -> str:
    return accessibility.axe()


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("state", states.STATES)
def test_a_view_in_a_state(server, browser, axe, recordings, view, state, scheme, request):
    update = request.config.getoption("--workbench-update")
    width, height = SIZES["1440"]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    fields = {"run": recordings.of(state, view), "panes": view}
    page.goto(f"{server.url}?{urlencode(fields)}")
    page.wait_for_selector("#cw-loading", state="detached")
    pictures = scheme == "light" or state == "complete"
    wrong: list[str] = []
    for name, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("() => !document.querySelector('#cw-busy.on')")
        page.wait_for_timeout(900)  # what fades in has its colours then
        if pictures:
            kept = f"{view}-{state}-{scheme}-{name}"
            assert_alike(page.screenshot(), kept, update, FOLDER)
        wrong += [f"{name}: {each}" for each in findings(page, axe)]
    context.close()
    assert not wrong, "\n".join(wrong)
    assert not errors
