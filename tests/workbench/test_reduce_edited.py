"""The compiler's own files with a mistake in them, as somebody who works on it has them: what
``--check`` finds is reduced, and the reproducer says whether the mistake is mended."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = """
import numpy as np
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.c(torch.sigmoid(self.b(h)) * h)


def net():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(5, 6),)


def task():
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    return Net(), (random.standard_normal((32, 6)).astype(np.float32), random.integers(0, 6, 32))
"""
#: What is edited -> the file, its text and the mistake in its place, and what tells of it.
MISTAKES = {
    "gradient": (
        "core_compiler/ops/gradients/elementwise.py",
        "dy * (1 - y * y)",
        "dy * (1 - y)",
        "differentiate",
        "gradient of core.tanh",
    ),
    "schedule": (
        "core_compiler/scheduling/transforms/vectorise.py",
        "    steps = _strides(op, iv, defs)\n",
        "    steps, whole = _strides(op, iv, defs), True\n",
        "schedule_kernels",
        "",
    ),
    "memory": (
        "core_compiler/passes/plan_memory.py",
        "int(offsets[interval.value])",
        "0",
        "plan_memory",
        "place a buffer",
    ),
}


def run(tree: Path, *words: object, cwd: Path) -> tuple[int, str]:
    """(exit code, output) of a Python process that has ``tree`` alone."""
    paths = os.pathsep.join(map(str, (tree, cwd)))
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    return done.returncode, done.stdout or done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_compiler(name, tmp_path):
    pytest.importorskip("torch")
    file, right, mistaken, pass_, rule = MISTAKES[name]
    tree, here = tmp_path / "tree", tmp_path / "here"
    for package in ("core_compiler", "workbench", "sample_models"):
        shutil.copytree(
            ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    here.mkdir()
    (here / "small.py").write_text(MODELS)
    text = (tree / file).read_text()
    assert text.count(right) == 1
    (tree / file).write_text(text.replace(right, mistaken))

    workbench = ("-m", "workbench")
    if name == "gradient":
        what = ("train", "small:task", "--iterations", 1, "--batch", 4)
        subject = ("x.run",)
    else:
        what, subject = ("compile", "small:net"), ("small:net",)
    code, out = run(tree, *workbench, *what, "--check", "-o", "x.run", "--json", cwd=here)
    assert code == 1, out
    row = json.loads(out)["failures"][0]
    assert row["pass"] == pass_ and rule in row["rule"]
    code, out = run(tree, *workbench, "reduce", *subject, "-o", "out", "--json", cwd=here)
    assert code == 1, out
    made = json.loads(out)
    assert (made["pass"], made["runs_alone"], made["stopped"]) == (pass_, True, None)
    assert made["what"].startswith(re.sub(r"\d+", "N", row["rule"]))
    assert made["ops_after"] <= 3 < made["ops_before"]

    empty = tmp_path / "empty"
    shutil.copytree(here / "out", empty)
    code, out = run(tree, "reproducer.py", cwd=empty)
    assert code == 1 and out.startswith(f"FAILS: pass {pass_}, ")
    assert run(ROOT, "reproducer.py", cwd=empty) == (
        0,
        f"gone: pass {pass_} runs without a failure\n",
    )
