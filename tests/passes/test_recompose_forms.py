"""What frameworks make of composites is raised again, and what is none is left: docs/recompose.md.

One form of each source runs always; all of them (a minute of tracing) with the slow tests.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache

import pytest

from core_compiler.debug.why_not import why_not
from tests.passes import forms
from tests.passes.forms import PAGE, Form, compiled, is_raised, kinds

FIRST = {
    "jax": "nn.dot_product_attention",
    "keras": "GroupNormalization(2)",
    "torch": "scaled_dot_product_attention",
    "onnx": "body of GroupNormalization 21",
}


@lru_cache(maxsize=len(forms.SOURCES))
def of(source: str) -> list[Form]:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    pytest.importorskip(source, reason=f"{source} is not installed")
    return forms.forms(source)


def outcome(form: Form) -> bool:
    """Whether the form is raised; every rewrite on the way holds on real numbers."""
    made = compiled(form, check=True)
    for stage, records in made.checks.items():
        bad = [r for r in records if r.verdict not in ("bitwise", "within")]
        assert not bad, f"{form.label}, {made.stages[stage].name}: {bad[0].note}"
    module = made.stages[-1].module
    found = is_raised(form, module)
    assert found == bool(form.kinds), f"{form.label}: {sorted(kinds(module))}"
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("source", "name"), FIRST.items())
def test_a_form_of_each_source_is_raised(source, name):
    (form,) = [f for f in of(source) if f.name.startswith(name)][:1]
    assert outcome(form)


@pytest.mark.slow
@pytest.mark.parametrize("source", forms.SOURCES)
def test_every_form_is_raised_or_left_for_its_reason(source):
    for form in of(source):
        outcome(form)


@pytest.mark.slow
def test_the_page_has_the_table_of_these_forms():
    for source in forms.SOURCES:
        of(source)  # skipped where one is missing
    now = {form.label: bool(form.kinds) for source in forms.SOURCES for form in of(source)}
    page = PAGE.read_text()
    written = page.partition("<!-- forms -->\n")[2].partition("<!-- end -->")[0]
    assert written == forms.table(now), "run python -m tests.passes.forms and commit the page"
    assert set(json.loads(forms.BEFORE.read_text())) == set(now)


@pytest.mark.parametrize(
    ("source", "name", "kind", "rule"),
    [
        ("jax", "attention with capped scores", "contract", "=> attention"),
        pytest.param(
            "torch", "MultiheadAttention, which", "matmul", "=> attention", marks=pytest.mark.slow
        ),
    ],
)
def test_why_a_form_is_not_raised_is_what_the_table_says(source, name, kind, rule):
    (form,) = [f for f in of(source) if f.name.startswith(name)]
    made = compiled(form)
    at = next(s.index for s in made.stages if s.name == "recompose")
    ops = [o for o in made.stages[at].module.main.body.ops if o.kind == f"core.{kind}"]
    told = [a.sentence for op in ops for a in why_not(made, at, op, rule=rule)]
    assert any(form.why.split("this ")[-1] in sentence for sentence in told)
