"""A compile that begins at the level of ONNX, in the page: its graph, its text, its rewrites."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.record import Recording

pytestmark = pytest.mark.playwright


@pytest.fixture(scope="module")
def graph_first(tmp_path_factory) -> Path:
    """A small model, read as a graph of ONNX: passes from ONNX to ONNX, the import, the rest."""
    pytest.importorskip("onnx", reason="onnx is not installed (extra: onnx)")
    pytest.importorskip("torch", reason="the sample models need torch")
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    path = tmp_path_factory.mktemp("onnx_level") / "graph.run"
    model = models.load(read_spec("digits-cnn", "onnx-passes", width=0.25))
    jobs.compile(model, "cpu", path=path)
    return path


@pytest.mark.slow
def test_passes_of_the_onnx_level_are_stepped_through(server, tab, graph_first):
    with Recording.open(graph_first) as run:
        names = [stage.pass_name for stage in run.stages()]
        imported = names.index("import_onnx")
        changed = [s.index for s in run.stages()[1 : imported + 1] if s.changed]
        stage = next(s for s in run.stages()[1:imported] if s.rewrites)
        rule = run.rewrites(stage.index)[0].rewrite.rule
        conv = next(op for op in run.module(0).main.body.ops if op.kind.endswith("Conv"))
        number, kind = run.op_id(conv), conv.kind
        assert run.module(imported - 1).main.level == "onnx"
        assert run.module(imported).main.level == "tensor"
    assert changed[-1] == imported and len(changed) > 2
    page = tab(f"{server.url}?run={quote(str(graph_first))}&stage=0&panes=graph,diff&op={number}")
    page.stage(0)
    page.drawn("graph")
    page.drawn("diff")
    page.wait(f"#cw-inspector .head b:has-text({kind!r})")
    page.wait(f"#cw-view-diff .row.selected:has-text({kind!r})")
    assert page.view("graph", "placeOfOp", number) is not None
    for each in changed:
        page.press("j")
        page.stage(each)
        page.wait("#cw-busy:not(.on)", state="attached")
        shown = page.view("graph", "shown")
        assert shown["ops"] > 3
    page.wait("#cw-view-diff .row :text('core.conv') >> nth=0")
    page.open(f"{server.url}?run={quote(str(graph_first))}&stage={stage.index}&panes=rewrites")
    page.wait("#cw-view-rewrites tbody tr")
    assert page.locate("#cw-view-rewrites tbody tr").count() == stage.rewrites
    page.press("J")
    page.wait('#cw-view-rewrites tr.on[data-rewrite="0"]')
    assert rule in page.text("#cw-view-rewrites .detail h3")
    assert page.errors == []
