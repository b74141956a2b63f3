"""Builds the documentation site: ``python docs/build_site.py [OUT]`` (build/docs), extra ``docs``.

The pages are those of the repository, so that they read well on a code host too.  What only the
site has is made here: the order of the pages, the command line's reference from its parsers, the
Python reference from docstrings.  Warnings are errors.  Nothing on the site comes from outside.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: Pages that lie elsewhere in the repository.
ELSEWHERE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
#: The Python reference: page -> title and modules.
API = {
    "core_compiler": ("Compile, execute, look", (
        "core_compiler", "core_compiler.driver.session", "core_compiler.driver.compilation",
        "core_compiler.driver.stage",
        "core_compiler.pipelines.pipeline", "core_compiler.support.errors")),
    "training": ("Training", (
        "core_compiler.training.config", "core_compiler.training.fit",
        "core_compiler.training.run.step", "core_compiler.training.graph.losses",
        "core_compiler.training.optimisers.optimizers",
        "core_compiler.training.optimisers.schedules",
        "core_compiler.training.optimisers.loss_scale", "core_compiler.training.audit.receipts",
        "core_compiler.training.audit.diverge")),
    "ir": ("IR", (
        "core_compiler.ir.core", "core_compiler.ir.types", "core_compiler.ir.origin",
        "core_compiler.ir.rewriter", "core_compiler.ir.diff", "core_compiler.ir.text",
        "core_compiler.ir.parser", "core_compiler.ir.events")),
    "passes": ("Passes", ("core_compiler.passes.base", "core_compiler.passes.rules",
                          "core_compiler.passes.patterns")),
    "targets": ("Targets", ("core_compiler.targets", "core_compiler.targets.hosted",
                            "core_compiler.hardware.machine")),
    "record": ("Recordings", ("core_compiler.record.reader", "core_compiler.record.recorder",
                              "core_compiler.record.history", "core_compiler.record.timeline")),
    "debug": ("Debugging", ("core_compiler.debug.check", "core_compiler.debug.bisect",
                            "core_compiler.debug.reduce", "core_compiler.debug.why_not")),
    "testing": ("Tests of your own passes and targets", (
        "workbench.testing", "workbench.testing.bits", "workbench.testing.checks",
        "workbench.testing.file_check", "workbench.testing.compiles",
        "workbench.testing.golden")),
}  # fmt: skip

#: Modules whose names are those of others.
TEXT_ONLY = ("core_compiler", "workbench.testing")

_PICTURE = re.compile(
    r'<picture>\s*<source[^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)">\s*</picture>'
)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def for_site(text: str, page: Path) -> str:
    """A page of the repository as the site has it: pictures by the reader's theme, links to the
    site's pages; links to what the site does not have become their text."""

    def picture(found: re.Match) -> str:
        return "\n".join(
            f"```{{image}} {found[scheme]}\n:alt: {found['alt']}\n:class: only-{scheme}\n```"
            for scheme in ("light", "dark")
        )

    def link(found: re.Match) -> str:
        words, (target, _, anchor) = found[1], found[2].partition("#")
        if not target or "://" in target:
            return found[0]
        path = (page.parent / target).resolve()
        name = ELSEWHERE.get(path.name, path.name) if path.suffix == ".md" else ""
        if not name or path.parent not in (DOCS, ROOT) or path == ROOT / "README.md":
            return words
        return f"[{words}]({name}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(link, _PICTURE.sub(picture, text))


def contents(index: str) -> str:
    """The order of the pages: as the index page names them, by its sections."""
    parts = [index]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        head = [":hidden:", f":caption: {section.splitlines()[0]}", ""]
        names = re.findall(r"\]\((\w+)\.md\)", section)
        parts.append("\n".join(["```{toctree}", *head, *names, "```"]))
    made = ["cli", *(f"api/{name}" for name in API)]
    parts.append("\n".join(["```{toctree}", ":caption: Reference", "", *made, "```"]))
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """The reference of the command line, from the parsers."""
    import argparse

    from workbench.commands.cli import COMMANDS, build_parser

    lines = [
        "# The command line",
        "",
        "`workbench COMMAND --help` prints the same.",
        "",
        "```text",
        build_parser().format_help().rstrip(),
        "```",
        "",
    ]
    for name in COMMANDS:
        parser = build_parser(name)
        [subparsers] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        text = subparsers.choices[name].format_help().rstrip()
        lines += [f"## workbench {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def reference(title: str, modules: tuple[str, ...]) -> str:
    """A page of the Python reference."""
    lines = [title, "=" * len(title), ""]
    for module in modules:
        members = ["   :no-members:"] if module in TEXT_ONLY else []
        lines += [module, "-" * len(module), "", f".. automodule:: {module}", *members, ""]
    return "\n".join(lines)


def stage(folder: Path) -> None:
    """Write what Sphinx reads."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "api").mkdir(parents=True)
    shutil.copytree(DOCS / "images", folder / "images")
    pages = {path: path.name for path in sorted(DOCS.glob("*.md"))}
    pages |= {ROOT / name: renamed for name, renamed in ELSEWHERE.items()}
    for path, name in pages.items():
        text = for_site(path.read_text(encoding="utf-8"), path)
        text = contents(text) if name == "index.md" else text
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "cli.md").write_text(commands(), encoding="utf-8")
    for name, (title, modules) in API.items():
        (folder / "api" / f"{name}.rst").write_text(reference(title, modules), encoding="utf-8")


def build(out: Path) -> int:
    """Sphinx's exit code."""
    from sphinx.cmd.build import main as sphinx

    os.environ["COLUMNS"] = "84"  # the width of what argparse prints
    source = out.parent / "docs-source"
    stage(source)
    return sphinx(["-q", "-W", "--keep-going", "-j", "2", "-b", "html", "-c", str(DOCS / "site"),
                   "-d", str(out.parent / "docs-doctrees"), str(source), str(out)])  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").absolute()))
