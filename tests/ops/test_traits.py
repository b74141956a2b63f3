"""Traits: what ops promise is declared on them, read by somebody, and stands in no other list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import core_compiler
from core_compiler.ops import REGISTRY
from core_compiler.ops.traits import TRAITS, has_trait, kinds_with, traits
from core_compiler.support.errors import InternalError

ROOT = Path(core_compiler.__file__).parent.parent
#: Where op names are spelled out because that is what the code is: declarations, and the names that
#: formats and frameworks have for them.  The layers of kernels spell their own ops, many of which
#: have the name of the tensor op that they compute.
NAMING = ("ops", "frontends", "exporters", "numerics", "kernel_ir", "codegen", "scheduling")
#: Lists of at least three names are tables.
FEW = 3
#: The tables that are left, each with its reason.
TABLES = {
    "core_compiler/debug/equal_elements.py: _HANDED_ON": "the file evaluates each of these by hand",
    "core_compiler/debug/launch_cases.py: _CALCULATE": "what a check of all integers is sound for",
    "core_compiler/debug/ties.py: FORMULAS": "subgradients written a second time, as an oracle",
    "core_compiler/debug/ties.py: GRIDS": "where the special cases of those oracles lie",
    "core_compiler/debug/ties.py: BROKEN": "which of equal elements gets the gradient: an oracle",
    "core_compiler/debug/torch_gradients.py: _PLAIN": "functions of torch that have the op's name",
    "core_compiler/debug/torch_gradients.py: COUNTERPARTS": "the same function in torch: an oracle",
    "core_compiler/passes/saturation/moves.py: rules": "a broadcast of one is a rule elsewhere",
    "core_compiler/training/passes/shard_batch.py: _LINEAR": "the forms of a loss that it knows",
    "workbench/queries/links.py: FEEDS": "an order among what says little about a selection",
}
#: Tables of other names, some of which are op names as well.
OTHERS = {
    "core_compiler/debug/elementary.py: _NAMED": "functions of the numerics contract",
    "core_compiler/debug/elementary.py: _NUMPY": "functions of the numerics contract",
    "core_compiler/lowering/reduction_nests.py: COMBINE": "kinds of reductions and kernel ops",
    "core_compiler/training/graph/initializers.py: GAINS": "nonlinearities as torch calls them",
}


def _tables(path: Path) -> Iterator[str]:
    """The names of the tables of op names in a file, or the lines where they have none."""
    names = {*REGISTRY, *(declared.name for declared in REGISTRY.values())}
    tree = ast.parse(path.read_text())
    called = {
        inner: ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            items = node.keys
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            items = node.elts
        else:
            continue
        words = [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)]
        found = [word for word in words if word in names]
        if len(found) >= FEW and 2 * len(found) > len(words):
            where = called.get(node, f"line {node.lineno}")
            yield f"{path.relative_to(ROOT).as_posix()}: {where}"


def test_op_names_stand_in_few_tables():
    found = []
    for package in ("core_compiler", "workbench", "widgets"):
        for path in sorted((ROOT / package).rglob("*.py")):
            inner = path.relative_to(ROOT / package).parts[0]
            if package != "core_compiler" or inner not in NAMING:
                found += _tables(path)
    assert len(TABLES) <= 10
    assert sorted(set(found) - OTHERS.keys()) == sorted(TABLES)
    assert OTHERS.keys() <= set(found)


def test_each_trait_is_declared_and_read():
    read = "\n".join(
        path.read_text()
        for path in sorted((ROOT / "core_compiler").rglob("*.py"))
        if path.name != "traits.py"
    )
    for trait in TRAITS:
        assert any(trait in declared.traits for declared in REGISTRY.values()), trait
        calls = rf'(has_trait|kinds_with)\([^)]*"{trait}"'
        asked = re.search(rf'{calls}|"{trait}" (not )?in |& {{[^}}]*"{trait}"', read)
        assert asked, f"nothing asks for {trait}"


def test_what_is_asked_of_an_op():
    assert has_trait("core.add", "commutative") and not has_trait("core.sub", "commutative")
    assert not has_trait("target.launch", "view")
    assert kinds_with("shape_only") == ("core.broadcast", "core.reshape", "core.transpose")
    for ask in (traits, kinds_with, lambda name: has_trait("core.add", name)):
        with pytest.raises(InternalError, match="unknown trait 'comutative'"):
            ask("comutative")
