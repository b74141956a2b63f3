"""First bad pass: one button of the overview, a worker, the result card, the reproducer."""

from __future__ import annotations

import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.pipelines.pipeline import PipelineEdit
from tests.debug import planted
from tests.workbench.conftest import MODEL
from tests.workbench.test_cli_reduce import run_alone
from tests.workbench.test_recorded_model import STOOD_IN, from_python
from workbench.commands.cli import main

VIEW = "#cw-view-bisect"


@pytest.mark.playwright
@pytest.mark.slow
def test_a_wrong_pass_is_found_and_its_reproducer_runs_alone(server, tab, tmp_path):
    path = tmp_path / "bad.run"
    own = f"{Path(planted.__file__)}:QuickGelu@canonicalise"
    assert main(["compile", *MODEL, "--check", "--insert", own, "-o", str(path)]) == 1
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.locate('#cw-view-overview .finding [data-do="bisect"]').click()
    page.locate(f'{VIEW} [data-do="trust"]').click()  # the recording was not made by this server
    page.wait(f"{VIEW} >> text=quick_gelu is the first bad pass")
    said = page.text(f'{VIEW} [data-result="pass"]')
    for part in ("the check of one rewrite", "ulps", "digits.py:", "ops to 1, after", "core.gelu"):
        assert part in said, said
    with page.page.expect_download() as got:
        page.locate(f'{VIEW} [data-do="download"]').click()
    got.value.save_as(tmp_path / "made.zip")
    zipfile.ZipFile(tmp_path / "made.zip").extractall(tmp_path)
    code, out = run_alone(tmp_path / "reproducer")
    assert code == 1 and out.startswith("FAILS: pass quick_gelu, check: ")
    page.page.reload()  # it is kept beside the recording, and the address has the view
    page.wait(f'{VIEW} [data-result="pass"]')
    page.locate(f"{VIEW} button.link", has_text=planted.QUICK_GELU.name).click()
    page.wait_query("rewrite", "0")
    page.wait("#cw-view-rewrites >> text=1.702")
    assert not page.errors


@pytest.mark.playwright
@pytest.mark.slow
def test_a_compile_from_python_is_looked_through(server, tab, tmp_path):
    path = from_python(tmp_path / "net.run", PipelineEdit(), finish=True)
    page = tab(f"{server.url}?run={quote(str(path))}")
    page.locate('#cw-view-overview [data-do="bisect"]').click()
    page.wait(f"{VIEW} >> text=No fault found.")
    said = page.text(f'{VIEW} [data-result="none"]')
    assert STOOD_IN in said and "was checked too" in said, said
    assert not page.errors
