"""Runs the notebooks and stores their outputs: ``python notebooks/refresh.py [NAME ...]``.

Widgets are live only while a kernel runs: of a cell that shows one, its plain form and a picture
are stored.  What the system says beside them (warnings of fonts and libraries) is left out, and
where on this machine the models lie.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from notebooks.pictures import STATE, Pictures, opened  # noqa: E402

WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path, pictures: Pictures) -> None:
    """Execute a notebook from top to bottom and write it with what its cells showed."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(HERE.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    state = notebook.metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
    for cell in notebook.cells:
        cell.metadata = {}
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        for output in cell.get("outputs", ()):
            shown = output.get("data", {}).pop(WIDGET, None)
            picture = None if shown is None else pictures.of(shown["model_id"], state)
            if picture is not None:
                output["data"]["image/png"] = base64.b64encode(picture).decode("ascii")
    text = nbformat.writes(notebook).replace(f"{HERE.parent}/", "")
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    with opened() as taken:
        for each in sorted(HERE.glob("*.ipynb")):
            if not sys.argv[1:] or any(name in each.stem for name in sys.argv[1:]):
                refresh(each, taken)
                print(each.name)
