"""``--size`` of a model file: sizes that it leaves open."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from core_compiler.support.errors import UserError
from workbench.app.workspace import Workspace
from workbench.commands.cli import main

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """The same model as .pt2 and .onnx, with an open batch of at most 64."""
    folder = tmp_path_factory.mktemp("open")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU()).eval()
    x, batch = torch.randn(2, 6), torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "m.pt2")
    torch.onnx.export(
        model,
        (x,),
        folder / "m.onnx",
        dynamo=True,
        dynamic_shapes=({0: "batch"},),
        input_names=["x"],
        output_names=["y"],
        verbose=False,
    )
    return folder


def outputs(capsys, *words: str) -> str:
    assert main(["run", *words]) == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("size", ["--shape", "--size"])
def test_a_size_is_set_by_its_name_or_by_its_axis(files: Path, size: str, capsys) -> None:
    assert "float32[2, 4]" in outputs(capsys, str(files / "m.pt2"))
    assert "float32[5, 4]" in outputs(capsys, str(files / "m.pt2"), size, "input.0=5")
    assert "float32[5, 4]" in outputs(capsys, str(files / "m.onnx"), size, "batch=5")
    assert "float32[5, 4]" in outputs(capsys, str(files / "m.onnx"), size, "x.0=5")
    # An import of another size is not taken from the cache.
    assert "float32[7, 4]" in outputs(capsys, str(files / "m.onnx"), size, "batch=7")


def test_the_peer_has_that_size_too(files: Path, capsys) -> None:
    for name, peer in (("m.pt2", "torch"), ("m.onnx", "onnxruntime")):
        axis = "input.0" if peer == "torch" else "x.0"
        words = ["run", str(files / name), "--size", f"{axis}=9", "--against", peer, "--json"]
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] in ("equal", "within")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("m.pt2", "rows=5", "sizes of the program: input.0"),
        ("m.pt2", "input.0=65", "= 65 is not in 1..64"),
        ("m.pt2", "input.1=7", "unknown size 'input.1'"),
        ("m.onnx", "rows=5", "sizes of the inputs: batch"),
        ("m.onnx", "batch=-1", "expected a size of 0 or more"),
        ("m.onnx", "batch=many", "expected a size of 0 or more"),
    ],
)
def test_what_cannot_be_set_is_said(files: Path, name, size, message, capsys) -> None:
    assert main(["run", str(files / name), "--size", size]) == 2
    assert message in capsys.readouterr().err


def model():
    return torch.nn.Linear(6, 4), (torch.ones(2, 6),)


def function():
    jax = pytest.importorskip("jax")
    weights = {"w": np.ones((6, 4), np.float32)}
    return lambda weights, x: jax.numpy.tanh(x @ weights["w"]), (weights, np.ones((2, 6), "f4"))


@pytest.mark.parametrize(("name", "axis"), [("model", "input.0"), ("function", "x.0")])
def test_a_functions_model_takes_inputs_of_other_sizes(name: str, axis: str, capsys) -> None:
    place = f"{__name__}:{name}"
    assert "float32[2, 4]" in outputs(capsys, place)
    assert "float32[5, 4]" in outputs(capsys, place, "--shape", f"{axis}=5")
    for size, message in (
        (f"{axis}=-1", f"expected a size of 0 or more for {axis}, got -1"),
        ("z.0=5", "unknown size 'z.0'; sizes of its inputs: "),
        ("batch=5", "is named INPUT.AXIS (x.0=5)"),
    ):
        assert main(["run", place, "--shape", size]) == 2
        assert message in capsys.readouterr().err


def test_the_page_takes_sizes_as_text(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    recorded = {"sizes": {"batch": 3, "image": 64}, "shape": " batch=5, x.1=7 "}
    assert workspace.job("resnet18", recorded)["sizes"] == {"batch": 5, "image": 64, "x.1": 7}
    assert workspace.job("resnet18", {"shape": ""})["sizes"] == {}
    with pytest.raises(UserError, match="sizes: cannot parse '5'; write NAME=VALUE"):
        workspace.job("resnet18", {"shape": "5"})
