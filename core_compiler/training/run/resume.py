"""Checkpoints of a training step: saving and resuming."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.numerics.contract import need_current
from core_compiler.support.errors import UserError
from core_compiler.training.graph.roles import ITERATION
from core_compiler.training.run import checkpoint
from core_compiler.training.run.step import TrainingStep

#: The key of a receipt for the position of data that are read as a stream.
DATA = "data"
#: The key of whether the run leaves out the examples at the end of an epoch (older ones do).
DROP_LAST = "drop_last"


def save(
    step: TrainingStep,
    path: Path,
    seed: int = 0,
    position: Mapping[str, int] | None = None,
    drop_last: bool | None = None,
) -> None:
    """Write a checkpoint of a training step.

    ``seed`` is that of the data order, ``position`` the position of the data; ``drop_last`` is
    that of the :class:`~core_compiler.training.run.plan.Plan`.
    """
    checkpoint.write(
        path,
        step.whole_state(),
        {
            "iteration": step.iteration,
            "digest": step.digest,
            "seed": step.seed,
            "data_seed": seed,
            "shards": step.shards,
            "identity": step.identity,
            "contract": CONTRACT_VERSION,
            DROP_LAST: drop_last,
            **({DATA: dict(position)} if position else {}),
        },
    )


def restore(step: TrainingStep, path: Path, data_seed: int | None = None) -> dict[str, Any]:
    """Restore a training step from a checkpoint and return its receipt.

    ``data_seed`` is the seed of the data with which the run would continue. Raise UserError, and
    leave the step unchanged, if the checkpoint belongs to another step, was written with other
    seeds, shards or another version of the contract, or is damaged.
    """
    state, receipt = checkpoint.read(path)
    _check_settings(step, receipt, data_seed, str(path))
    return _load_checked(step, state, receipt, path)


def resume_at(step: TrainingStep, path: Path) -> dict[str, Any]:
    """Restore a training step from a checkpoint with any seeds, and return its receipt."""
    return _load_checked(step, *checkpoint.read(path), path)


def _load_checked(
    step: TrainingStep, state: Mapping[str, np.ndarray], receipt: dict[str, Any], path: Path
) -> dict[str, Any]:
    need_current(
        receipt.get("contract", CONTRACT_VERSION), "the checkpoint was", str(path), "use it"
    )
    if receipt.get("identity") != step.identity:
        raise UserError(
            "the checkpoint belongs to another training step",
            str(path),
            "resume with the model and the configuration that it was written with",
        )
    before = step.whole_state()
    missing = before.keys() - state.keys()
    if missing:
        raise UserError(
            f"the checkpoint lacks {', '.join(sorted(missing)[:3])}",
            str(path),
            checkpoint.OLDER_FIX,
        )
    step.load_state_dict(state)
    if step.digest != receipt.get("digest") or step.iteration != receipt.get(ITERATION):
        step.load_state_dict(before)
        raise UserError(
            "the checkpoint's tensors do not match its receipt", str(path), checkpoint.OLDER_FIX
        )
    return receipt


def _check_settings(
    step: TrainingStep, receipt: Mapping[str, Any], data_seed: int | None, where: str
) -> None:
    """Raise UserError if a run would continue with another configuration than it began with.

    Entries that older receipts lack are not compared.
    """
    need_current(receipt.get("contract", CONTRACT_VERSION), "the checkpoint was", where, "resume")
    current = {
        "seed": ("training seed", step.seed),
        "data_seed": ("data seed", data_seed),
        "shards": ("shards", step.shards),
    }
    mismatches = [
        f"{what} {receipt[key]!r}, got {value}"
        for key, (what, value) in current.items()
        if value is not None and key in receipt and receipt[key] != value
    ]
    if not mismatches:
        return
    raise UserError(
        f"expected the checkpoint's {'; '.join(mismatches)}",
        where,
        "resume with the settings that the run was started with, or start another run "
        "in another folder",
    )
