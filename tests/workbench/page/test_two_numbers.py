"""The numbers of two recordings: which value differs first, and as a person asks for it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from core_compiler.driver import compilation as compiler
from core_compiler.driver.compilation import Options
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record.recorder import Recorder
from tests.passes.programs import inputs, program
from widgets.encode import finite
from workbench import views
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import Empty, numerics

VIEW = "#cw-view-numerics"


def network(factor: float = 1.5):
    def build(b, x):
        y = b.relu(b.neg(x))
        return b.add(b.exp(b.mul(y, b.scalar_like(factor, y))), x)

    return program(build, "4x5xf32")


class KeepsTensors(Recorder):
    """Records a tensor with each value: evenly spaced, the third element nudged by so many ulps."""

    ulps = 0

    def tensors(self, tensors):
        super().tensors([replace(t, data=self._tensor(t.value.type.shape)) for t in tensors])

    def _tensor(self, shape):
        flat = np.linspace(1, 2, int(np.prod(shape)), dtype=np.float32)
        flat.view(np.int32)[2] += self.ulps
        return flat.reshape(shape)


def record(path, module, arrays, *, check=True, edit=PipelineEdit(), recorder=Recorder):
    """A compile until it has buffers."""
    made = recorder(path)
    made.begin({"model": "planted", "target": "cpu"})
    compilation = compiler.start(module, "cpu", Options(check=check, edit=edit), arrays, made)
    while compilation.stages[-1].name != "bufferize":
        compilation.step()
    made.end("finished")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings of one network: ``a``; with another constant (``constant``), with other inputs
    (``inputs``), by a pipeline that fuses less (``pipeline``), without checks (``unchecked``)."""
    made = tmp_path_factory.mktemp("two_numbers")
    module = network()
    arrays = inputs(module)
    record(made / "a.run", module, arrays)
    record(made / "constant.run", network(1.75), arrays)
    record(made / "inputs.run", module, inputs(module, seed=1))
    record(made / "pipeline.run", module, arrays, edit=PipelineEdit(skip=("fuse_elementwise",)))
    record(made / "unchecked.run", module, None, check=False)
    return made


@pytest.fixture
def opened(folder):
    """``opened(name, ...)``: recordings of the folder."""
    made = []

    def open_(*names):
        made.extend(Run(folder / f"{name}.run") for name in names)
        return made[-len(names) :]

    yield open_
    for run in made:
        run.close()


# -- the data -------------------------------------------------------------------------------------


def test_the_first_value_that_differs_is_the_one_that_was_made_otherwise(opened):
    a, b = opened("a", "constant")
    data = views.data("numerics", (a, b), ViewState())
    json.dumps(finite(data), allow_nan=False)
    first = data["first"]
    assert (first["part"], first["a"]["kind"], first["how"]) == ("import", "core.mul", "recorded")
    imported = [row for row in data["rows"] if row["part"] == "import"]
    kinds = [row["a"]["kind"] for row in imported]
    assert kinds == ["input", "core.neg", "core.relu", "core.mul", "core.exp", "core.add"]
    assert [row["differs"] for row in imported] == [False, False, False, True, True, True]
    for row in imported:
        assert row["a"]["name"] == row["b"]["name"] and row["a"]["type"] == row["b"]["type"]
        apart = [abs(row["a"][name] - row["b"][name]) for name in ("minimum", "maximum", "mean")]
        assert row["difference"] == max(apart)
        assert not row["exact"] and row["ulps"] is None, "only statistics are recorded"
    assert data["differing"] == sum(row["differs"] for row in data["rows"])


def test_other_inputs_are_told_at_the_input(opened):
    data = numerics.data(*_asked(opened("a", "inputs")))
    assert data["first"]["a"]["kind"] == "input"
    assert data["differing"] == data["total"]


def test_another_pipeline_with_the_same_bits_differs_in_nothing(opened):
    a, b = opened("a", "pipeline")
    data = numerics.data((a, b), ViewState())
    assert data["first"] is None and data["differing"] == 0
    compiled = next(part for part in data["parts"] if part["name"] == "compiled")
    assert compiled["only"]["b"] > compiled["only"]["a"] == 0, "what A has fused away"
    assert compiled["guessed"] == 0 and compiled["matched"] >= 2
    assert {r["why"] for r in data["rows"] if r["part"] == "compiled"} == {"value map"}
    back = numerics.data((b, a), ViewState())
    pairs = {(row["a"]["name"], row["b"]["name"]) for row in data["rows"]}
    assert pairs == {(row["b"]["name"], row["a"]["name"]) for row in back["rows"]}


def test_the_ir_of_both_names_what_one_does_not_have(opened):
    a, b = opened("a", "pipeline")
    stage = next(s.index for s in a.stages() if s.pass_name == "fuse_elementwise")
    data = views.data("diff", (a, b), ViewState(stage=stage))
    assert "it has no fuse_elementwise" in data["right"]["title"]
    asked = {"kind": "text", "what": "after", "from": 0}
    saved = views.answer("diff", (a, b), ViewState(stage=stage), asked)
    assert saved["file"].startswith("b_") and saved["lines"][0] == "module {"
    kinds = {line["kind"] for line in data["lines"]}
    assert "removed" in kinds and "equal" in kinds
    groups = [line for line in data["lines"] if "core.group" in (line["left"] or "")]
    assert groups and all(line["kind"] != "equal" for line in groups)


def test_tensors_are_compared_element_by_element_where_both_have_them(tmp_path):
    class Nudged(KeepsTensors):
        ulps = 3

    module = network()
    arrays = inputs(module)
    for name, recorder in (("a", KeepsTensors), ("b", Nudged)):
        record(tmp_path / f"{name}.run", module, arrays, recorder=recorder)
    a, b = Run(tmp_path / "a.run"), Run(tmp_path / "b.run")
    data = numerics.data((a, b), ViewState())
    assert data["exact"] == data["total"] == data["differing"] > 0
    assert {(row["unequal"], row["ulps"]) for row in data["rows"]} == {(1, 3)}
    step = np.float32(np.linspace(1, 2, 20, dtype=np.float32)[2])
    wanted = float(np.float64((step.view(np.int32) + 3).view(np.float32)) - np.float64(step))
    assert {row["difference"] for row in data["rows"]} == {wanted}
    same = numerics.data((a, a), ViewState())
    assert same["first"] is None and {row["unequal"] for row in same["rows"]} == {0}
    a.close()
    b.close()


def test_a_side_without_statistics_is_named(opened):
    a, bare = opened("a", "unchecked")
    with pytest.raises(Empty, match=r"B \(unchecked\.run\) has no statistics.*--check"):
        numerics.data((a, bare), ViewState())
    with pytest.raises(Empty, match=r"A \(unchecked\.run\)"):
        numerics.data((bare, a), ViewState())


def test_of_many_rows_those_that_differ_are_sent(opened, monkeypatch):
    a, b = opened("a", "constant")
    whole = numerics.data((a, b), ViewState())
    monkeypatch.setattr(numerics, "MAX_ROWS", whole["differing"])
    cut = numerics.data((a, b), ViewState())
    assert cut["total"] == whole["total"] > len(cut["rows"]) == whole["differing"]
    assert cut["rows"] == [row for row in whole["rows"] if row["differs"]]


def _asked(runs):
    return tuple(runs), ViewState()


# -- the page -------------------------------------------------------------------------------------


@pytest.fixture
def library(own_server, folder):
    """A server whose library holds the recordings."""
    made = own_server()
    shutil.copytree(folder, made.root / "recordings", dirs_exist_ok=True)
    return made


@pytest.mark.slow
@pytest.mark.playwright
def test_which_value_differs_first_in_two_clicks(library, tab, opened):
    a, b = opened("a", "constant")
    data = numerics.data((a, b), ViewState())
    page = tab(f"{library.url}?run=a.run&panes=numerics")
    page.wait(f"{VIEW} [data-tab=values]")
    page.locate(".cw-tabs .two select").select_option("constant.run")
    page.wait(f"{VIEW} [data-first]")
    page.wait_query("other", "constant.run")
    told = page.text(f"{VIEW} .two .told")
    assert "First divergence" in told and "mul" in told and "as imported" in told
    assert "only statistics" in told
    page.locate(f"{VIEW} [data-first]").click()
    page.wait_query("op", str(data["first"]["a"]["op"]))
    page.wait(f"{VIEW} tbody.first.on")
    # Back to this recording alone, and to both: the link has it.
    page.locate('.cw-tabs [data-two="one"]').click()
    page.wait(f"{VIEW} [data-tab=values]")
    assert page.locate(f"{VIEW} .two").count() == 0
    page.locate('.cw-tabs [data-two="both"]').click()
    page.wait(f"{VIEW} [data-part=import]")
    page.wait_query("numerics.view", '"ab":true', partly=True)
    again = tab(page.page.url)
    again.wait(f"{VIEW} tbody.first.on")
    assert page.errors == again.errors == []


@pytest.mark.slow
@pytest.mark.playwright
def test_values_of_both_are_filtered_walked_and_downloaded(library, tab, opened):
    a, b = opened("a", "constant")
    rows = [r for r in numerics.data((a, b), ViewState())["rows"] if r["part"] == "import"]
    asked = "run=a.run&other=constant.run&panes=numerics"
    page = tab(f'{library.url}?{asked}&numerics.view={{"ab":true}}')
    page.wait(f"{VIEW} tbody[data-row]")
    assert page.locate(f"{VIEW} tbody[data-row]").count() == len(rows)
    page.locate(f"{VIEW} .two .scroll").focus()
    ops = [row["a"]["op"] for row in rows if row["a"]["op"] is not None]
    for op in ops[:2]:
        page.press("ArrowDown")
        page.wait_query("op", str(op))
    page.press("Home")
    page.quickly(page.locate(f"{VIEW} .two .scroll"), "ArrowDown", "ArrowDown")
    page.wait_query("op", str(ops[2]))
    page.locate(f"{VIEW} [data-do=differing]").click()
    page.wait_query("numerics.view", '"only":true', partly=True)
    assert page.locate(f"{VIEW} tbody[data-row]").count() == sum(row["differs"] for row in rows)
    page.locate(f"{VIEW} .two input[type=search]").fill("exp")
    assert page.locate(f"{VIEW} tbody[data-row]").count() == 1
    saved = page.saved(f"{VIEW} .two", "Values of both, CSV").read_text()
    head, line = saved.splitlines()
    assert head.startswith("stage,place,a_name,b_name") and "core.exp" in line
    # Another choice: nothing to compare with, and the single view is back.
    page.locate(".cw-tabs .two select").select_option("")
    page.wait_query("other", None)
    page.wait(f"{VIEW} [data-tab=values]")
    assert page.errors == []
