"""Who may import whom. The list below is the architecture; docs/architecture.md explains it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Each may import those before it and itself.
LAYERS = (
    "ir",
    "numerics",
    "kernel_ir",
    "ops",
    "lowering",
    "scheduling",
    "hardware",
    "placement",
    "codegen",
    "passes",
    "onnx_level",  # a frontend's own level: its passes are passes
    "runtime",
    "training",
    "pipelines",
    "debug",
    "targets",  # each ties passes, code generation and a device together
)
# Beside the chain: what they may import, themselves included.
BRANCHES = {
    "frontends": ("frontends", "ir", "numerics", "ops"),
    "record": ("record", "ir"),
    "exporters": ("exporters", "ir", "ops", "record"),
}
# What a layer of the chain may import beside it.
BESIDE = {"onnx_level": ("frontends",)}
# The workbench, from what knows least to what a user calls.
WORKBENCH = (
    "support",
    "state",
    "queries",
    "model",
    "training",
    "advice",
    "views",
    "ui",
    "export",
    "app",
    "commands",
    "notebook",
    "testing",
)
# What anybody in the core may import, and which imports nothing of the core itself.
GROUND = "support"
# The compile: it ties the parts together.
DRIVER = "driver"

PACKAGES = {
    "core_compiler": ("core_compiler",),
    "workbench": ("workbench", "core_compiler", "widgets", "sample_models"),
    "widgets": ("widgets",),
    "sample_models": ("sample_models", "core_compiler"),
}
# Packages that the core does without unless somebody asks for what they do.
FRAMEWORKS = (
    "anywidget",
    "bokeh",
    "egglog",
    "ipywidgets",
    "jax",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "onnxscript",
    "panel",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
)
# Refuses the frameworks named first, so that the traceback names who wanted one.
PROBE = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise RuntimeError(f"{name} was imported")
sys.meta_path.insert(0, Refuse())
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def allowed(part: str) -> tuple[str, ...] | None:
    """The parts of core_compiler that `part` may import; None: any (it ties the parts together)."""
    if part == GROUND:
        return (GROUND,)
    if part in LAYERS:
        return (*LAYERS[: LAYERS.index(part) + 1], *BESIDE.get(part, ()), GROUND)
    if part in BRANCHES:
        return (*BRANCHES[part], GROUND)
    return None


def below(part: str) -> tuple[str, ...] | None:
    """The parts of the workbench that `part` may import; None: any."""
    return WORKBENCH[: WORKBENCH.index(part) + 1] if part in WORKBENCH else None


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, also those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def violations(root: Path) -> list[str]:
    """`file:line: what` for each import that the lists above do not allow."""
    found = []
    for package, reachable in PACKAGES.items():
        for path, module in modules(root, package):
            is_package = path.name == "__init__.py"
            source = path.read_text(encoding="utf-8")
            for line, name in imports(source, module, is_package):
                why = refusal(package, reachable, module, name)
                if why is not None:
                    found.append(f"{path.relative_to(root)}:{line}: {why}")
    return found


def refusal(package: str, reachable: tuple[str, ...], module: str, name: str) -> str | None:
    """Why `module` of `package` may not import `name`; None if it may."""
    top, _, rest = name.partition(".")
    if top in PACKAGES and top not in reachable:
        return f"{package} may not import {name}"
    if package != top or not rest or rest.startswith("__"):
        return None
    own = module.split(".")[1] if "." in module else ""
    may = {"core_compiler": allowed, "workbench": below}.get(package, lambda _: None)(own)
    if may is None or rest.partition(".")[0] in may:
        return None
    return f"{own} may not import {name}"


def modules(root: Path, package: str) -> Iterator[tuple[Path, str]]:
    """File and dotted name of every module of a package, in order."""
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "node_modules" not in parts:
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_without(frameworks: tuple[str, ...], *names: str) -> None:
    command = [sys.executable, "-c", PROBE, ",".join(frameworks), *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_imports_follow_the_layers() -> None:
    assert violations(ROOT) == []


def test_every_part_of_the_core_has_a_place() -> None:
    parts = {path.name for path in (ROOT / "core_compiler").iterdir()}
    parts -= {"__init__.py", "__main__.py", "__pycache__"}
    assert parts == {*LAYERS, *BRANCHES, GROUND, DRIVER}


def test_every_part_of_the_workbench_has_a_place() -> None:
    parts = {path.name for path in (ROOT / "workbench").iterdir()}
    assert parts - {"__init__.py", "__main__.py", "__pycache__"} == set(WORKBENCH)


@pytest.mark.parametrize(
    ("file", "source", "says"),
    [
        (
            "core_compiler/ir/core.py",
            "import math\nfrom core_compiler.passes import fold\n",
            "core_compiler/ir/core.py:2: ir may not import core_compiler.passes.fold",
        ),
        (
            "core_compiler/ir/core.py",
            "def later():\n    from ..ops import base\n",
            "core_compiler/ir/core.py:2: ir may not import core_compiler.ops.base",
        ),
        (
            "core_compiler/ops/__init__.py",
            "from .. import runtime",
            "core_compiler/ops/__init__.py:1: ops may not import core_compiler.runtime",
        ),
        (
            "core_compiler/pipelines/a.py",
            "import core_compiler.debug.check",
            "core_compiler/pipelines/a.py:1: pipelines may not import core_compiler.debug.check",
        ),
        (
            "core_compiler/frontends/onnx.py",
            "import core_compiler.passes.base",
            "core_compiler/frontends/onnx.py:1: frontends may not import core_compiler.passes.base",
        ),
        (
            "core_compiler/passes/base.py",
            "from core_compiler import driver",
            "core_compiler/passes/base.py:1: passes may not import core_compiler.driver",
        ),
        (
            "core_compiler/record/writer.py",
            "import workbench.commands.cli",
            "core_compiler/record/writer.py:1: core_compiler may not import workbench.commands.cli",
        ),
        (
            "workbench/queries/run.py",
            "from workbench.views import graph",
            "workbench/queries/run.py:1: queries may not import workbench.views.graph",
        ),
        (
            "widgets/page.py",
            "from core_compiler import ir",
            "widgets/page.py:1: widgets may not import core_compiler.ir",
        ),
    ],
)
def test_a_wrong_import_is_named(file: str, source: str, says: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(source)
    assert violations(tmp_path) == [says]


def test_right_imports_pass(tmp_path: Path) -> None:
    (tmp_path / "core_compiler" / "passes").mkdir(parents=True)
    (tmp_path / "core_compiler" / "passes" / "base.py").write_text(
        "from core_compiler import __version__, ir\n"
        "from core_compiler.support.errors import UserError\n"
        "from . import grouping\nfrom ..codegen import cpu\n"
    )
    assert violations(tmp_path) == []


def test_the_core_needs_no_framework() -> None:
    names = [
        name
        for _, name in modules(ROOT, "core_compiler")
        if name.split(".")[1:2] != ["frontends"] and not name.endswith("__main__")
    ]
    import_without(FRAMEWORKS, "core_compiler", *names)


def test_the_command_line_starts_without_the_page() -> None:
    import_without(FRAMEWORKS, "workbench", "workbench.commands.cli")


def test_the_catalogue_needs_no_framework() -> None:
    import_without(FRAMEWORKS, "sample_models", "sample_models.export")


def test_the_probe_sees_an_import() -> None:
    with pytest.raises(AssertionError, match="json was imported"):
        import_without(("json",), "core_compiler", "json")
