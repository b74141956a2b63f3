"""Writing models: in one file, or with the weights beside it, streamed one after the other.

External data are those of the ONNX format (onnx/docs/ExternalData.md): one file in the model's
folder, each tensor at an offset of whole pages, so that a reader can map it.
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

#: The largest message of protobuf, with room for what its own encoding adds.
LARGEST = (1 << 31) - (1 << 20)
#: Where a tensor may begin in the data file, and the size from which one lies there.
PAGE = 4096
BESIDE_FROM = 1024
_CHUNK = 1 << 24


def size(made: Unfilled) -> int:
    """Bytes that the model has with its weights inside."""
    return made.model.ByteSize() + sum(map(_bytes, (array for _, array in made.weights)))


def _bytes(array: np.ndarray) -> int:
    return array.size * array.dtype.itemsize


def fill(weights: Sequence[tuple[Any, np.ndarray]]) -> None:
    """Put the arrays into their ``TensorProto``s."""
    from onnx import numpy_helper

    for held, array in weights:
        if _is_packed(array):
            held.raw_data = numpy_helper.from_array(array).raw_data  # several to a byte
        else:
            held.raw_data = np.ascontiguousarray(array).tobytes()


def write(made: Unfilled, path: Path, largest: int) -> list[Path]:
    """Write the model to ``path``; beside it the weights where it would have more than ``largest``
    bytes.  The files, the model's first.

    They take the places of older ones when all are complete, the model last.
    """
    inside, apart = list(made.weights), []
    if size(made) > min(largest, LARGEST):
        inside = [pair for pair in made.weights if not _lies_beside(pair[1])]
        apart = [pair for pair in made.weights if _lies_beside(pair[1])]
    fill(inside)
    beside = path.with_name(f"{path.name}.data")
    with replacing(path) as stream, replacing(beside) if apart else nullcontext(stream) as data:
        for held, array in apart:
            offset = -(-data.tell() // PAGE) * PAGE
            data.write(bytes(offset - data.tell()))
            _stream(data, array)
            _refer(held, beside.name, offset, data.tell() - offset)
        if made.model.ByteSize() > LARGEST:
            raise UserError(
                f"the model without its weights has {made.model.ByteSize():,} bytes, more than the "
                "2 GiB of protobuf", str(path), "export a smaller model",
            )  # fmt: skip
        stream.write(made.model.SerializeToString(deterministic=True))
        stream.flush()
    return [path, beside] if apart else [path]


def _lies_beside(array: np.ndarray) -> bool:
    """Whether an array is stored in the data file: small ones, and those of which several elements
    share a byte, stay in the model."""
    return not _is_packed(array) and _bytes(array) >= BESIDE_FROM


def _is_packed(array: np.ndarray) -> bool:
    """Whether ONNX stores several elements in a byte."""
    return dtype(array.dtype).bits < 8 and array.dtype != np.bool_


def _stream(stream, array: np.ndarray) -> None:
    """The bytes of an array, a part at a time: of a mapped one no more is in memory."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _CHUNK):
        stream.write(flat[start : start + _CHUNK].data)


def _refer(held, location: str, offset: int, length: int) -> None:
    import onnx

    held.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        held.external_data.add(key=key, value=str(value))
