"""docs/ops.md says what the declarations say."""

from __future__ import annotations

from core_compiler.ops import REGISTRY, document


def test_the_page_is_up_to_date():
    assert document.PAGE.read_text() == document.page(), (
        "run python -m core_compiler.ops.document and commit docs/ops.md"
    )


def test_the_page_lists_every_op_once():
    text = document.page()
    for kind in REGISTRY:
        assert text.count(f"| `{kind}(") == 1
