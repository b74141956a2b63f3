"""The ratchet: what the records in ``tests/results`` call passed must pass, on both paths.

The quick tests run a part of the recorded cases, the slow ones all.  After an improvement,
``python -m tests.conformance.update`` rewrites the records.
"""

from __future__ import annotations

import pytest

from tests.conformance import outcomes
from tests.conformance.update import run

#: Every how many of the recorded cases the quick tests run.
# OpInfo joins with its first whole record (python -m tests.conformance.update --suite opinfo).
RECORDED = ("onnx_nodes",)
QUICK = {("onnx_nodes", "reference"): 4, ("onnx_nodes", "cpu"): 4}


@pytest.mark.parametrize("suite", RECORDED)
def test_a_record_says_what_came_of_every_case(suite):
    record = outcomes.load(suite)
    assert record["paths"]["reference"]["every"] == 1
    for path in record["paths"].values():
        statuses = [text.partition(":")[0] for text in path["cases"].values()]
        assert {s: statuses.count(s) for s in outcomes.STATUSES} == path["counts"]
        assert sum(path["counts"].values()) == len(path["cases"])


def _hold(suite: str, path: str, part: int) -> None:
    """Run every ``part``-th recorded case; the recorded passes among them pass, and no fewer."""
    held = outcomes.recorded(suite, path)
    found = run(suite, path, every=outcomes.every(suite, path) * part)
    known = {name: now for name, now in found.items() if name in held}
    if len(known) < len(found):
        print(f"{len(found) - len(known)} cases are not in the record: it is of "
              f"{outcomes.load(suite)['about']['suite']}")  # fmt: skip
    assert known, "none of the cases is in the record; run python -m tests.conformance.update"
    assert not outcomes.regressions(suite, path, known)
    passes = sum(now.status == "passed" for now in known.values())
    assert passes >= sum(held[name] == "passed" for name in known)


@pytest.mark.parametrize(("suite", "path"), QUICK)
def test_a_part_of_the_recorded_passes_still_pass(suite, path):
    _hold(suite, path, QUICK[suite, path])


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "path"), QUICK)
def test_all_recorded_passes_still_pass(suite, path):
    _hold(suite, path, 1)


def test_the_ratchet_names_a_case_that_stops_passing(monkeypatch):
    monkeypatch.setattr(outcomes, "recorded", lambda suite, path: {"a": "passed", "b": "wrong: x"})
    found = {"a": outcomes.Outcome("wrong", "off by 1"), "b": outcomes.Outcome("passed"),
             "c": outcomes.Outcome("failed", "new")}  # fmt: skip
    assert outcomes.regressions("s", "p", found) == ["a: wrong: off by 1"]
