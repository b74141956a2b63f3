"""Conversion of the optimiser's state from and to ``torch.optim.Optimizer.state_dict()``.

A run that torch began can continue here, and vice versa. The optimisers are torch's (2.13), so
their tensors are the same under the same names. ``step``, which torch counts for each parameter, is
one number here. Powers of the betas are computed again, as the step does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.support.arrays import as_numpy, to_torch
from core_compiler.support.errors import UserError
from core_compiler.training.graph.roles import ITERATION
from core_compiler.training.optimisers.loss_scale import SKIPPED
from core_compiler.training.optimisers.optimizers import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Optimizer,
    RMSprop,
    scalars_after,
)
from core_compiler.training.optimisers.schedules import rates

if TYPE_CHECKING:
    from core_compiler.training.run.step import TrainingStep

#: Field names here -> torch's names (without the rate).
_FIELDS: Mapping[type[Optimizer], Mapping[str, str]] = {
    SGD: {n: n for n in ("momentum", "dampening", "weight_decay", "nesterov")},
    Adam: {n: n for n in ("betas", "eps", "weight_decay", "amsgrad")},
    AdamW: {n: n for n in ("betas", "eps", "weight_decay", "amsgrad")},
    Adagrad: {
        "rate_decay": "lr_decay",
        "weight_decay": "weight_decay",
        "eps": "eps",
        "initial": "initial_accumulator_value",
    },
    RMSprop: {n: n for n in ("alpha", "eps", "weight_decay", "momentum", "centered")},
}
#: Entries of a group that configure torch's kernels or belong to a scheduler.
_IGNORED_OPTIONS = frozenset(
    {"params", "lr", "foreach", "fused", "capturable", "differentiable", "initial_lr"}
)
#: The counter that torch keeps for each parameter; its SGD has none.
STEP = "step"
_WHERE = "optimizer state"
#: Largest difference between a rate of torch's scheduler and ours; both compute in f64.
_RATE_TOLERANCE = 1e-6


def state_of(step: TrainingStep, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return ``{"state": {0: {"step", "exp_avg"...}}, "param_groups": [...]}``.

    The tensors are torch's and there is one group; see :meth:`TrainingStep.optimizer_state_dict`.
    """
    import torch

    order, own = _order(step, names), _parameters(step)
    updates_done = step.iteration - int(step.number(SKIPPED) or 0)
    optimizer = step.compilation.options.training.optimizer
    group = _group(optimizer, rates(optimizer.schedule)(step.iteration))
    held = step.whole_state()
    rows = {}
    for place, name in enumerate(order):
        slots = own.get(step.canonical_name(name), ())
        # Torch has no state before the first update.
        if not slots or not (updates_done or isinstance(optimizer, Adagrad)):
            continue
        step_entry = {} if isinstance(optimizer, SGD) else {STEP: torch.tensor(float(updates_done))}
        made = {n: to_torch(held[f"{step.canonical_name(name)}.{n}"]) for n in slots}
        rows[place] = step_entry | made
    return {"state": rows, "param_groups": [{**group, "params": list(range(len(order)))}]}


def load(
    step: TrainingStep,
    given: Mapping[str, Any],
    names: Sequence[str] | None = None,
    iteration: int | None = None,
) -> None:
    """Set the optimiser's state; see :meth:`TrainingStep.load_optimizer_state_dict`."""
    if not isinstance(given, Mapping) or not {"state", "param_groups"} <= given.keys():
        raise UserError(
            "expected a mapping with state and param_groups",
            _WHERE,
            "pass what torch.optim.Optimizer.state_dict() returns",
        )
    param_names = [n for group in given["param_groups"] for n in group.get("param_names") or ()]
    order, own = (
        _order(step, names if names is not None else param_names or None),
        _parameters(step),
    )
    optimizer = step.compilation.options.training.optimizer
    numbers = [n for group in given["param_groups"] for n in group["params"]]
    if len(numbers) != len(order):
        raise UserError(
            f"expected {len(order)} parameters, got {len(numbers)}",
            _WHERE,
            "pass names: those of torch's parameters, in their order",
        )
    fresh: dict[str, Any] = {}
    counts: dict[int, str] = {}
    for number, name in zip(numbers, order, strict=True):
        canonical_name, row = step.canonical_name(name), given["state"].get(number) or {}
        if canonical_name not in own:  # a frozen parameter
            continue
        for slot in own[canonical_name]:
            if row and slot not in row:
                raise UserError(
                    f"missing {slot} in the state of {name}",
                    _WHERE,
                    f"pass that of a torch.optim.{type(optimizer).__name__} with the same options",
                )
            fresh[f"{canonical_name}.{slot}"] = _array(
                row.get(slot), step, f"{canonical_name}.{slot}", optimizer.slots[slot]
            )
        if row.get(STEP) is not None:
            counts.setdefault(int(row[STEP]), name)
    if len(counts) > 1:
        counts_text = " and ".join(f"{name} {n} times" for n, name in list(counts.items())[:2])
        raise UserError(
            f"the parameters were not updated together: {counts_text}",
            _WHERE,
            "train them together: all parameters share one step count",
        )
    skipped = int(step.number(SKIPPED) or 0)
    torch_steps = next(iter(counts), None)
    if iteration is None:
        iteration = step.iteration if torch_steps is None else torch_steps + skipped
    updates_done = iteration - skipped if torch_steps is None else torch_steps
    has_updates = isinstance(optimizer, SGD) and any(row for row in given["state"].values())
    if has_updates and not updates_done and getattr(optimizer, "dampening", False):
        raise UserError(
            "torch's SGD does not store how many iterations were done",
            _WHERE,
            "pass iteration: with dampening the first one differs",
        )
    for group in given["param_groups"]:
        _compare(optimizer, group, rates(optimizer.schedule)(iteration), iteration)
    fresh |= {n: np.array(v, np.float64) for n, v in scalars_after(optimizer, updates_done).items()}
    step.load_state_dict(fresh | {ITERATION: np.array(iteration, np.int64)})


def _order(step: TrainingStep, names: Sequence[str] | None) -> Sequence[str]:
    """Return the parameters in the order of torch's optimiser."""
    optimizer = step.compilation.options.training.optimizer
    if type(optimizer) not in _FIELDS:
        raise UserError(
            f"torch has no optimiser {type(optimizer).__name__}",
            _WHERE,
            "use whole_state() and load_state_dict() instead",
        )
    if names is None:
        return step.order
    unknown = [n for n in _parameters(step) if n not in {step.canonical_name(m) for m in names}]
    if unknown:
        raise UserError(
            f"missing {unknown[0]} in the names of the parameters",
            _WHERE,
            "pass names=[name for name, _ in model.named_parameters()], in the order "
            "of the optimiser's parameters",
        )
    return list(names)


def _parameters(step: TrainingStep) -> dict[str, list[str]]:
    """Return the names of the slots of each trained parameter."""
    rows = step.roles.arguments
    return {rows[i][1]: list(step.roles.slots(i)) for i in step.roles.numbers("parameter")}


def options_of(optimizer: Optimizer) -> dict[str, Any] | None:
    """Return the options of torch's optimiser of the same name, without its rate, or None."""
    fields = _FIELDS.get(type(optimizer))
    if fields is None:
        return None
    return {name: getattr(optimizer, own) for own, name in fields.items()}


def _group(optimizer: Optimizer, rate: float) -> dict[str, Any]:
    """Return the options of a group, including all options of the installed torch."""
    import torch

    options = {name: getattr(optimizer, own) for own, name in _FIELDS[type(optimizer)].items()}
    kind = getattr(torch.optim, type(optimizer).__name__)
    made = kind([torch.zeros(1)], lr=rate, **options).state_dict()["param_groups"][0]
    return {name: value for name, value in made.items() if name != "params"}


def _compare(optimizer: Optimizer, group: Mapping[str, Any], rate: float, iteration: int) -> None:
    """Raise UserError if a group of torch computes something else."""
    kind = type(optimizer).__name__
    own = {theirs: ours for ours, theirs in _FIELDS[type(optimizer)].items()}
    for name, value in _group(optimizer, rate).items():
        if name in _IGNORED_OPTIONS:
            continue
        if name in own and name not in group:
            raise UserError(f"missing {name}", _WHERE, f"pass the state of a torch.optim.{kind}")
        found = group.get(name, value)
        found = tuple(found) if isinstance(found, list) else found
        if found != value:
            fix = f"compile with {kind}({own[name]}={found})" if name in own else "train without it"
            raise UserError(f"expected the step's {name} {value}, got {found}", _WHERE, fix)
    found = float(group.get("lr", rate))
    if not isclose(found, rate, rel_tol=_RATE_TOLERANCE, abs_tol=1e-30):
        raise UserError(
            f"expected the step's rate {rate:g} in iteration {iteration + 1}, got lr {found:g}",
            _WHERE,
            f"compile with {kind}({found:g}), or pass the iteration that the schedule is at",
        )


def _array(held: Any, step: TrainingStep, name: str, start: float) -> np.ndarray:
    """Return a tensor of torch as an array; a missing one has its initial values."""
    if held is None:
        like = step.named_state()[name]
        return np.full(like.shape, start, like.dtype)
    return as_numpy(held)
