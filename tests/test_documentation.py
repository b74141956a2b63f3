"""The documentation: its links lead somewhere, its pictures are small, the site builds offline."""

from __future__ import annotations

import html.parser
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])
IMAGES = ROOT / "docs" / "images"
#: Larger pictures make a page slow to open (bytes).
LARGEST = 200_000

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_TARGET = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def prose(page: Path) -> str:
    return _CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8")))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives the headings of a page."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()) for title in titles]
    return {each.replace(" ", "-") for each in kept}


def test_pages_are_found():
    assert {"README.md", "CONTRIBUTING.md", "views.md", "index.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    broken = []
    for words in _TARGET.findall(prose(page)):
        link = "".join(words)
        place, _, anchor = link.partition("#")
        if "://" in place or place.startswith("mailto:"):
            continue
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_of_the_documentation_is_on_the_map():
    linked = re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "index.md").read_text())
    assert sorted(linked) == sorted(p.name for p in ROOT.glob("docs/*.md") if p.name != "index.md")


def test_pictures_are_small_shown_and_there_in_light_and_dark():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = {path.stem for path in IMAGES.glob("*.png")}
    light = {name for name in names if not name.endswith("-dark")}
    assert names == light | {f"{name}-dark" for name in light}
    assert [name for name in sorted(names) if f"images/{name}.png" not in shown] == []
    assert [p.name for p in IMAGES.glob("*.png") if p.stat().st_size > LARGEST] == []


class _Fetched(html.parser.HTMLParser):
    """The addresses that a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "source", "iframe"):
            self.found += [given[name] for name in ("src", "srcset") if given.get(name)]
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.found.append(given["href"])


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing_from_outside(tmp_path):
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="the site is built by the extra docs")
    pytest.importorskip("torch", reason="the reference documents the frontends too")
    out = tmp_path / "site"
    command = [sys.executable, str(ROOT / "docs" / "build_site.py"), str(out)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0 and made.stderr == "", made.stderr
    pages = sorted(out.rglob("*.html"))
    assert {"index.html", "cli.html", "glossary.html", "contributing.html"} <= {
        p.name for p in pages
    }
    for page in pages:
        seen = _Fetched()
        seen.feed(page.read_text(encoding="utf-8"))
        assert [each for each in seen.found if "//" in each] == [], page
    for sheet in out.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        outside = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", text)
        assert outside == [], sheet
    assert "class core_compiler.driver.compilation.Compilation" in re.sub(
        r"<[^>]+>", "", (out / "api" / "core_compiler.html").read_text(encoding="utf-8")
    )
