"""Checkpoints: everything that the next iteration depends on, in one file.

The file has the format ``safetensors`` (tensors by name). Its metadata contains the receipt: the
iteration, the digest of the state, the numerics identity, the contract's version, the seeds, the
shards and, for data read as a stream, their position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.numerics.reference.dtypes import DTYPES, dtype_name
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import read_regular
from core_compiler.training.run import files

RECEIPT = "receipt"
#: The fix for a checkpoint from which a run cannot resume.
OLDER_FIX = "move it out of the folder, and --resume (resume=True) uses the one before"
#: The format's names of dtypes -> the contract's.
_DTYPES = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E5M2": "f8e5m2",
    "F8_E4M3": "f8e4m3fn",
    "F8_E5M2FNUZ": "f8e5m2fnuz",
    "F8_E4M3FNUZ": "f8e4m3fnuz",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U64": "u64",
    "U32": "u32",
    "U16": "u16",
    "U8": "u8",
    "BOOL": "bool",
}


def encode(state: Mapping[str, np.ndarray], receipt: Mapping[str, Any]) -> bytes:
    """Encode a checkpoint; raise UserError for a dtype that the format does not support."""
    from safetensors.numpy import save

    supported = _DTYPES.values()
    for name, array in state.items():
        if dtype_name(array.dtype) not in supported:
            raise UserError(
                f"unsupported dtype {dtype_name(array.dtype)} of {name}",
                "checkpoint",
                "train without a folder and workers",
            )
    held = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in state.items()}
    return save(held, {RECEIPT: json.dumps(dict(receipt))})


def decode(data: bytes, where: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Decode a checkpoint into (state, receipt); raise UserError if it is damaged or foreign."""
    from safetensors import SafetensorError

    try:
        state = tensors(data)
        size = int.from_bytes(data[:8], "little")
        found = json.loads(data[8 : 8 + size]).get("__metadata__", {})
        receipt = json.loads(found.get(RECEIPT, "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise _damaged(str(error), where) from None
    if RECEIPT not in found:
        raise UserError(
            "not a checkpoint of a training run", where, "pass a file that `workbench train` wrote"
        )
    if not isinstance(receipt, dict):
        raise _damaged("its receipt is not a JSON object", where)
    return state, receipt


def tensors(data: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file by name.

    The format's own reader for NumPy lacks bf16 and f8. Raise SafetensorError if the file is
    damaged, and ValueError for a dtype that the contract does not have.
    """
    from safetensors import deserialize

    made = {}
    for name, held in deserialize(data):
        kind = _DTYPES.get(held["dtype"])
        if kind is None:
            raise ValueError(f"unsupported dtype {held['dtype']} of {name}")
        made[name] = np.frombuffer(held["data"], DTYPES[kind]).reshape(held["shape"])
    return made


def _damaged(why: str, where: str) -> UserError:
    return UserError(f"the checkpoint is damaged: {why}", where, OLDER_FIX)


def write(path: Path, state: Mapping[str, np.ndarray], receipt: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically: the old file remains until the new one is on disk.

    Raise UserError if writing fails.
    """
    files.write(path, encode(state, receipt), "the checkpoint")


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return (state, receipt) of a checkpoint; raise UserError if it is damaged or foreign."""
    try:
        return decode(read_regular(path), str(path))
    except OSError as error:
        raise UserError(
            f"cannot read the checkpoint: {error.strerror}", str(path), "check the disk"
        ) from None


def name_of(iteration: int) -> str:
    return f"iteration-{iteration:08d}.safetensors"


def list_checkpoints(folder: Path) -> dict[int, Path]:
    """Return the checkpoints of a folder by their iteration, in order."""
    named = {p: re.fullmatch(r"iteration-(\d+)\.safetensors", p.name) for p in folder.glob("*")}
    return dict(sorted((int(match[1]), path) for path, match in named.items() if match))


def newest(folder: Path) -> Path | None:
    """Return the checkpoint of the latest iteration in a folder."""
    return next(reversed(list_checkpoints(folder).values()), None)
