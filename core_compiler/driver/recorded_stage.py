"""Import of a recording as a model: its stage 0, which is the import of the recorded compile.

A recording names its weights by their hashes and does not contain the large ones: they are beside
it (`record.weight_files`), looked up elsewhere, or replaced by seeded random values, and
``facts["stand_ins"]`` counts the latter.  A recording is data: no code in it is run.  The state of
a recorded training step is that of a step that has run for some iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends import stand_ins
from core_compiler.frontends.base import Imported
from core_compiler.frontends.stand_ins import (
    Requirement,
    fill_missing_weights,
    missing_weights,
    requirements,
)
from core_compiler.ir import Module, Value, WeightStore
from core_compiler.record import weight_files
from core_compiler.record.reader import Recording
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph.roles import ITERATION, SEED, Roles
from core_compiler.training.optimisers.loss_scale import SCALE
from core_compiler.training.optimisers.optimizers import scalars_after

#: The name of this frontend.
FRONTEND = "recording"
#: The levels that a compile can begin with.
_LEVELS = ("tensor", "onnx")
#: The number of iterations that a training step is assumed to have run.
ITERATIONS = 10
#: The largest loss scale of such a step, which f16 can hold.
LARGEST_SCALE = 1024.0


#: Finds weights by their digests; some may be missing.
Find = Callable[[Set[str]], Mapping[str, np.ndarray]]


def import_file(path: str | Path, find: Find = lambda digests: {}) -> Imported:
    """Import stage 0 of a recording; ``find`` looks up weights that it does not contain.

    ``facts`` are those of the recorded import; also ``frontend``, which read the model then,
    ``recorded_as``, its name, and for a training step ``training``, its description.  Raises
    UserError if the recording has no stage or begins with one that cannot be compiled.
    """
    store = WeightStore()
    with Recording.open(path, store) as opened:
        meta, sources = opened.meta(), opened.sources()
        if not opened.stage_count():
            raise UserError("the recording has no stages", str(path), "compile the model again")
        module = opened.module(0)
    if "main" not in module.functions or module.main.level not in _LEVELS:
        raise UserError("stage 0 is not a model", str(path), "compile the model again")
    absent = missing_weights(module)
    beside = weight_files.read(path, absent)
    for digest, array in (beside | dict(find(absent.keys() - beside.keys()))).items():
        store.put(digest, array)
    module, made_up = fill_missing_weights(module, "the recording")
    main = module.main
    names = _names(meta.get("inputs"), main.arguments, "input")
    outputs = _names(meta.get("outputs"), main.outputs, "output")
    found = meta.get("facts")
    facts = dict(found) if isinstance(found, Mapping) else {}
    facts |= {
        "frontend": frontend_of(meta),
        "stand_ins": made_up,
        "recorded_as": str(meta.get("model") or Path(path).stem),
    }
    facts.pop("training", None)
    if is_training(meta):
        rows = main.attributes.get("arguments")
        if not isinstance(rows, tuple) or len(rows) != len(main.arguments):
            raise UserError("stage 0 is not a training step", str(path), "compile it again")
        facts = {k: v for k, v in facts.items() if k not in ("state", "run_time_sizes")}
        return Imported(
            module, names, outputs, sources, {**facts, "training": meta.get("training")}
        )
    facts["run_time_sizes"] = _sizes(facts.get("run_time_sizes"), outputs, len(main.outputs))
    carried = facts.get("state")
    count = carried if isinstance(carried, int) and 0 < carried < len(main.arguments) else 0
    facts["state"] = count
    state = stand_ins.inputs(module)[-count:] if count else ()
    return Imported(module, names, outputs, sources, facts, state)


def is_training(meta: Mapping[str, Any]) -> bool:
    """Return whether a recording's metadata is that of a training step."""
    return meta.get("mode") == "training"


def frontend_of(meta: Mapping[str, Any]) -> str:
    """Return the frontend that read the model in the recorded compile."""
    facts = meta.get("facts")
    recorded = meta.get("frontend")
    if recorded and recorded != FRONTEND:
        return str(recorded)
    return str(facts.get("frontend") or "") if isinstance(facts, Mapping) else ""


def _names(recorded: Any, values: Sequence[Value], prefix: str) -> tuple[str, ...]:
    """Return the model's names of its inputs or outputs; numbered if not recorded."""
    if isinstance(recorded, list) and recorded:
        return tuple(map(str, recorded))
    return tuple(v.name or f"{prefix}_{i}" for i, v in enumerate(values))


def _sizes(recorded: Any, outputs: Sequence[str], results: int) -> dict[str, list[tuple[int, int]]]:
    """Return which results hold the valid size of which output, as far as that is consistent."""
    if not isinstance(recorded, Mapping):
        return {}
    made = {}
    for name, rows in recorded.items():
        if name in outputs and isinstance(rows, list | tuple):
            pairs = [tuple(row) for row in rows if isinstance(row, list | tuple) and len(row) == 2]
            are_integers = all(isinstance(n, int) for pair in pairs for n in pair)
            if are_integers and all(0 <= count < results for _, count in pairs):
                made[str(name)] = pairs
    return made


# -- the state of a training step ------------------------------------------------------------------


def inputs(
    module: Module, seed: int = 0, training: Training | None = None
) -> tuple[np.ndarray, ...]:
    """Return values for the arguments of ``main``.

    With ``training`` they are those of a step that has run for some iterations.  Raises UserError
    as ``stand_ins.inputs``.
    """
    made = stand_ins.inputs(module, seed)
    if training is None:
        return made
    random, needed = np.random.default_rng((seed, 1)), requirements(module)
    numbers: dict[str, Any] = {
        **(training.loss_scale.state if training.loss_scale is not None else {}),
        **scalars_after(training.optimizer, ITERATIONS),
        ITERATION: ITERATIONS,
        SEED: training.seed,
    }
    if SCALE in numbers:
        numbers[SCALE] = min(numbers[SCALE], np.float32(LARGEST_SCALE))
    arrays = []
    rows = zip(Roles.of(module.main).arguments, module.main.arguments, made, strict=True)
    for (role, name, _), value, array in rows:
        type_ = value.type
        if role == "parameter":
            array = stand_ins.weight(random, type_, needed.get(value, Requirement()))
        elif role == "buffer" and type_.dtype.is_float:  # variances among them
            array = np.abs(array)
        elif role == "slot":
            array = _slot(random, array, name in training.optimizer.squares)
        elif role == "shard":
            array = np.zeros_like(array)
        elif role == "scalar" and name in numbers:
            array = np.full_like(array, numbers[name])
        arrays.append(array)
    return tuple(arrays)


def _slot(random: np.random.Generator, like: np.ndarray, squares: bool) -> np.ndarray:
    """Return moments of small gradients; no squared first moment exceeds the second moment."""
    numbers = np.clip(random.standard_normal(like.shape), -3, 3)
    made = 1e-3 + 1e-4 * np.abs(numbers) if squares else 1e-2 * numbers
    return made.astype(like.dtype)
