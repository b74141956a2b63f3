"""The examples that are left over at the end of an epoch: a smaller batch, or left out."""

from __future__ import annotations

from dataclasses import replace

from core_compiler.support.errors import UserError
from core_compiler.training.run.data import Data
from core_compiler.training.run.plan import Plan
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream


def decided(
    plan: Plan, step: TrainingStep, data: Data | Stream, recorded: bool | None = None
) -> tuple[Plan, str]:
    """Return the plan with ``drop_last`` decided, and why examples are left out ("": none are).

    They are a smaller batch if the step can be compiled for it, which is done here: not at the end
    of the first epoch.  ``recorded`` is what the run that is resumed has decided.  Of an iterable,
    whose length is unknown, they are left out unless the plan says otherwise.  Raise UserError if
    the plan keeps them and that is impossible.
    """
    if recorded is not None:
        if plan.drop_last not in (None, recorded):
            raise UserError(
                f"expected the checkpoint's drop_last {recorded}, got {plan.drop_last}",
                "resume",
                "resume with the settings that the run was started with, or start another run in "
                "another folder",
            )
        plan = replace(plan, drop_last=recorded)
    if isinstance(data, Stream):
        return (plan if plan.drop_last is not None else replace(plan, drop_last=True)), ""
    rest = data.remainder(plan.batch)
    if plan.drop_last or not rest or plan.iterations <= len(data) // plan.batch:
        return plan, ""
    try:
        if step.other_batches is None:
            raise UserError("the step has one size only", "training step", "pass drop_last=True")
        step.bound(data.example(rest))
    except UserError as error:
        if plan.drop_last is False:
            raise UserError(
                f"the last batch of an epoch has {rest} examples: {error.what}",
                error.where,
                "leave them out with --drop-last (drop_last=True)",
            ) from None
        return replace(plan, drop_last=True), (
            f"{rest} of {len(data)} examples of each epoch: {error.what}"
        )
    return replace(plan, drop_last=False), ""
