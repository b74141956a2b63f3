"""A disk cache of imported models, so that opening a known model again imports no framework.

An entry is the module's text (with origins), the weights as raw arrays, the example inputs and the
source files. Its key covers everything that determines them: the model file's own hash (or the
sample's sizes), the source of the frontends, and the versions of the libraries.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import io
import json
import mmap
from collections.abc import Sequence, Set
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import core_compiler
from core_compiler.frontends.base import Imported
from core_compiler.ir import Resource, WeightStore, dtype
from core_compiler.ir.parser import parse
from core_compiler.ir.text import print_module
from core_compiler.ops.positions import Positions
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import inside, open_regular

if TYPE_CHECKING:
    from workbench.model.spec import Spec

KIND = "imports"
#: The names of an .onnx file's data files.
FILES = "import-files"
_LIBRARIES = (
    "torch",
    "transformers",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "jax",
    "jaxlib",
    "keras",
    "numpy",
    "scikit-learn",
)
#: Folders whose sources affect an import.
_PACKAGES = ("ir", "ops", "frontends")


def key(spec: Spec) -> str | None:
    """Return the entry's name; None for models that may not be cached.

    These are functions (which can return anything), SavedModels (folders that may grow),
    recordings (already in the right form), and ``.onnx`` files that do not name their data files.
    """
    if spec.kind in ("function", "saved_model", "recording"):
        return None
    if spec.kind == "sample":
        state = _state(spec)
        state.update(json.dumps(["sample", spec.text, sorted(spec.sizes.items())]).encode())
        return state.hexdigest()
    file_key = _file_key(spec)
    if spec.kind != "onnx":
        return file_key
    found = CacheFolder().get(FILES, file_key, "files.json")
    names = _data_files(spec, file_key) if found is None else json.loads(found)
    return None if names is None else _with_data(file_key, Path(spec.text), names)


def _state(spec: Spec):
    return hashlib.sha256(json.dumps([_versions(), _sources(), spec.frontend]).encode())


def _file_key(spec: Spec) -> str:
    """Return the key of the model file itself and the way it is read."""
    state = _state(spec)
    # A .keras file is lowered by the backend that Keras runs on.
    backend = _keras_backend() if spec.kind == "keras" else ""
    sizes = sorted(spec.sizes.items())
    state.update(json.dumps([spec.kind, spec.trust, backend, sizes]).encode())
    _add_file(state, Path(spec.text))
    return state.hexdigest()


def _keras_backend() -> str:
    from core_compiler.frontends.keras.backends import backend

    try:
        return backend()
    except UserError:  # the import reports the error
        return ""


def _data_files(spec: Spec, file_key: str) -> list[str] | None:
    """Return the data files that the ``.onnx`` file of ``file_key`` names, and remember them.

    None if it cannot be read, or has changed meanwhile.
    """
    try:
        from core_compiler.frontends.onnx.reading import external_files, read_model

        names = external_files(read_model(Path(spec.text)))
    except (ImportError, UserError, RecursionError):  # the import reports the error
        return None
    if _file_key(spec) != file_key:
        return None
    with suppress(UserError):
        CacheFolder().put(FILES, file_key, {"files.json": json.dumps(names).encode()})
    return names


def _with_data(file_key: str, path: Path, names: Sequence[str]) -> str | None:
    """Return the key of a model file with its external data; None if a data file is missing."""
    state = hashlib.sha256(file_key.encode())
    try:
        for name in names:
            state.update(json.dumps(name).encode())
            _add_file(state, inside(path.parent, name, "external data"))
    except (OSError, UserError):  # the import reports the error
        return None
    return state.hexdigest()


def _add_file(state, path: Path) -> None:
    with open_regular(path) as stream:
        state.update(hashlib.file_digest(stream, "sha256").digest())


def model_files(path: Path) -> list[Path]:
    """Return a model file and the files that include its name, usually its external data."""
    return [
        path,
        *sorted(
            p for p in path.parent.glob(f"{glob.escape(path.name)}*") if p != path and p.is_file()
        ),
    ]


def put(name: str | None, spec: Spec, imported: Imported, inputs, others) -> None:
    """Store an import under its :func:`key` from before it, unless the files have changed since.

    Errors of a full or read-only cache are ignored.
    """
    with suppress(UserError, OSError):
        if name is not None and key(spec) == name:
            CacheFolder().put(KIND, name, _entry_files(imported, inputs, others))


def _entry_files(imported: Imported, inputs, others) -> dict[str, bytes]:
    """Return the files of an entry."""
    module = imported.module
    arrays = _Arrays()
    digests = dict.fromkeys(
        v.digest for op in module.walk() for v in op.attributes.values() if isinstance(v, Resource)
    )
    weights = {d: arrays.add(module.weights[d]) for d in digests}
    head = {
        "inputs": imported.inputs,
        "outputs": imported.outputs,
        "sources": dict(imported.sources),
        "facts": dict(imported.facts),
        "weights": weights,
        "positions": None if imported.positions is None else imported.positions.to_json(),
        "first": [arrays.add(a) for a in inputs],
        "second": [arrays.add(a) for a in others],
    }
    return {
        "module.mlir": print_module(module, locations="full").encode(),
        "head.json": json.dumps(head).encode(),
        "arrays.bin": arrays.stream.getvalue(),
    }


def get(name: str):
    """Return ``(imported, inputs, other inputs)`` of an entry, or None."""
    files = CacheFolder().get_all(KIND, name)
    if files is None:
        return None
    head = json.loads(bytes(files["head.json"]))  # a large file is memory-mapped
    data = files["arrays.bin"]
    store = WeightStore()
    for digest, location in head["weights"].items():
        store.put(digest, _array(data, location))
    module = parse(bytes(files["module.mlir"]).decode(), weights=store, where="import cache")
    first, second = ([_array(data, p) for p in head[k]] for k in ("first", "second"))
    state = tuple(first[len(first) - head["facts"].get("state", 0) :])
    checked = head["positions"]
    imported = Imported(
        module,
        tuple(head["inputs"]),
        tuple(head["outputs"]),
        head["sources"],
        head["facts"],
        state,
        positions=None if checked is None else Positions.from_json(checked),
    )
    return imported, tuple(first), tuple(second)


def find_weights(digests: Set[str]) -> dict[str, np.ndarray]:
    """Return the weights of these digests, from any entries that have them."""
    cache, found = CacheFolder(), dict[str, np.ndarray]()
    for name in cache.keys(KIND) if digests else ():
        try:  # a lookup does not count as a use of the entry
            weights = json.loads((cache.path(KIND, name) / "head.json").read_bytes())["weights"]
            needed = [d for d in weights if d in digests and d not in found]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        files = cache.get_all(KIND, name) if needed else None
        if files is not None:
            found |= {d: _array(files["arrays.bin"], weights[d]) for d in needed}
        if len(found) == len(digests):
            break
    return found


class _Arrays:
    """Arrays written consecutively, 64-byte aligned; ``add`` returns (dtype, shape, offset)."""

    def __init__(self):
        self.stream = io.BytesIO()

    def add(self, array: np.ndarray) -> list:
        self.stream.write(b"\0" * (-self.stream.tell() % 64))
        offset = self.stream.tell()
        self.stream.write(np.ascontiguousarray(array).tobytes())
        return [dtype(array.dtype).name, list(array.shape), offset]


def _array(data: bytes | mmap.mmap, location) -> np.ndarray:
    name, shape, offset = location
    kind = dtype(name).numpy
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(data, kind, count, offset).reshape(shape)


@lru_cache(maxsize=1)
def _sources() -> str:
    """Return one hash over the sources of our frontends and the sample models."""
    import sample_models

    state = hashlib.sha256()
    root = Path(core_compiler.__file__).parent
    folders = [root / name for name in _PACKAGES] + [Path(sample_models.__file__).parent]
    this_file = Path(__file__)
    for folder in folders:
        for path in (*sorted(folder.rglob("*.py")), this_file, this_file.with_name("models.py")):
            state.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> list:
    found: list[list[str | None]] = []
    for library in _LIBRARIES:
        try:
            found.append([library, importlib.metadata.version(library)])
        except importlib.metadata.PackageNotFoundError:
            found.append([library, None])
    return found
