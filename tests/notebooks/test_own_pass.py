"""A pass that is written in a cell: its text goes into the recording, and makes the pass again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import core_compiler as cc
from core_compiler.record import Recording
from tests.passes.programs import program
from workbench.model import edits

ROOT = Path(__file__).resolve().parent.parent.parent

CELLS = (
    """
from dataclasses import dataclass
import numpy as np
import core_compiler as cc
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Rule, apply_rules, op
from tests.passes.programs import program

module = program(lambda b, x: b.relu(b.relu(x)), "4xf32")
""",
    """
def _once(b, m):
    return b.relu(m["x"])

_TWICE = Rule("relu of relu", op("relu", op("relu", "x")), _once)
""",
    """
@dataclass(frozen=True)
class Once(Pass):
    '''A relu of a relu is one relu.'''

    most: int = 3

    def run(self, module, context):
        rules = (_TWICE,)[: int(np.int64(self.most))]
        return context.rewrite(module, lambda rw: apply_rules(rw, rules, module.weights))
""",
    """
made = cc.compile(module, edit=cc.PipelineEdit(insert=((0, Once(most=2)),)), finish=False)
made.step()
made.record("cell.run")
""",
    """
w = made.show()
view = w.view("pipeline")
import json
draft = json.loads(view.view.data)["shown"]["draft"]
view.view.command = json.dumps({"name": "rerun", "draft": draft, "n": 1})
print(view.view.detail)
""",
)


@pytest.mark.slow
def test_a_pass_of_a_cell_is_recorded_and_edited_further(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="notebooks need jupyterlab")
    nbclient = pytest.importorskip("nbclient", reason="notebooks need jupyterlab")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    told = json.loads(notebook.cells[-1].outputs[-1]["text"])
    assert told["state"] != "failed", told

    with Recording.open(tmp_path / "cell.run") as run:
        edit = run.meta()["edit"]
    (item,) = edit["insert"]
    assert (item["class"], item["options"]) == ("Once", {"most": "2"})
    assert "A relu of a relu is one relu." in item["code"]
    ours = program(lambda b, x: b.relu(b.relu(x)), "4xf32")
    again = cc.compile(ours, edit=edits.from_json(edit), finish=False)
    assert [rewrite.rule for rewrite in again.step().rewrites] == ["relu of relu"]
