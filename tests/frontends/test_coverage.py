"""``workbench coverage`` and docs/coverage.md say what the tables of translations hold."""

from __future__ import annotations

import json

import pytest

from core_compiler.frontends.coverage import (
    COMPOSED,
    FRONTENDS,
    PAGE,
    README,
    STATUSES,
    page,
    readme,
)
from workbench.commands.cli import main


@pytest.fixture(scope="module")
def found():
    return {name: make() for name, make in FRONTENDS.items()}


def test_the_page_is_up_to_date(found):
    text = PAGE.read_text()
    for coverage in found.values():
        if f"({coverage.library})" not in text:
            pytest.skip(f"the page was made with another version than {coverage.library}")
    assert text == page(found.values()), (
        "run python -m core_compiler.frontends.coverage and commit docs/coverage.md"
    )
    text = README.read_text()
    assert text == readme(text, found.values()) and "| 8 |" in text


def test_every_op_of_core_aten_and_onnx_has_a_line(found):
    import onnx
    import torch

    assert "aten.addmm.default" in {e.op for e in found["pytorch"].entries}
    assert all(
        torch.Tag.core
        in getattr(getattr(torch.ops.aten, e.op.split(".")[1]), e.op.split(".")[2]).tags
        for e in found["pytorch"].entries
    )
    names = {e.op for e in found["onnx"].entries}
    for schema in onnx.defs.get_all_schemas():
        if not schema.domain and not schema.deprecated:
            assert schema.name in names


def test_what_is_composed_has_a_definition_by_others(found):
    import onnx

    composed = [e for e in found["onnx"].entries if e.status == COMPOSED]
    assert "LinearAttention" in {e.op for e in composed}
    for entry in composed:
        domain, _, name = entry.op.rpartition("::")
        schema = onnx.defs.get_schema(name, domain=domain)
        assert schema.has_function or schema.has_context_dependent_function


def test_the_command_answers_in_words_and_in_json(capsys):
    assert main(["coverage", "--frontend", "onnx", "--missing"]) == 0
    words = capsys.readouterr().out
    assert "StringSplit" in words and "aten" not in words
    assert main(["coverage", "--frontend", "onnx", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["frontends"]
    assert set(told["counts"]) == set(STATUSES)
    assert sum(told["counts"].values()) == len(told["ops"])
