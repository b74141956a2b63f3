"""The notebooks run from top to bottom, and what is stored of them was made by such a run."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.slow import slow_but

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def nbformat() -> Any:
    """The library, imported by the process that runs these tests: it takes seconds."""
    return pytest.importorskip("nbformat", reason="notebooks need jupyterlab")


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", slow_but(("01_step_through_a_model",), [p.stem for p in NOTEBOOKS])
)
def test_a_notebook_runs(name, nbformat):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    nbclient = pytest.importorskip("nbclient", reason="notebooks need jupyterlab")
    pytest.importorskip("torch", reason="the sample models need torch")
    notebook = nbformat.read(path, as_version=4)
    cells = [c.source for c in notebook.cells]
    resources = {"metadata": {"path": str(ROOT)}}
    client = nbclient.NotebookClient(notebook, timeout=300, resources=resources)
    client.execute()  # CellExecutionError at the first cell that raises
    assert [c.source for c in notebook.cells] == cells


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_is_stored_can_be_read_without_running_it(path, nbformat):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    outputs = [o for c in cells for o in c.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    pictures = []
    for output in outputs:
        shown = dict(output.get("data", {}))
        pictures += [shown.pop("image/png")] if "image/png" in shown else []
        for kind, content in shown.items():
            assert kind in ("text/plain", "text/html")
            assert "<script" not in content and "/home/" not in content
    assert pictures, "no picture of a widget: python notebooks/refresh.py"
    for picture in pictures:
        drawn = Image.open(BytesIO(base64.b64decode(picture))).convert("RGB")
        assert drawn.width > 1000 and drawn.height > 300
        colours = drawn.resize((140, 60)).getcolors(1 << 16)
        assert max(count for count, _ in colours) < 0.9 * 140 * 60  # not an empty pane
    assert path.stat().st_size < 300_000
