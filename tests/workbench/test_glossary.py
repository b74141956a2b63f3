"""One table says what each figure is: the page, its tooltips and docs/glossary.md agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench import views
from workbench.state import glossary
from workbench.state.view_state import VIEWS
from workbench.ui import browser_modules

VIEW_SOURCES = sorted((Path(views.__file__).parent).glob("*.js"))


def test_the_page_is_up_to_date():
    assert glossary.PAGE.read_text(encoding="utf-8") == glossary.page(), (
        "run python -m workbench.state.glossary and commit docs/glossary.md"
    )


def test_every_term_belongs_to_a_view_and_says_something():
    assert set(glossary.GLOSSARY) <= {*VIEWS, "passes", "inspector"}
    for terms in glossary.GLOSSARY.values():
        for term in terms.values():
            assert term.label and len(term.means) > len(term.label)


@pytest.mark.parametrize("path", VIEW_SOURCES, ids=lambda path: path.name)
def test_what_a_view_explains_is_in_the_table(path):
    for view, name in re.findall(r"explain\('(\w+)', '([^']+)'\)", path.read_text()):
        assert name in glossary.GLOSSARY[view]


def test_text_of_the_table_cannot_end_a_script():
    first = browser_modules.shared_text().partition("\n")[0]
    assert first.startswith("const GLOSSARY = {") and "</" not in first
