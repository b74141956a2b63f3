"""Reading of untrusted ``.pt2`` archives of ``torch.export.save``.

Torch's own loader executes the contents of a file in four ways: it falls back to full pickle,
evaluates symbolic expressions as Python (``sympify``), imports modules that tree specs name, and
generates Python source from names in the graph.  Here the archive's structure and sizes are checked
first, every string of the program is checked (:mod:`.program_json`), tensors are read from their
raw bytes or by the restricted unpickler, and only then torch rebuilds the program.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from core_compiler.frontends.pytorch.program_json import Unsafe, checked
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import need_regular
from core_compiler.support.torch_operators import QUANTISED, library

TRUST = "if you trust the file's author, pass --trust to read it with torch's own loader"
DAMAGED = "the file is damaged or in another format; export it again"

#: The maximum number of entries of an archive, and of bytes of its JSON parts.
ENTRIES = 100_000
JSON_BYTES = 1 << 30
#: Larger example inputs are skipped.
EXAMPLE_BYTES = 1 << 30

_RECORD = re.compile(r"^(weight|tensor)_\d+$")


def read_pt2(path: Path | str, trust: bool = False):
    """Return the ``torch.export.ExportedProgram`` of a ``.pt2`` file.

    Without ``trust`` nothing in the file is executed or fully unpickled; if that would be
    necessary, raise a UserError that suggests ``--trust``.  Example inputs that would need it are
    skipped.  Tensors are loaded to the CPU.  Raise UserError for a damaged or foreign file, or one
    that is too old.
    """
    path = Path(path)
    where = str(path)
    need_regular(path)
    if trust:
        return _load_trusted(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _Archive(archive, path.stat().st_size, where).program()
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        EOFError,
        OSError,
        NotImplementedError,
        UnicodeDecodeError,
    ) as error:
        raise UserError(
            f"not a readable .pt2 archive ({_first_line(error)})", where, DAMAGED
        ) from None
    except Unsafe as reason:
        raise UserError(f"the file cannot be read safely: {reason}", where, TRUST) from None


def _load_trusted(path: Path):
    import torch

    library(QUANTISED)
    try:
        return torch.export.load(path)
    except Exception as error:
        raise UserError(
            f"torch.export.load failed: {_first_line(error)}", str(path), DAMAGED
        ) from error


class _Archive:
    """The entries of an archive, by their path below its root folder."""

    def __init__(self, archive: zipfile.ZipFile, size: int, where: str):
        self.archive, self.where = archive, where
        self.entries = self._entries(archive.infolist(), size)
        if "archive_format" not in self.entries:
            raise UserError(
                "not a .pt2 archive: it has no archive_format",
                where,
                "write it with torch.export.save of torch 2.8 or newer",
            )
        if self.bytes("archive_format", 16) != b"pt2":
            raise UserError("archive_format is not pt2", where, DAMAGED)
        if "byteorder" in self.entries and self.bytes("byteorder", 16) != b"little":
            raise UserError(
                "the archive was written on a big-endian machine",
                where,
                "export it on a little-endian machine",
            )

    def _entries(self, infos, size: int) -> dict[str, zipfile.ZipInfo]:
        """Return the entries by name; raise UserError for unsafe paths, zip bombs and repeats."""
        if not 0 < len(infos) <= ENTRIES:
            raise UserError(
                f"the archive has {len(infos)} entries, expected 1 to {ENTRIES}",
                self.where,
                DAMAGED,
            )
        found: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            parts = PurePosixPath(info.filename).parts
            if not parts or info.filename.startswith("/") or ".." in parts or "\\" in info.filename:
                raise UserError(
                    f"entry {info.filename[:80]!r} points outside the archive", self.where, DAMAGED
                )
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise UserError(
                    f"entry {info.filename[:80]!r} is compressed or encrypted",
                    self.where,
                    "export it again with torch.export.save, which stores entries uncompressed",
                )
            if info.file_size != info.compress_size or info.header_offset + info.file_size > size:
                raise UserError(
                    f"entry {info.filename[:80]!r} is longer than the file", self.where, DAMAGED
                )
            name = "/".join(parts[1:])
            if name in found:
                raise UserError(f"duplicate entry {name[:80]!r}", self.where, DAMAGED)
            found[name] = info
        if sum(i.file_size for i in found.values()) > size:
            raise UserError("the entries are longer than the file", self.where, DAMAGED)
        return found

    def bytes(self, name: str, limit: int) -> bytes:
        info = self.entries.get(name)
        if info is None:
            raise UserError(f"{name} not found in the archive", self.where, DAMAGED)
        if info.file_size > limit:
            raise UserError(
                f"{name} has {info.file_size} bytes, expected at most {limit}", self.where, DAMAGED
            )
        return self.archive.read(info)

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.bytes(name, JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{name} is not valid JSON ({_first_line(error)})", self.where, DAMAGED
            ) from None

    # -- the program -------------------------------------------------------------------------------

    def program(self):
        """Rebuild the program: check the JSON, read the tensors, then run torch's deserialiser."""
        from torch._export.serde import schema
        from torch._export.serde.serialize import ExportedProgramDeserializer, _dict_to_dataclass

        model = self._model()
        described = checked(self.json(f"models/{model}.json"))
        weights = self._tensors("weights", model)
        constants = self._tensors("constants", model)
        examples = self._examples(model)
        try:
            typed = _dict_to_dataclass(schema.ExportedProgram, described)
            return ExportedProgramDeserializer().deserialize(typed, weights, constants, examples)
        except Exception as error:
            raise UserError(
                f"torch cannot deserialise the program ({_first_line(error)})",
                self.where,
                "the file is damaged or from another version of torch; export it again",
            ) from None

    def _model(self) -> str:
        names = [
            n[len("models/") : -len(".json")]
            for n in self.entries
            if n.startswith("models/") and n.endswith(".json")
        ]
        if len(names) != 1:
            raise UserError(
                f"expected one program in the archive, got {len(names)}",
                self.where,
                "save one ExportedProgram per file",
            )
        return names[0]

    def _examples(self, model: str):
        """Return ``(args, kwargs)`` read by the restricted unpickler, or None on failure."""
        import torch

        name = f"data/sample_inputs/{model}.pt"
        if name not in self.entries or not self.entries[name].file_size:
            return None
        held = self.bytes(name, EXAMPLE_BYTES)
        if not _is_stored_zip(held):
            return None
        try:
            found = torch.load(io.BytesIO(held), weights_only=True, map_location="cpu")
        except Exception:  # any failure: the program does not need its examples
            return None
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple)):
            return None
        tensors = [t for t in (*found[0], *dict(found[1]).values()) if isinstance(t, torch.Tensor)]
        large = sum(t.numel() * t.element_size() for t in tensors) > EXAMPLE_BYTES
        return None if large or any(t.layout != torch.strided for t in tensors) else found

    # -- tensors -----------------------------------------------------------------------------------

    def _tensors(self, kind: str, model: str) -> dict[str, Any]:
        """Return weights or constants by their name in the model."""
        if f"data/{kind}/{model}.pt" in self.entries:
            raise Unsafe(f"the {kind} are pickled (an old format)")
        config = self.json(f"data/{kind}/{model}_{kind}_config.json")
        try:
            payloads = dict(config["config"])
            storages: dict[str, Any] = {}
            return {name: self._tensor(kind, name, p, storages) for name, p in payloads.items()}
        except (
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
            RuntimeError,
            OverflowError,
        ) as error:
            raise UserError(
                f"invalid description of the {kind} ({_first_line(error)})", self.where, DAMAGED
            ) from None

    def _tensor(self, kind: str, name: str, payload, storages: dict[str, Any]):
        import torch

        file = payload["path_name"]
        if payload["use_pickle"] or not _RECORD.match(file):
            raise Unsafe(f"{kind} {name[:80]!r} is a pickled object")
        element = _dtype(payload["tensor_meta"]["dtype"])
        meta = payload["tensor_meta"]
        shape, strides = ([_number(d) for d in meta[k]] for k in ("sizes", "strides"))
        offset = _number(meta["storage_offset"])
        if file not in storages:
            storages[file] = self._storage(f"data/{kind}/{file}")
        raw = storages[file]
        extent = (
            0
            if 0 in shape
            else 1 + offset + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        )
        if extent * element.itemsize > len(raw):
            raise UserError(
                f"{kind} {name[:80]!r} needs {extent * element.itemsize} bytes, "
                f"{len(raw)} are stored",
                self.where,
                DAMAGED,
            )
        if 0 in shape:
            tensor = torch.empty(shape, dtype=element)
        else:
            flat = torch.frombuffer(raw, dtype=element, count=len(raw) // element.itemsize)
            tensor = flat.as_strided(shape, strides, offset)
        if payload["is_param"]:
            return torch.nn.Parameter(tensor, requires_grad=bool(meta["requires_grad"]))
        return tensor

    def _storage(self, name: str) -> bytearray:
        info = self.entries.get(name)
        if info is None:
            raise UserError(f"{name} not found in the archive", self.where, DAMAGED)
        raw = bytearray(info.file_size)
        with self.archive.open(info) as opened:
            stream: Any = opened  # a ZipExtFile, whose stubs lack readinto
            if stream.readinto(raw) != len(raw):
                raise UserError(f"{name} is truncated", self.where, DAMAGED)
            stream.read(1)  # the checksum is compared at the end of the entry
        return raw


def _is_stored_zip(held: bytes) -> bool:
    """Return whether a torch file in the archive is a zip of stored entries of bounded size."""
    try:
        with zipfile.ZipFile(io.BytesIO(held)) as inner:
            infos = inner.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return all(i.compress_type == zipfile.ZIP_STORED for i in infos) and sum(
        i.file_size for i in infos
    ) <= len(held)


def _dtype(number: int):
    from torch._export.serde.schema import ScalarType
    from torch._export.serde.serialize import deserialize_scalar_type

    return deserialize_scalar_type(ScalarType(number))


def _number(held) -> int:
    value = held["as_int"]
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"invalid size {value!r}")
    return value


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
