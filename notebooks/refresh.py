"""Runs the notebooks and stores their outputs: ``python notebooks/refresh.py [NAME ...]``.

Widgets are live only while a kernel runs: of a cell that shows one, the plain form is stored.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path) -> None:
    """Execute a notebook from top to bottom and write it with what its cells showed."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(HERE.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for each in sorted(HERE.glob("*.ipynb")):
        if not sys.argv[1:] or any(name in each.stem for name in sys.argv[1:]):
            refresh(each)
            print(each.name)
