"""Sample models as files: `.onnx` with external data, and `.pt2` of torch.export.

Exports are cached in `models` of the compiler's cache folder, under a key of everything that
determines their content: name, sizes, the source of this package and the versions of the exporting
libraries. A cache hit imports no framework.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.runtime.cache_folder import default_root
from core_compiler.support.errors import UserError
from sample_models.catalogue import Built, build, check_sizes

if TYPE_CHECKING:
    import torch

#: Longest sequence that an exported model may be called with; its positions may end before.
_LONGEST = 1 << 16
_LIBRARIES = ("torch", "transformers", "onnxscript", "onnx-ir", "onnx", "numpy", "scikit-learn")


def export_onnx(
    name: str,
    folder: Path | str | None = None,
    *,
    opset: int = 18,
    optimize: bool = False,
    growing: bool = False,
    **sizes: Any,
) -> Path:
    """Write `NAME.onnx` and its weights `NAME.onnx.data`; return the path of the first.

    folder: where to put copies of the two files; None: return the cached ones (do not change
    them). optimize: let torch's exporter fold constants and batch norms; by default the file is
    the exporter's plain translation, which leaves that work to the compiler's own passes.
    growing: let the lengths of sequences vary (of a model that has them). sizes: as for `build`.
    """

    def write(built: Built, path: Path) -> None:
        import torch

        program = torch.onnx.export(
            built.module,
            built.example_inputs,
            dynamo=True,
            opset_version=opset,
            optimize=optimize,
            input_names=list(built.input_names),
            output_names=list(built.output_names),
            dynamic_shapes=_growing(built) if growing else None,
            verbose=False,
        )
        assert program is not None  # dynamo=True returns a program
        program.save(path, external_data=True)

    options: dict[str, Any] = {"opset": opset, "optimize": optimize}
    if growing:
        options["growing"] = True
    return _cached(name, "onnx", folder, options, sizes, write)


def export_pt2(name: str, folder: Path | str | None = None, **sizes: Any) -> Path:
    """Write `NAME.pt2`, the archive of `torch.export.save`; return its path.

    folder: where to put a copy; None: return the cached file (do not change it). sizes: as for
    `build`.
    """

    def write(built: Built, path: Path) -> None:
        import torch

        torch.export.save(exported(built), path)

    return _cached(name, "pt2", folder, {}, sizes, write)


def exported(built: Built, growing: bool = False) -> torch.export.ExportedProgram:
    """Return the model as torch exports it; `growing` as for `export_onnx`."""
    import torch

    shapes = _growing(built) if growing else None
    with torch.no_grad():
        return torch.export.export(
            built.module,
            built.example_inputs,
            dynamic_shapes=shapes,
            # Some facts that hold for every length are beyond torch's solver (grouped attention).
            prefer_deferred_runtime_asserts_over_guards=growing,
        )


def _growing(built: Built) -> tuple[dict[int, Any], ...]:
    """Return the axes of each input that may have another length, for torch's exporters."""
    import torch

    axes: Any = getattr(built.module, "growing", None)
    if axes is None:
        raise UserError(
            f"{type(built.module).__name__} has no sequence that grows",
            "export",
            "choose gpt2, gpt2-decode or llama-4l",
        )
    length = torch.export.Dim("length", min=2, max=_LONGEST)
    return tuple({axes[name]: length} if name in axes else {} for name in built.input_names)


def cache_folder() -> Path:
    """Return the folder of cached exports: `models` in the compiler's cache folder."""
    return default_root() / "models"


def content_key(name: str, kind: str, options: dict[str, Any], sizes: dict[str, Any]) -> str:
    """Return the SHA-256 of everything that determines an export's content, in hexadecimal."""
    sources = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(__file__).parent.glob("*.py"))
    }
    versions = {library: _version(library) for library in _LIBRARIES}
    described = json.dumps([name, kind, options, sizes, sources, versions], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cached(
    name: str,
    kind: str,
    folder: Path | str | None,
    options: dict[str, Any],
    sizes: dict[str, Any],
    write: Callable[[Built, Path], None],
) -> Path:
    sizes = {"width": 1.0, "depth": None, "batch": 1, "seed": 0} | sizes
    sizes = {**check_sizes(name, **sizes).sizes, **sizes, "width": float(sizes["width"])}
    home = cache_folder() / f"{name}-{content_key(name, kind, options, sizes)[:24]}"
    path = home / f"{name}.{kind}"
    if not path.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        # Write to a temporary name and rename, so that no process reads a partial export.
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            fresh = Path(scratch) / "export"
            fresh.mkdir()
            with _quiet_exporter():
                write(build(name, **sizes), fresh / path.name)
            try:
                fresh.rename(home)
            except OSError:
                if not path.exists():  # else another process was first
                    raise
    if folder is None:
        return path
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file in sorted(home.iterdir()):
        shutil.copyfile(file, Path(folder) / file.name)
    return Path(folder) / path.name


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence torch's notes on torchvision, which we do not use, and on its own deprecations."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=FutureWarning)
            warnings.simplefilter("ignore", category=DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)
