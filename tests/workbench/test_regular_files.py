"""What a user names as a file and is none: a pipe, a device, a socket, a folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import core_compiler as cc
from core_compiler.support.errors import UserError
from workbench.model import import_cache
from workbench.model.spec import read_spec

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")

KINDS = ("fifo", "device", "socket", "folder", "link to a fifo", "link to a device")
ENDINGS = (".onnx", ".pt2", ".keras", ".mlir", ".run")


def _made(path: Path, kind: str) -> Path:
    """Something of ``kind`` called ``path``."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")  # nobody but root makes another
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # its name may have 108 bytes
        try:
            with socket.socket(socket.AF_UNIX) as held:
                held.bind(path.name)
        finally:
            os.chdir(here)
    elif kind == "folder":
        path.mkdir()
    else:
        other = path.with_name(f"other-{path.name}")
        path.symlink_to(_made(other, kind.removeprefix("link to a ")))
    return path


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_no_regular_file_is_refused(kind, ending, tmp_path, command):
    path = _made(tmp_path / f"model{ending}", kind)
    code, out, err = command("passes", path)
    assert (code, out) == (2, "") and err.count("\n") == 1 and "expected a regular file" in err
    if ending != ".run":
        with pytest.raises(UserError, match="expected a regular file"):
            cc.compile(path, finish=False)


@pytest.mark.sampled(3)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("ending", [".npz", ".npy", ".safetensors"])
def test_data_that_are_no_regular_file_are_refused(ending, tmp_path, command):
    path = _made(tmp_path / f"data{ending}", "fifo")
    code, _, err = command("train", "digits-mlp", "--data", path)
    assert code == 2 and "expected a regular file" in err


def _with_external(folder: Path, location: str, **facts: str) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **facts}.items():
        weight.external_data.add(key=key, value=value)
    kind = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [kind("x", TensorProto.FLOAT, [4])],
        [kind("y", TensorProto.FLOAT, [4])],
        [weight],
    )
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
    return path


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_external_data_that_are_no_regular_file_are_refused(kind, tmp_path, command):
    path = _with_external(tmp_path, "data.bin")
    _made(tmp_path / "data.bin", kind)
    assert import_cache.key(read_spec(str(path))) is None  # not even hashed
    code, _, err = command("passes", path)
    assert code == 2 and err.count("\n") == 1
    outside = "device" in kind  # the link leads out of the folder
    assert ("is not in the model's folder" if outside else "expected a regular file") in err
    with pytest.raises(UserError):
        cc.compile(path, finish=False)


@pytest.mark.parametrize(
    "facts",
    [
        {"offset": "8"},
        {"length": "32"},
        {"offset": "-4"},
        {"offset": "1" * 30},
        {"length": "1" * 30},
        {"offset": "x"},
        {"offset": "1" * 5000},
    ],
)
def test_external_data_beyond_the_file_are_refused(facts, tmp_path):
    path = _with_external(tmp_path, "data.bin", **facts)
    (tmp_path / "data.bin").write_bytes(np.ones(4, np.float32).tobytes())
    with pytest.raises(UserError) as caught:
        cc.compile(path, finish=False)
    assert "external data of tensor 'w'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_external_data_outside_the_folder_are_not_opened(tmp_path):
    (tmp_path / "inner").mkdir()
    os.mkfifo(tmp_path / "secret")
    path = _with_external(tmp_path / "inner", "../secret")
    assert import_cache.key(read_spec(str(path))) is None
    assert onnx.load(path, load_external_data=False).graph.initializer
