"""The same input gives the same bytes: two processes with different hash seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sample_models import CATALOGUE
from sample_models.export import export_onnx
from tests.sample_models.narrow import NARROW

ROOT = Path(__file__).resolve().parents[2]

#: Compiles one model and prints digests of everything that must not depend on the process.
SCRIPT = """
import hashlib, json, sys
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir.text import print_module
from core_compiler.numerics.reference.digest import digest
from core_compiler.runtime.kernel_cache import toolchain
from workbench.model import models
from workbench.model.spec import read_spec

name, frontend, sizes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model = models.load(read_spec(name, frontend, **sizes), cache=False)
made = compilation.start(model.imported.module, "cpu", Options(threads=2), model.inputs).finish()
sha = lambda text: hashlib.sha256(text.encode()).hexdigest()[:16]
print(json.dumps({
    "hash": hash("seed"),
    "stages": [[s.name, sha(print_module(s.module, locations="full"))] for s in made.stages],
    "rewrites": [[s.name, [r.rule for r in s.rewrites]] for s in made.stages],
    "sources": {n: sha(c.text("source.py")) for n, c in made.facts["compiled"].items()},
    "keys": {n: c.ref.key for n, c in made.facts["compiled"].items()},
    "program": sha(made.facts["program"][0].to_json()),
    "identity": made.identity,
    "digest": digest(made(*model.inputs)),
}))
"""

#: The fast run takes a file; importing it needs no framework.
SMALL = "digits-mlp"


def compiled_with(seed: str, name: str, frontend: str, sizes: dict[str, float]) -> dict:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, frontend, json.dumps(sizes)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def _same_bytes(name: str, frontend: str, sizes: dict[str, float]) -> None:
    first, second = (compiled_with(seed, name, frontend, sizes) for seed in ("1", "4242"))
    assert first.pop("hash") != second.pop("hash"), "the seeds reached the processes"
    for what in first:
        assert first[what] == second[what], what


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_bytes_for_a_file():
    _same_bytes(str(export_onnx(SMALL, **NARROW[SMALL])), "onnx", {})


@pytest.mark.slow
@pytest.mark.parametrize("frontend", ["torch", "onnx"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_two_hash_seeds_give_the_same_bytes(name, frontend):
    """Of a model that each process makes, and exports to its own file."""
    _same_bytes(name, frontend, NARROW[name])
