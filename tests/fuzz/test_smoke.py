"""Some hundreds of damaged files for each importer; and what the fuzzer takes for a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_compiler.support.errors import CANNOT_HERE, UserError
from tests.fuzz import cases, pool
from tests.fuzz.cases import FINE, FRONTENDS, Case, Cases, Outcome
from tests.fuzz.seeds import seeds
from tests.slow import slow_but

INPUTS = {"onnx": 250, "onnx-passes": 80, "stablehlo": 150}


@pytest.mark.slow
@pytest.mark.parametrize("frontend", slow_but(("onnx", "onnx-passes"), FRONTENDS))
def test_damaged_files_are_imported_or_refused(frontend: str) -> None:
    if frontend == "stablehlo":
        pytest.importorskip("jax", reason="the frontend reads programs by jaxlib")
    corpus = seeds(frontend, few=True)
    found = pool.run(frontend, corpus, 0, range(INPUTS[frontend]))
    assert sum(found.counts.values()) == INPUTS[frontend]
    assert found.counts["imported"] > 0
    assert found.counts["refused"] > 0
    assert [text for (kind, _), (_, (_, _, text), _) in _plain(found) if kind not in FINE] == []


def _plain(found: pool.Found):
    return [
        (key, (case, (made.kind, made.key, made.text), count))
        for key, (case, made, count) in found.findings.items()
    ]


def test_an_input_is_made_again_from_its_number() -> None:
    corpus = seeds("onnx", few=True)
    first, second = Cases("onnx", corpus, 3), Cases("onnx", corpus, 3)
    assert [first.case(n) for n in (5, 1, 9)] == [second.case(n) for n in (5, 1, 9)]
    assert first.case(1) != Cases("onnx", corpus, 4).case(1)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (UserError("it is damaged", "a file", "mend it"), "refused"),
        (UserError("it is damaged"), "exception"),  # of which file?
        (UserError("over\nlines", "a file"), "exception"),
        (UserError("it takes more memory than there is", "a file", "", CANNOT_HERE), "memory"),
        (MemoryError(), "memory"),
        (IndexError("of a bug"), "exception"),
    ],
)
def test_what_counts_as_a_finding(raised, kind: str, tmp_path: Path, monkeypatch) -> None:
    def read(*_):
        raise raised

    monkeypatch.setitem(cases._READ, "onnx", read)
    made: Outcome = cases.outcome(Case("onnx", 0, b"", "", None), tmp_path)
    assert made.kind == kind
