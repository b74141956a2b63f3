"""Checks of the claims (`ir.claims`) of events that add ops and replace none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core_compiler.debug.evaluate import Recorded
from core_compiler.debug.formulas import check_formula
from core_compiler.debug.gradient_checks import check_gradient
from core_compiler.ir import Function, Rewrite
from core_compiler.ir.claims import Formula, Gradient
from core_compiler.ir.events import CheckRecord
from core_compiler.training.graph.roles import STATE, Roles


def check_claim(rewrite: Rewrite, values: Recorded, narrow: Any) -> CheckRecord:
    """Check the new ops of an event against its claim.

    ``values`` are the values before the event; ``narrow`` evaluates ops that f64 says nothing
    about.
    """
    check = check_gradient if isinstance(rewrite.claim, Gradient) else check_formula
    return check(rewrite, values, narrow)


#: Maps the result of an update to its source, where the names differ.
_OF = ("after.", "before.")


def check_next_state(rewrites: Sequence[Rewrite], main: Function) -> Iterator[CheckRecord]:
    """Check that a training step carries on the values that the updates compute.

    The next value of each updated argument must be the new value that the formula computes for it.
    Yields a failed record for each argument that violates this.
    """
    roles = Roles.of(main)
    position_of = {v: i for i, v in enumerate(main.arguments)}
    following = {
        of: v for (role, of), v in zip(roles.results, main.outputs, strict=True) if role == "next"
    }
    for rewrite in rewrites:
        if not isinstance(rewrite.claim, Formula):
            continue
        for name, value in rewrite.claim.made.items():
            given = rewrite.claim.given.get(name.replace(*_OF))
            position = None if given is None else position_of.get(given)
            if position is None or roles.arguments[position][0] not in STATE:
                continue
            if following.get(position) is not value:
                role, name, _ = roles.arguments[position]
                note = f"the next value of the {role} {name} is not the result of {rewrite.rule}"
                yield CheckRecord(rewrite, "failed", value=value, note=note)
