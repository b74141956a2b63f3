"""Damaged files of every kind: only UserError may come out, one line, with what to do."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from workbench.model import models
from workbench.model.spec import read_spec

DAMAGES = 120


def damaged(data: bytes, generator) -> bytes:
    """``data`` with bytes set, a bit turned, a part left out, put in or moved, or the end cut."""
    made = bytearray(data)

    def place() -> int:
        return int(generator.integers(len(made)))

    match int(generator.integers(6)):
        case 0:
            for _ in range(int(generator.integers(1, 8))):
                made[place()] = int(generator.integers(256))
        case 1:
            made[place()] ^= 1 << int(generator.integers(8))
        case 2:
            start = place()
            del made[start : start + int(generator.integers(1, 64))]
        case 3:
            start = place()
            made[start:start] = generator.bytes(int(generator.integers(1, 32)))
        case 4:
            del made[place() :]
        case 5:
            part = made[place() :][:200]
            start = place()
            made[start : start + len(part)] = part
    return bytes(made)


def attempts(good: Path, use) -> int:
    """How many damaged copies of ``good`` were refused; anything but UserError fails."""
    use(good)
    content, refused = good.read_bytes(), []
    for seed in range(DAMAGES):
        path = good.with_name(f"damaged{good.suffix}")
        path.write_bytes(damaged(content, np.random.default_rng(seed)))
        try:
            use(path)
        except UserError as error:
            refused.append(error)
    assert [str(e) for e in refused if not e.what or not e.fix or "\n" in str(e)] == []
    return len(refused)


def load(path: Path) -> None:
    models.load(read_spec(str(path)), cache=False)


def test_onnx(tmp_path):
    pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    weight = np.ones((4, 2, 3, 3), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], name="/l/conv"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "s"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 2, 4, 4])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([1, -1]), "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (tmp_path / "good.onnx").write_bytes(model.SerializeToString())
    assert attempts(tmp_path / "good.onnx", load) > DAMAGES // 4


@pytest.fixture
def archive(tmp_path) -> Path:
    pytest.importorskip("torch")
    from sample_models.export import export_pt2

    path = tmp_path / "good.pt2"
    path.write_bytes(export_pt2("digits-mlp", width=0.1).read_bytes())
    return path


def test_pt2(archive):
    assert attempts(archive, load) > DAMAGES // 2


def test_entries_whose_names_are_no_text_are_refused(archive):
    """Zip entries may say that their name is UTF-8 and hold anything."""
    content = archive.read_bytes()
    at = content.index(b"archive_format")
    archive.write_bytes(content[:at] + b"\xa6" + content[at + 1 :])
    with zipfile.ZipFile(archive.with_name("utf8.zip"), "w") as made:
        made.writestr("m/é", b"pt2")
    utf8 = archive.with_name("utf8.pt2")
    utf8.write_bytes(archive.with_name("utf8.zip").read_bytes().replace("é".encode(), b"\xa6\xa6"))
    for path in (archive, utf8):
        with pytest.raises(UserError, match="not a readable"):
            load(path)


@pytest.mark.slow
def test_a_recording(tmp_path, recording):
    def read(path: Path) -> None:
        with Recording.open(path) as opened:
            stages = opened.stages()
            for stage in (0, len(stages) - 1):
                opened.text(stage)
            opened.diff_lines(0, len(stages) - 1)
            opened.kernels(), opened.buffers(), opened.timings(), opened.diagnostics()
            json.dumps(opened.meta())
            opened.op_history(1)

    path = tmp_path / "good.run"
    path.write_bytes(recording.read_bytes())
    assert attempts(path, read) > DAMAGES // 4
