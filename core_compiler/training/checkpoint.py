"""Checkpoints: all that the next iteration depends on, in one file, and where it stands.

The file is of the format ``safetensors`` (tensors by name); its metadata holds the receipt: the
iteration, the digest of the state, the numerics identity, the contract's version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.errors import UserError

RECEIPT = "receipt"


def write(path: Path, state: Mapping[str, np.ndarray], receipt: Mapping[str, Any]) -> None:
    """Write a checkpoint whole or not at all: an older one of its name stays until the new one is
    on the disk.  UserError where the disk refuses it."""
    from safetensors.numpy import save

    held = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in state.items()}
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as out:
            out.write(save(held, {RECEIPT: json.dumps(dict(receipt))}))
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UserError(
            f"the checkpoint could not be written: {error.strerror}", str(path),
            "make room or choose another folder; the older one is intact",
        ) from None  # fmt: skip


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(state, receipt) of a checkpoint; UserError where it is damaged, foreign, or its content is
    not what its receipt says."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "np") as held:
            found = held.metadata() or {}
            state = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError("there is no such file", str(path), "check the path") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"the checkpoint is damaged: {error}", str(path),
                        "resume from an older one") from None  # fmt: skip
    if RECEIPT not in found:
        raise UserError("this is no checkpoint of a training run", str(path),
                        "give a file that `workbench train` wrote")  # fmt: skip
    return state, json.loads(found[RECEIPT])


def name_of(iteration: int) -> str:
    return f"iteration-{iteration:08d}.safetensors"


def newest(folder: Path) -> Path | None:
    """The checkpoint of the latest iteration in a folder."""
    found = sorted(folder.glob("iteration-*.safetensors"))
    return found[-1] if found else None
