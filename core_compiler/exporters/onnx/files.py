"""Writing of models: in one file, or with the weights streamed to a file next to it.

External data follow the ONNX format (onnx/docs/ExternalData.md): one file in the model's folder,
each tensor at a page-aligned offset, so that a reader can map it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.exporters.base import replacing
from core_compiler.exporters.onnx.proto import Unfilled
from core_compiler.ir import dtype
from core_compiler.support.errors import UserError

#: The largest protobuf message, with room for the overhead of its encoding.
LARGEST = (1 << 31) - (1 << 20)
#: The alignment of tensors in the data file, and the minimum size of a tensor stored there.
PAGE_SIZE = 4096
MIN_EXTERNAL_BYTES = 1024
_CHUNK = 1 << 24


def size(made: Unfilled) -> int:
    """Return the size of the model in bytes, including its weights."""
    return made.model.ByteSize() + sum(map(_bytes, (array for _, array in made.weights)))


def _bytes(array: np.ndarray) -> int:
    return array.size * array.dtype.itemsize


def fill(weights: Sequence[tuple[Any, np.ndarray]]) -> None:
    """Copy the arrays into their ``TensorProto`` messages."""
    from onnx import numpy_helper

    for held, array in weights:
        if _is_packed(array):
            held.raw_data = numpy_helper.from_array(array).raw_data  # several elements share a byte
        else:
            held.raw_data = np.ascontiguousarray(array).tobytes()


def write(made: Unfilled, path: Path, largest: int) -> list[Path]:
    """Write the model to ``path`` and return the files, the model's first.

    Weights go to a file next to it if it would have more than ``largest`` bytes.  Existing files
    are replaced when all new ones are complete, the model last.
    """
    embedded, external = list(made.weights), []
    if size(made) > min(largest, LARGEST):
        embedded = [pair for pair in made.weights if not _is_external(pair[1])]
        external = [pair for pair in made.weights if _is_external(pair[1])]
    fill(embedded)
    data_path = path.with_name(f"{path.name}.data")
    with (
        replacing(path) as stream,
        replacing(data_path) if external else nullcontext(stream) as data,
    ):
        for held, array in external:
            offset = -(-data.tell() // PAGE_SIZE) * PAGE_SIZE
            data.write(bytes(offset - data.tell()))
            _stream(data, array)
            _set_external(held, data_path.name, offset, data.tell() - offset)
        if made.model.ByteSize() > LARGEST:
            raise UserError(
                f"the model without its weights has {made.model.ByteSize():,} bytes, more than the "
                "2 GiB of protobuf",
                str(path),
                "export a smaller model",
            )
        stream.write(made.model.SerializeToString(deterministic=True))
        stream.flush()
    return [path, data_path] if external else [path]


def _is_external(array: np.ndarray) -> bool:
    """Return whether an array is stored in the data file.

    Small arrays, and those with several elements per byte, stay in the model.
    """
    return not _is_packed(array) and _bytes(array) >= MIN_EXTERNAL_BYTES


def _is_packed(array: np.ndarray) -> bool:
    """Return whether ONNX stores several elements in a byte."""
    return dtype(array.dtype).bits < 8 and array.dtype != np.bool_


def _stream(stream, array: np.ndarray) -> None:
    """Write the bytes of an array in chunks: only one chunk of a mapped array is in memory."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _CHUNK):
        stream.write(flat[start : start + _CHUNK].data)


def _set_external(held, location: str, offset: int, length: int) -> None:
    import onnx

    held.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        held.external_data.add(key=key, value=str(value))
