"""The text of a module, pasted on the first page: it is compiled like a file."""

from __future__ import annotations

import pytest

from tests.frontends.test_text import BY_HAND

pytestmark = pytest.mark.playwright
_PASTE = """
([selector, text]) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData('text/plain', text);
  const event = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true,
    composed: true });
  document.querySelector(selector).dispatchEvent(event);
  return event.defaultPrevented;
}
"""


@pytest.mark.slow
def test_a_pasted_module_is_compiled_and_its_text_is_the_source(server, tab):
    page = tab(server.url)
    assert page.page.evaluate(_PASTE, ["#cw-start", BY_HAND])
    page.wait("#cw-view-overview h1")
    assert page.text("#cw-view-overview h1") == "pasted"
    page.wait("#cw-view-overview .figure:has-text('weights')")
    assert "seeded random values" in page.text("#cw-view-overview .figure:has-text('weights')")
    page.show("source")
    page.wait("#cw-view-source tr:has-text('core.relu')")
    assert page.errors == []


@pytest.mark.slow
def test_what_is_pasted_and_no_module_is_said(server, tab):
    page = tab(server.url)
    assert not page.page.evaluate(_PASTE, ["#cw-start", "one/path.onnx"]), "a path is left alone"
    assert page.page.evaluate(_PASTE, ["#cw-start", "two\nlines of something"])
    page.wait("#cw-start .error:visible")
    assert "not a module" in page.text("#cw-start .error")
    page.page.evaluate(
        "() => { File.prototype.__defineGetter__('size', () => 2 ** 40); }"
    )  # as if it were a terabyte
    page.page.evaluate(_PASTE, ["#cw-start", BY_HAND])
    page.wait("#cw-start .error:has-text('larger than')")
    assert page.errors == []


@pytest.mark.slow
def test_half_a_gigabyte_that_is_pasted_is_refused_and_the_page_stays(server, tab):
    page = tab(server.url)
    line = '    %y = "core.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n'
    head, _, tail = BY_HAND.partition("\n\n")
    made = "([head, line, tail]) => { window.long = head + line.repeat(5e8 / line.length) + tail; }"
    page.page.evaluate(made, [f"{head}\n", line, tail])
    page.page.evaluate(f"(selector) => ({_PASTE.strip()})([selector, window.long])", "#cw-start")
    page.wait("text=/the text has [0-9,]+ ops in 500 MB, at most 500,000/")
    page.open(server.url)
    assert page.page.evaluate(_PASTE, ["#cw-start", BY_HAND])
    page.wait("#cw-view-overview h1")
    assert page.errors == []
