"""The recordings behind a notebook's views: of a compilation, at a path, or in the library."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from core_compiler.driver.compilation import Compilation
from core_compiler.ir import Op
from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError, nearest
from workbench.app.library import Library, file_of, stem_of
from workbench.queries.run import Run


class CompilationRun(Run):
    """A recording of a compilation so far; its file is deleted when it is closed.

    ``op_ids``: the ids of the compilation's ops in it.
    """

    def __init__(self, made: Compilation):
        self._folder = tempfile.TemporaryDirectory(prefix="workbench-")
        path = Path(self._folder.name) / f"{stem_of(str(made.about.get('model', '')))}.run"
        with Recorder(path) as recorder:
            made.report(recorder)
            self.op_ids: Mapping[Op, int] = recorder.op_ids
        super().__init__(path)

    @override
    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def find(name: str | Path) -> Path:
    """Return the recording at a path, or of this name in the library; UserError if missing."""
    path, library = file_of(str(name)), Library()
    for each in (path, library.find(str(name)), library.find(f"{name}.run")):
        if each.is_file():
            return each
    folders = (library.folder, library.imported)
    known = [library.name(run).removesuffix(".run") for f in folders for run in f.glob("*.run")]
    fix = nearest(str(name), known, "pass a path, or a name that `workbench runs` lists")
    raise UserError("recording not found", str(name)[:300], fix)
