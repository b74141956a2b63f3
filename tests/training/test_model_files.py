"""``workbench train FILE --data FILE``: a model file and files of data, and the same again."""

from __future__ import annotations

import json
import os
import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

import core_compiler as cc
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from core_compiler.training.fit import fit
from core_compiler.training.optimisers.optimizers import Adam
from core_compiler.training.optimisers.schedules import Constant, Cosine, Step, Warmup, read
from core_compiler.training.run.data import Data
from workbench.commands.cli import main
from workbench.training import datasets, input_files
from workbench.training import runs as training_runs
from workbench.training.datasets import Input, inputs_of

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

BATCH = 4
#: The tests' model on the command line.
TRAIN = ["--batch", str(BATCH), "--optimizer", "adam", "--rate", "0.01"]


def _module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def onnx_model(rows: int | str = "n") -> onnx.ModelProto:
    """The module as a graph that somebody wrote."""
    held = {n.replace(".", "_"): t.numpy() for n, t in _module().state_dict().items()}
    nodes = [
        helper.make_node("Gemm", ["pixels", "0_weight", "0_bias"], ["a"], "first", transB=1),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Gemm", ["b", "2_weight", "2_bias"], ["y"], "last", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [rows, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 3])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((12, 6)).astype(np.float32), rng.integers(0, 3, 12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """``model.onnx``, ``data.npz``, and two runs of it, one with a rounding flipped."""
    made = tmp_path_factory.mktemp("files")
    onnx.save(onnx_model(), made / "model.onnx")
    x, y = arrays()
    np.savez(made / "data.npz", pixels=x, label=y)
    words = ["train", str(made / "model.onnx"), "--data", str(made / "data.npz"), *TRAIN]
    words += ["--iterations", "3", "--every", "2", "--receipts", "state"]
    assert main([*words, "--folder", str(made / "a"), "-o", str(made / "a.run")]) == 0
    names = json.loads((made / "a" / "receipts.jsonl").read_text().splitlines()[0])["names"]
    op = [op for _, op, *_ in names if op.startswith("core.sub#")][-1]
    assert main([*words, "--folder", str(made / "b"), "--inject", f"{op}:2"]) == 0
    return made


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, dirs_exist_ok=True)
    return to


def told(capsys, *words: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def refused(capsys, *words: str) -> str:
    """The one line of a mistake."""
    capsys.readouterr()
    assert main(list(words)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


# -- an ONNX model --------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_onnx_file_trains_as_from_python(folder, capsys):
    x, y = arrays()
    training = cc.Training(optimizer=Adam(0.01))
    step = cc.compile(onnx_model(), (x[:BATCH], y[:BATCH]), training=training)
    history = fit(step, (x, y), iterations=3, batch=BATCH)
    words = ["train", str(folder / "model.onnx"), "--data", str(folder / "data.npz"), *TRAIN]
    code, found = told(capsys, *words, "--iterations", "3")
    assert code == 0
    assert found["loss"] == history.loss
    assert (found["digest"], found["identity"]) == (step.digest, step.identity)


@pytest.mark.slow
def test_its_run_is_verified_diverged_and_resumed(folder, capsys, tmp_path):
    code, found = told(capsys, "verify", str(folder / "a"), "--iteration", "3")
    assert (code, found["iterations"][0]["mismatch"]) == (0, None)
    code, found = told(capsys, "diverge", str(folder / "a"), str(folder / "b"))
    assert (code, found["iteration"], found["ulps"]) == (1, 2, 1)
    moved = copied(folder, tmp_path / "moved")  # to another machine: with its files beside it
    held = json.loads((moved / "a" / "run.json").read_text())
    held["files"] = [[f"/nowhere/{Path(p).name}", digest] for p, digest in held["files"]]
    (moved / "a" / "run.json").write_text(json.dumps(held))
    code, found = told(capsys, "verify", str(moved / "a"), "--iteration", "1")
    assert (code, found["iterations"][0]["mismatch"]) == (0, None)
    words = ["train", str(moved / "model.onnx"), "--data", str(moved / "data.npz"), *TRAIN]
    words += ["--receipts", "state", "--folder", str(moved / "a"), "--resume"]
    code, found = told(capsys, *words, "--iterations", "4")
    assert (code, found["first"], len(found["loss"])) == (0, 3, 1)
    x, y = arrays()
    np.savez(moved / "data.npz", pixels=x, label=y[::-1])
    assert "the run was started with another file" in refused(capsys, *words)


@pytest.mark.slow
def test_files_that_changed_or_are_gone_are_one_line(folder, capsys, tmp_path):
    made = copied(folder, tmp_path / "changed")
    held = json.loads((made / "a" / "run.json").read_text())
    held["files"] = [[str(made / Path(p).name), digest] for p, digest in held["files"]]
    (made / "a" / "run.json").write_text(json.dumps(held))
    x, y = arrays()
    np.savez(made / "data.npz", pixels=x + 1, label=y)
    said = refused(capsys, "verify", str(made / "a"))
    assert "data.npz: the file has changed since the run was made; restore the version" in said
    (made / "data.npz").unlink()
    said = refused(capsys, "diverge", str(made / "a"), str(folder / "b"))
    assert "data.npz: the file that the run was made with was not found; restore it" in said
    shutil.copy(folder / "data.npz", made / "data.npz")
    model = onnx_model()
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    onnx.save(model, made / "model.onnx")  # other weights: of the same numerics identity
    assert "model.onnx: the file has changed" in refused(capsys, "verify", str(made / "a"))


def test_weights_beside_the_model_are_files_of_the_run(tmp_path):
    onnx.save(
        onnx_model(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    np.save(tmp_path / "pixels.npy", arrays()[0])
    made = Namespace(model=str(tmp_path / "m.onnx"), data=[str(tmp_path / "pixels.npy")])
    names = [Path(p).name for p, _ in input_files.list_files(made.model, made.data)]
    assert names == ["m.onnx", "m.data", "pixels.npy"]


def test_the_recording_calls_the_model_by_its_file(folder):
    with Recording.open(folder / "a.run") as recording:
        assert recording.meta()["model"] == "model"
        assert recording.meta()["training_run"]["iterations"] == 3


class _WithLoss(torch.nn.Module):
    """A model that returns its loss; its program says dtypes, and rounding has no gradient."""

    def __init__(self):
        super().__init__()
        self.inner, self.whole = _module(), torch.nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.full((3,), 1.5, dtype=torch.bfloat16))

    def forward(self, pixels, classes):
        made = self.inner(pixels).double() * self.scale
        return torch.nn.functional.cross_entropy(made.float() + self.whole.round(), classes)


def test_a_saved_program_that_returns_its_loss_is_trained_on_its_inputs_alone(tmp_path, capsys):
    """And compared with torch, which runs the program itself."""
    x, y = arrays()
    given = (torch.from_numpy(x[:BATCH]), torch.from_numpy(y[:BATCH]))
    torch.export.save(torch.export.export(_WithLoss(), given), tmp_path / "m.pt2")
    np.savez(tmp_path / "data.npz", classes=y, pixels=x)
    words = ["train", str(tmp_path / "m.pt2"), *TRAIN, "--loss", "own", "--iterations", "2"]
    assert "with the columns pixels, classes" in refused(capsys, *words)
    words += ["--data", str(tmp_path / "data.npz")]
    assert main([*words, "--against", "torch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] in ("equal", "within")
    assert found["compared"] == {"loss": 2, "gradient": 5, "parameter": 5, "buffer": 1}
    np.savez(tmp_path / "data.npz", classes=y)
    said = refused(capsys, *words)
    assert "expected the columns pixels, classes, got classes" in said


# -- what does not fit ----------------------------------------------------------------------------


def test_a_model_file_without_data_says_what_to_give(folder, capsys):
    said = refused(capsys, "train", str(folder / "model.onnx"))
    assert "pass --data FILE (.npz, .npy or .safetensors) with the columns pixels, targets" in said
    said = refused(capsys, "train", "model.mlir", "--data", "data.npz")
    assert "has no parameters to train" in said
    said = refused(capsys, "train", str(folder / "model.onnx"), "--width", "2")
    assert "--width cannot be set for a file" in said


X, Y = arrays()
TAKES = [Input("pixels", np.dtype(np.float32), (None, 6))]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"pixels": X}, "expected the columns pixels, targets, got pixels"),
        ({"a": X, "b": X, "c": Y}, "expected the columns pixels, targets, got a, b, c"),
        (
            {"pixels": X.astype(np.float64), "y": Y},
            r'got column pixels of float64 \[12, 6\].*convert it: pixels.astype\("float32"\)',
        ),
        ({"label": Y, "x": X}, r"pixels of float32 .*, got column label of int64 \[12\]"),
        (
            {"pixels": X[:, :5], "y": Y},
            r"expected pixels of .*, got column pixels of float32 \[12, 5\]",
        ),
        ({"pixels": X[0], "y": Y[:6]}, r"pixels of .*, got column pixels of float32 \[6\]"),
        ({"pixels": X[:9], "y": Y}, "columns of different lengths: 9 for pixels, 12 for y"),
        (
            {"pixels": X[:3], "y": Y[:3]},
            "batch size 4 exceeds the dataset size 3; pass --batch 3 or less",
        ),
        ({"pixels": np.array([None, 2]), "y": Y}, "cannot read columns of numbers from the file"),
        ({"pixels": np.array(["a"] * 12), "y": Y}, "column 'pixels': expected numbers"),
    ],
)
def test_columns_that_do_not_fit_are_told(tmp_path, columns, said):
    np.savez(tmp_path / "data.npz", **columns)
    with pytest.raises(UserError, match=said) as error:
        datasets.read([str(tmp_path / "data.npz")], TAKES, None, BATCH)
    assert "data.npz" in error.value.where


def test_columns_come_from_any_file_by_name_or_in_order(tmp_path):
    """Further columns are left out where all names are there."""
    (x, y), where = arrays(), str(tmp_path / "data")
    np.savez(f"{where}.npz", targets=y, further=y, pixels=x)
    np.savez(f"{where}2.npz", x, y)  # arr_0, arr_1
    np.save(tmp_path / "pixels.npy", x)
    np.save(tmp_path / "classes.npy", y)
    save_file({"pixels": x, "y": y}, f"{where}.safetensors")
    rows = np.zeros(12, [("targets", np.int64), ("pixels", np.float32, (6,))])
    rows["targets"], rows["pixels"] = y, x
    np.save(f"{where}3.npy", rows)
    for files in (
        [f"{where}.npz"],
        [f"{where}2.npz"],
        [f"{where}.safetensors"],
        [f"{where}3.npy"],
        [str(tmp_path / "pixels.npy"), str(tmp_path / "classes.npy")],
    ):
        found = datasets.read(files, TAKES, None, BATCH)
        assert [a.tobytes() for a in found.arrays] == [x.tobytes(), y.tobytes()], files
    with pytest.raises(UserError, match="two files have a column 'pixels'"):
        datasets.read([f"{where}.npz", str(tmp_path / "pixels.npy")], TAKES, None, BATCH)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("data.csv", "1,2", "not a supported data file; pass a .npz, .npy or .safetensors"),
        ("data.npz", "no zip", "cannot read columns of numbers from the file"),
        ("data.npy", "", "cannot read columns of numbers from the file"),
        ("data.safetensors", "{", "cannot read columns of numbers from the file"),
        ("gone.npz", None, "file not found"),
    ],
)
def test_files_that_hold_no_columns_are_told(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=said):
        datasets.read([str(tmp_path / name)], TAKES, None, BATCH)


def test_a_batch_that_the_file_fixes_is_told(tmp_path, capsys):
    onnx.save(onnx_model(2), tmp_path / "two.onnx")
    np.savez(tmp_path / "data.npz", pixels=X, y=Y)
    said = refused(
        capsys, "train", str(tmp_path / "two.onnx"), "--data", str(tmp_path / "data.npz")
    )
    assert "expected batches of 2, got 8; pass --batch 2" in said


def test_targets_of_another_kind_are_told(folder, tmp_path, capsys):
    np.savez(tmp_path / "data.npz", pixels=X, y=Y.astype(np.int32))
    said = refused(
        capsys, "train", str(folder / "model.onnx"), *TRAIN, "--data", str(tmp_path / "data.npz")
    )
    assert "expected targets to be tensor<4xi64>, got int32 4; pass targets of int64" in said


# -- other models ---------------------------------------------------------------------------------


def onnx_alone() -> onnx.ModelProto:
    """What ``module:function`` may return with ``--data``."""
    return onnx_model()


def onnx_and_data():
    return onnx_model(), arrays()


@pytest.mark.slow
def test_a_function_may_return_an_onnx_model(folder, capsys):
    name = "tests.training.test_model_files"
    data = ["--data", str(folder / "data.npz")]
    runs = [
        told(capsys, "train", *words, *TRAIN, "--iterations", "2")[1]["digest"]
        for words in (
            [f"{name}:onnx_alone", *data],
            [f"{name}:onnx_and_data"],
            [f"{name}:onnx_and_data", *data],
        )
    ]
    assert len(set(runs)) == 1
    said = refused(capsys, "train", f"{name}:onnx_alone")
    assert "with --data the model alone is enough" in said


@pytest.mark.slow
def test_an_exported_program_trains_at_any_batch(tmp_path, capsys):
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(_module(), (torch.zeros(3, 6),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "model.pt2")
    np.savez(tmp_path / "data.npz", X, Y)
    words = ["train", str(tmp_path / "model.pt2"), "--data", str(tmp_path / "data.npz"), *TRAIN]
    code, found = told(capsys, *words, "--iterations", "2")
    assert code == 0
    assert found["loss"][0] == pytest.approx(first_loss(), rel=1e-5)
    (one,) = inputs_of(program)
    assert (one.dtype, one.shape) == (np.float32, (None, 6))


def first_loss() -> float:
    """That of the first batch, by torch."""
    x, y = (torch.from_numpy(a) for a in Data((X, Y)).batch(0, BATCH, 0))
    return torch.nn.functional.cross_entropy(_module()(x), y).item()


@pytest.mark.slow
def test_a_keras_file_trains(tmp_path, capsys):
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="needs keras")
    if keras.config.backend() != "jax":
        pytest.skip("another backend of Keras is chosen")
    layers = [
        keras.Input((6,), name="pixels"),
        keras.layers.Dense(8, "relu"),
        keras.layers.Dense(3),
    ]
    model = keras.Sequential(layers)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "data.npz", pixels=X, y=Y)
    words = ["train", str(tmp_path / "model.keras"), "--data", str(tmp_path / "data.npz"), *TRAIN]
    words += ["--iterations", "2", "--receipts", "state", "--folder", str(tmp_path / "run")]
    code, _ = told(capsys, *words)
    assert code == 0
    code, found = told(capsys, "verify", str(tmp_path / "run"))
    assert (code, found["iterations"][0]["mismatch"]) == (0, None)


# -- schedules ------------------------------------------------------------------------------------


def test_a_schedule_of_the_command_is_that_of_python():
    assert read(["cosine:iterations=50,least=1e-4"], 0.1) == Cosine(0.1, 50, 1e-4)
    assert read(["step:every=3"], 0.1) == Step(0.1, 3)
    both = ["cosine:iterations=50", "warmup:iterations=5"]
    assert read(both, 0.1) == read(both[::-1], 0.1) == Warmup(5, Cosine(0.1, 50))
    assert read(["warmup:iterations=5"], 0.1) == Warmup(5, Constant(0.1))
    arguments = Namespace(optimizer="adamw", rate=None, schedule=["linear:iterations=9,last=0.5"])
    made = training_runs._optimizer(arguments)
    assert repr(made.rate) == "Linear(value=0.001, iterations=9, last=0.5)"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["cosin:iterations=3"], "unknown schedule 'cosin'; did you mean cosine"),
        (["cosine"], "missing iterations in 'cosine'; write cosine:iterations=NUMBER,least=NUMBER"),
        (["cosine:iterations=x"], "cannot parse 'iterations=x'"),
        (["cosine:steps=4"], "cannot parse 'steps=4'"),
        (["cosine:iterations=4", "step:every=2"], "too many schedules: 'step:every=2'"),
        (["warmup:iterations=4", "warmup:iterations=5"], "too many schedules"),
        (["step:every=0"], "invalid value 0 for every; pass 1 or more"),
    ],
)
def test_schedules_that_cannot_be_read_are_told(texts, said):
    with pytest.raises(UserError, match=said):
        read(texts, 0.1)
