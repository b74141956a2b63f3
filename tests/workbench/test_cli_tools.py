"""``workbench export -o x.onnx`` and ``x.py``, and ``stage.export``: a stage for other tools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import core_compiler as cc
from core_compiler.ir.parser import parse
from core_compiler.ir.text import print_module, weight_names
from core_compiler.support.errors import UserError
from sample_models.catalogue import build
from tests.exporters.iree import Loaded, compile_file, refusal
from workbench.commands.cli import main


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return build("digits-mlp").example_inputs[0].numpy()


@pytest.fixture(scope="module")
def made(pixels):
    built = build("digits-mlp")
    return cc.compile(built.module, built.example_inputs)


def _session(path: Path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _numpy(path: Path, x: np.ndarray) -> np.ndarray:
    """What the file computes where nothing of ours can be imported."""
    np.save(path.with_name("x.npy"), x)
    code = f"import numpy as np, {path.stem} as m; np.save('y.npy', m.main(np.load('x.npy'))[0])"
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'); {code}"],
        cwd=path.parent,
        check=True,
    )
    return np.load(path.with_name("y.npy"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stage", [0, -18])
def test_a_stage_of_a_compile(made, pixels, stage: int, tmp_path: Path) -> None:
    (want,) = made(pixels)
    chosen = made.stages[stage]
    (model,) = chosen.export(tmp_path / "m.onnx")
    onnx.checker.check_model(str(model), full_check=True)
    session = _session(model)
    assert [i.name for i in session.get_inputs()] == ["pixels"]
    np.testing.assert_allclose(session.run(None, {"pixels": pixels})[0], want, rtol=1e-5, atol=1e-6)
    source, weights = chosen.export(tmp_path / "m.py")
    assert weights.name == "m.npz"
    np.testing.assert_allclose(_numpy(source, pixels), want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["tosa", "linalg"])
def test_a_stage_in_a_standard_dialect(made, pixels, dialect: str, tmp_path: Path) -> None:
    (want,) = made(pixels)
    path = tmp_path / f"m.{dialect}.mlir"
    assert main(["export", "digits-mlp", "-o", str(path)]) == 0
    assert refusal(path) == ""
    compiled, problem = compile_file(path, dialect)
    assert compiled is not None, problem
    (got,) = Loaded(compiled)("main", [pixels], [made.stages[0].module.main.outputs[0].type])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stage", [0, -1])
def test_any_stage_as_our_own_text(made, stage: int, tmp_path: Path) -> None:
    """Weights are in the file; a real MLIR reads it (tests/ir) and so do we."""
    (path,) = made.stages[stage].export(tmp_path / "m.mlir")
    again = parse(path.read_text())
    assert print_module(again, locations="full", embed_weights=True) == path.read_text()
    assert set(again.weights) >= set(weight_names(again))
    (short,) = made.stages[stage].export(tmp_path / "n.mlir", weights="named", locations="")
    assert short.read_text() == made.stages[stage].text()
    with pytest.raises(UserError, match="invalid value 'apart' for weights"):
        made.stages[stage].export(tmp_path / "o.mlir", weights="apart")


def test_an_ending_that_stands_for_nothing(made, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unrecognised file extension '\.onyx'") as said:
        made.stages[0].export(tmp_path / "m.onyx")
    assert ".onnx" in said.value.fix


def test_a_stage_below_the_tensor_level_has_no_such_form(made, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        made.stages[-1].export(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_from_the_command_line_of_a_model_and_of_its_recording(
    made, pixels, tmp_path: Path, capsys
) -> None:
    """The weights of a recording's stage are those of its model, imported again."""
    (want,) = made(pixels)
    run, one, other = (str(tmp_path / n) for n in ("m.run", "one.onnx", "other.onnx"))
    assert main(["compile", "digits-mlp", "-o", run]) == 0
    assert main(["export", "digits-mlp", "-o", one]) == 0
    capsys.readouterr()
    assert main(["export", run, "-o", other, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pass"] == "eliminate_dead_code#2"
    assert list(told["files"]) == [other]
    assert Path(one).read_bytes() == Path(other).read_bytes()
    found = _session(Path(one)).run(None, {"pixels": pixels})[0]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_last_graph_of_onnx_is_what_its_passes_made(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert (
        main(
            [
                "export",
                "digits-mlp",
                "--frontend",
                "onnx-passes",
                "-o",
                str(path),
                "--set",
                "convert_version.to=17",
            ]
        )
        == 0
    )
    model = onnx.load(path)
    assert model.opset_import[0].version == 17
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    ("stage", "said"), [("nowhere", "unknown stage 'nowhere'"), ("99", "choose a stage from 0 to")]
)
def test_a_stage_that_is_not_there(stage: str, said: str, tmp_path: Path, capsys) -> None:
    code = main(["export", "digits-mlp", "--stage", stage, "-o", str(tmp_path / "m.onnx")])
    assert code == 2
    assert said in capsys.readouterr().err
