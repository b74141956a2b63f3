"""Check of the state that a training step carries between iterations.

The reference is the step's program, called by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.runtime.shards import Shards
from core_compiler.support.errors import UserError
from core_compiler.training.graph.roles import STATE
from core_compiler.training.run.step import TrainingStep, shard_of


def compare_final_state(step: TrainingStep, batches: Sequence[Sequence[np.ndarray]]) -> str:
    """Return how the state after ``batches`` differs from that of the program; "" if bitwise equal.

    The program is called by hand: its results replace its arguments according to the step's roles.
    Iterations with a loss that is not finite also return "".  The step is not modified.
    """
    state = [np.array(a) for a in step.state]
    trial_step = copy.copy(step)
    trial_step.state, trial_step._spare, trial_step._kept = [a.copy() for a in state], {}, {}
    trial_step._run = trial_step.watch = None
    try:
        losses = [trial_step(*batch) for batch in batches]
    except UserError:
        return ""
    after = [np.array(a) for a in trial_step.state]
    first, rows = step.roles.numbers(*STATE)[0], step.rows
    program: Any = Shards(step._load, range(step.shards)) if step.shards > 1 else step._load()
    for number, batch in enumerate(batches):
        if step.shards > 1:
            every = range(step.shards)
            results = program(
                [[*shard_of(batch, i, step.shards), np.array(i, np.int64), *state] for i in every]
            )
        else:
            results = program(*batch, *state)
        loss, step_loss = float(results[rows.index(("loss", -1))]), losses[number]
        if not same_bits(np.array(loss), np.array(step_loss)):
            return (
                f"the loss of iteration {number + 1} is {step_loss:g}, "
                f"the program computes {loss:g}"
            )
        for result, (role, position) in enumerate(rows):
            if role == "next":
                state[position - first] = np.array(results[result])
    for position, (want, got) in enumerate(zip(state, after, strict=True)):
        if not same_bits(want, got):
            name = step.roles.arguments[first + position][1]
            return (
                f"after {len(batches)} iterations {name} differs from what the program "
                "computes from the state before each"
            )
    return ""
