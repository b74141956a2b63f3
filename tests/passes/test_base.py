"""Passes: facts that are declared as class attributes."""

from __future__ import annotations

import pytest

from core_compiler.passes.base import Pass
from core_compiler.targets import Target


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("anew", "changes_semantics", True),
        ("asks", "refusal_arity", 1),
        ("ends", "invalidates", frozenset({"values"})),
        ("rules", "table", lambda self: ()),
    ],
)
def test_a_fact_under_its_name_of_version_0_1_is_refused(old, new, value):
    """It would be ignored silently."""
    with pytest.raises(TypeError, match=rf"Mine\.{old} was renamed to {new} in version 0\.2\.0"):
        type("Mine", (Pass,), {old: value})


def test_an_option_may_have_such_a_name():
    made = type("Mine", (Pass,), {"__annotations__": {"ends": int}, "ends": 3})
    assert made.invalidates == frozenset()


def test_a_target_under_the_old_name_is_refused():
    with pytest.raises(TypeError, match=r"Mine\.apart was renamed to runs_in_subprocess"):
        type("Mine", (Target,), {"apart": True})
