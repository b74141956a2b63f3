"""The page's skeleton: the positions of bar, rail, panes and inspector, live and in a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def frame(embed: Callable[[str], str], views: Iterable[str]) -> str:
    """Return HTML with ``embed(component)`` at each component's position."""
    panes = "".join(
        f'    <section class="cw-view" id="cw-view-{name}" aria-label="{name}">\n'
        f'      <div class="cw-body">{embed(name)}</div>\n'
        '      <div class="cw-message" role="status" hidden></div>\n'
        "    </section>\n"
        for name in views
    )
    return f"""<div id="cw">
  <h1 class="cw-unseen">Compiler Workbench</h1>
  <header id="cw-bar">{embed("bar")}</header>
  <nav id="cw-rail" aria-label="Passes">{embed("rail")}</nav>
  <main id="cw-panes" class="one">
    <div class="cw-tabs"></div>
    <div class="cw-tabs"></div>
    <div id="cw-split" role="separator" aria-orientation="vertical" aria-valuemin="15" aria-valuemax="85" aria-valuenow="50" tabindex="0" aria-label="Width of the panes"></div>
{panes}  </main>
  <aside id="cw-inspector" aria-label="Inspector">{embed("inspector")}</aside>
  <div id="cw-rail-edge" role="separator" aria-orientation="vertical" aria-valuemin="160" aria-valuemax="640" aria-valuenow="262" tabindex="0" aria-label="Width of the passes"></div>
</div>
<div id="cw-start" hidden>{embed("start")}</div>
<div id="cw-busy" role="progressbar" aria-label="Working"></div>
<div id="cw-lost" role="alert" hidden></div>
"""  # noqa: E501
