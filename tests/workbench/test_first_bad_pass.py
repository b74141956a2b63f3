"""The first bad pass, from the command line and as the page's worker keeps it."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from core_compiler.driver.compilation import Options
from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError
from tests.debug import planted
from tests.workbench.conftest import MODEL
from tests.workbench.test_cli_reduce import own
from widgets.encode import finite
from workbench.app import worker
from workbench.app.library import Library
from workbench.app.workspace import UntrustedCode, Workspace
from workbench.model import edits, first_bad_pass, models
from workbench.model.spec import read_spec
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import bisect

SIZES = {"width": 0.25}


def insert(name: str, **options: str) -> dict:
    """An edit as a recording has it: a planted pass with its code."""
    code = Path(planted.__file__).read_text()
    item = {"place": "before:canonicalise", "code": code, "class": name, "file": "planted.py"}
    return {"insert": [{**item, "pass": name, "options": options}]}


def look(recording: Path, edit: dict | None = None, inputs: str = "", **more) -> dict:
    """What the page's worker keeps beside ``recording``."""
    asked = {"recording": str(recording), "identity": "x", "tolerance": 1e-3, "inputs": inputs}
    job = {"model": "digits-mlp", "sizes": SIZES, "edit": edit, "out": "", "bisect": asked, **more}
    worker._bisect(worker._read_job(json.dumps(job)))
    return first_bad_pass.RESULTS.kept(recording, first_bad_pass.key_of("x", 1e-3, inputs))


def recorded(path: Path, **meta) -> Path:
    """A recording that says what it was compiled from, and has no stage."""
    with Recorder(path) as recorder:
        recorder.begin(
            {
                "model": "digits-mlp",
                "spec": "digits-mlp",
                "kind": "sample",
                "frontend": "torch",
                "sizes": SIZES,
                "target": "cpu",
                **meta,
            }
        )
        recorder.end("finished")
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> tuple[Path, dict]:
    pytest.importorskip("torch", reason="the sample models need torch")
    path = tmp_path_factory.mktemp("found") / "x.run"
    return path, look(path, insert("QuickGelu"))


@pytest.mark.slow
def test_the_page_and_the_command_line_tell_the_same(found, command):
    kept = dict(found[1])
    told = command.json("bisect", *MODEL, *own("QuickGelu", "canonicalise"), code=1)
    rewrites = [dict(each.pop("first_bad_rewrite")) for each in (told, kept)]
    sources = [each.pop("source") for each in rewrites]
    assert rewrites[0] == rewrites[1] and all("planted.py:" in each for each in sources)
    assert {k: kept[k] for k in told} == told
    assert told["first_bad_pass"] == "quick_gelu" and told["how"] == "check"
    right, wrong = told["numbers"]
    assert told["absolute"] == abs(right - wrong) > 0 and told["ulps"] > 0
    assert told["looked"]["passes"] == told["stage"] - 1


def test_its_reproducer_runs_alone(found):
    _, kept = found
    reduced = kept["reduced"]
    assert (reduced["problem"], reduced["runs_alone"]) == ("", True), reduced
    assert reduced["ops_after"] == 1 < reduced["ops_before"] and "core.gelu" in reduced["text"]
    assert reduced["download"]["name"] == "reproducer.zip"
    held = zipfile.ZipFile(io.BytesIO(base64.b64decode(reduced["download"]["base64"])))
    assert held.namelist() == ["reproducer/reproducer.py", "reproducer/planted.py"]


def test_where_nothing_is_wrong_it_says_what_was_looked_at(tmp_path, command):
    x = np.random.default_rng(1).standard_normal((1, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x)
    kept = look(tmp_path / "x.run", inputs=str(tmp_path / "x.npz"))
    assert kept["first_bad_pass"] is None and kept["reduced"] is None
    looked = kept["looked"]
    assert looked["passes"] == looked["of"] > 25 and looked["launches"] == 3
    assert looked["verdicts"].keys() == {"bitwise"} and looked["error"] == 0.0
    recording = recorded(tmp_path / "y.run")
    told = command.json("bisect", recording, "--inputs", tmp_path / "x.npz")
    assert told == {k: kept[k] for k in told}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": np.zeros(3, np.float32)}, "add it: float32 of shape [1, 64]; the file has y"),
        ({"arr_0": np.zeros((2, 64), np.float32)}, "got float32 of shape [2, 64]"),
        ({"arr_0": np.zeros((1, 64))}, "got float64 of shape [1, 64]"),
        ({"arr_0": np.array([{}], dtype=object)}, "not an .npz of plain arrays"),
        (None, "not an .npz of plain arrays"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(arrays, said, tmp_path, command):
    path = tmp_path / "x.npz"
    np.savez(path, **arrays) if arrays is not None else path.write_text("x")
    code, _, err = command("bisect", *MODEL, "--inputs", path)
    assert code == 2 and said in err and "x.npz" in err


@pytest.mark.parametrize(
    ("body", "how", "said"),
    [
        ("raise KeyError('missing')", "raised", "KeyError: 'missing'"),
        ("while True: pass", "never ends", "0.5 s"),
        (
            "body = module.main.body; return module.with_main(body.with_(ops=body.ops[1:]))",
            "invalid",
            "is used before it is defined",
        ),
    ],
)
def test_a_pass_that_raises_or_is_invalid_or_never_ends_is_the_bad_one(body, how, said):
    pytest.importorskip("torch", reason="the sample models need torch")
    code = f"class Bad(Pass):\n    def run(self, module, context):\n        {body}\n"
    code = f"from core_compiler.passes.base import Pass\n{code}"
    edit = edits.from_json({"insert": [{"place": 0, "code": code}]})
    model = models.load(read_spec("digits-mlp", None, **SIZES))
    options = Options(edit=edit, pass_timeout=0.5)
    search = first_bad_pass.Search(model, "cpu", options, model.inputs)
    data, _, _ = search.run(lambda what, done, total: None)
    assert data["how"] == how and said in data["note"], data["note"]
    assert (data["first_bad_pass"], data["stage"]) == ("bad", 1)
    json.dumps(finite(data), allow_nan=False)


# -- beside a recording ----------------------------------------------------------------------------


def test_the_view_links_what_was_found_to_the_recording(found, tmp_path, command):
    _, kept = found
    path = tmp_path / "mlp.run"
    words = own("QuickGelu", "canonicalise")
    assert command("compile", *MODEL, *words, "-o", path)[0] == 0
    run = Run(path)
    first_bad_pass.RESULTS.keep(path, first_bad_pass.key_of(run.identity, 1e-3, ""), kept)
    shown = bisect.data((run,), ViewState())["result"]
    json.dumps(finite(bisect.data((run,), ViewState())), allow_nan=False)
    assert run.stages()[shown["there"]].pass_name == "quick_gelu"
    assert run.rewrites(shown["there"])[shown["rewrite"]].rewrite.rule == planted.QUICK_GELU.name
    assert run.recording.op(shown["op"]).kind == "core.gelu"
    assert "download" in shown["reduced"] and shown["reduced"]["lines"][0] == "module {"
    # another tolerance was not looked with
    state = {"tolerance": "1e-5", "inputs": ""}
    other = ViewState(views=(("bisect", json.dumps(state)),))
    assert bisect.data((run,), other)["result"] is None
    assert bisect.key(run, other) != bisect.key(run, ViewState())
    run.close()


@pytest.mark.parametrize("state", [{}, {"tolerance": "1e-3", "inputs": ""}])
def test_what_was_found_in_another_recording_of_that_name_is_not_shown(found, tmp_path, state):
    """A file that is written anew, or that comes where another was deleted."""
    _, kept = found
    path, view_state = tmp_path / "x.run", ViewState(views=(("bisect", json.dumps(state)),))

    def searched(name: str) -> str:
        run = Run(recorded(path))
        before = bisect.data((run,), view_state)["result"]
        job = Workspace(root=tmp_path).bisect(run, {})["bisect"]
        key = first_bad_pass.key_of(job["identity"], job["tolerance"], job["inputs"])
        first_bad_pass.RESULTS.keep(path, key, {**kept, "first_bad_pass": name})
        after = bisect.data((run,), view_state)["result"]
        run.close()
        assert before is None
        return after["first_bad_pass"]

    assert [searched(name) for name in ("one", "two")] == ["one", "two"]
    first_bad_pass.RESULTS.path_of(path).write_text(json.dumps({"0.001 ": kept}))  # of before
    run = Run(path)
    assert bisect.data((run,), view_state)["result"] is None
    run.close()


def test_a_damaged_result_is_none(found, tmp_path):
    _, kept = found
    results, path = first_bad_pass.RESULTS, tmp_path / "x.run"
    for broken in (
        {**kept, "index": ["x"]},
        {**kept, "reduced": {}},
        {**kept, "numbers": [1.0]},
        {**kept, "looked": None},
        {},
        [kept],
    ):
        results.path_of(path).write_text(json.dumps({"1": broken}))
        assert results.newest(path, "") is results.kept(path, "1") is None
    results.keep(path, "2", kept)
    assert results.newest(path, "2") == kept and results.newest(path, "3") is None


def test_what_may_not_run_here_is_refused(tmp_path):
    workspace = Workspace(root=tmp_path)
    path = recorded(tmp_path / "x.run", edit=insert("QuickGelu"))
    run = Run(path)
    with pytest.raises(UntrustedCode, match="contains custom pass code: quick_gelu"):
        workspace.bisect(run, {})
    job = workspace.bisect(run, {"trust": True, "tolerance": "1e-4"})
    assert job["bisect"] == {
        "recording": str(path),
        "identity": run.identity,
        "tolerance": 1e-4,
        "inputs": "",
    }
    assert worker._read_job(json.dumps(job)) == job
    assert first_bad_pass.RESULTS.path_of(path) == Path(job["out"])
    with pytest.raises(UserError, match="disabled on this address"):
        Workspace(root=tmp_path, local=False).bisect(run, {"trust": True})
    for command, said in (
        ({"tolerance": "x"}, "a number, got"),
        ({"tolerance": "-1"}, "got -1"),
        ({"inputs": str(tmp_path / "y.npz")}, "file not found"),
    ):
        with pytest.raises(UserError, match=said):
            workspace.bisect(run, {**command, "trust": True})
    run.close()


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"spec": "gone.onnx", "kind": "onnx", "frontend": "onnx"}, "the recording has no stages"),
        ({"spec": ""}, "the recording has no stages"),
        ({"mode": "training"}, "unknown optimiser 'None'"),
    ],
)
def test_a_recording_that_cannot_stand_for_its_model_says_so(meta, said, tmp_path, command):
    path = recorded(tmp_path / "x.run", **meta)
    run = Run(path)
    with pytest.raises(UserError, match=said):
        Workspace(root=tmp_path).bisect(run, {})
    problem = bisect.data((run,), ViewState())["problem"]
    assert said in problem["what"] and problem["fix"]
    run.close()
    code, _, err = command("bisect", path)
    assert code == 2 and said in err


def test_a_recording_that_is_removed_takes_its_result_along(tmp_path):
    library = Library(tmp_path)
    path = library.new_path("m")
    path.write_bytes(b"")
    first_bad_pass.RESULTS.path_of(path).write_text("{}")
    library.remove(path.name)
    assert list(library.folder.iterdir()) == []
