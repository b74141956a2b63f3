"""The import cache: the same model is read once, anything that decides an import is in its key."""

from __future__ import annotations

import os

import numpy as np
import pytest

from core_compiler.runtime import cache_folder
from core_compiler.support.errors import UserError
from workbench.model import import_cache, models
from workbench.model.spec import read_spec

onnx = pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path / "cache"))


def save(folder, weight, location, inner=None):
    """``model.onnx``: x @ w, with w in the data file ``location``; ``inner``: of a Constant."""
    from onnx import TensorProto, helper

    held = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=weight.shape, data_location=1)
    for name, value in (("location", location), ("offset", "0"), ("length", str(weight.nbytes))):
        held.external_data.add(key=name, value=value)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    nodes = [helper.make_node("Constant", [], ["w"], value=held), product] if inner else [product]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [1, weight.shape[0]])],
        [helper.make_tensor_value_info("y", 1, [1, weight.shape[1]])],
        [] if inner else [held],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (folder / location).parent.mkdir(exist_ok=True)
    (folder / location).write_bytes(weight.tobytes())
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def weight_of(model) -> np.ndarray:
    """The one weight of the model."""
    module = model.imported.module
    (constant,) = [op for op in module.walk() if op.kind == "core.constant"]
    held = constant.attributes["value"]
    return np.asarray(module.weights[held.digest]).view(np.float32).reshape(held.type.shape)


@pytest.mark.parametrize("location", ["model.onnx.data", "weights.bin", "parts/w.bin"])
@pytest.mark.parametrize("inner", [False, True], ids=["initializer", "constant"])
def test_changed_external_data_is_another_model(tmp_path, location, inner):
    first = np.arange(20 * 30, dtype=np.float32).reshape(20, 30)
    path = save(tmp_path, first, location, inner)
    wanted = read_spec(str(path))
    assert not models.load(wanted).cached
    again = models.load(wanted)
    assert again.cached
    np.testing.assert_array_equal(weight_of(again), first)
    (tmp_path / location).write_bytes((first + 1).tobytes())
    changed = models.load(wanted)
    assert not changed.cached
    np.testing.assert_array_equal(weight_of(changed), first + 1)
    (tmp_path / location).write_bytes(first.tobytes())
    assert models.load(wanted).cached  # both stay known


@pytest.mark.parametrize("location", ["weights.bin", "others.bin"], ids=["data", "model"])
def test_a_file_that_changes_during_the_import_is_read_again(tmp_path, monkeypatch, location):
    from core_compiler.frontends import onnx as frontend

    first = np.arange(20 * 30, dtype=np.float32).reshape(20, 30)
    path = save(tmp_path, first, "weights.bin")
    import_file = frontend.import_file

    def changing(*given, **options):
        made = import_file(*given, **options)
        (tmp_path / "weights.bin").unlink()  # what was read is mapped, and stays
        save(tmp_path, first + 1, location)
        return made

    monkeypatch.setattr(frontend, "import_file", changing)
    wanted = read_spec(str(path))
    np.testing.assert_array_equal(weight_of(models.load(wanted)), first)
    monkeypatch.setattr(frontend, "import_file", import_file)
    now = models.load(wanted)
    assert not now.cached
    np.testing.assert_array_equal(weight_of(now), first + 1)
    assert models.load(wanted).cached


def test_a_data_file_that_went_away_is_named_although_the_model_is_cached(tmp_path):
    path = save(tmp_path, np.ones((20, 30), np.float32), "weights.bin")
    wanted = read_spec(str(path))
    models.load(wanted)
    os.remove(tmp_path / "weights.bin")
    with pytest.raises(UserError, match=r"file 'weights.bin' not found"):
        models.load(wanted)


def test_a_file_beside_the_model_that_it_does_not_name_does_not_matter(tmp_path):
    path = save(tmp_path, np.ones((20, 30), np.float32), "weights.bin")
    wanted = read_spec(str(path))
    models.load(wanted)
    (tmp_path / "model.onnx.log").write_text("exported")
    assert models.load(wanted).cached


def test_trust_is_in_the_key(tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(b"archive")
    keys = {import_cache.key(read_spec(str(path), trust=trust)) for trust in (False, True)}
    assert len(keys) == 2


def test_entries_that_are_mapped_instead_of_read_are_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_folder, "MAP_FROM", 1)
    first = np.arange(20 * 30, dtype=np.float32).reshape(20, 30)
    wanted = read_spec(str(save(tmp_path, first, "weights.bin")))
    models.load(wanted)
    again = models.load(wanted)
    assert again.cached
    np.testing.assert_array_equal(weight_of(again), first)


def test_sizes_that_depend_on_data_are_cut_the_second_time_too(tmp_path):
    from onnx import helper

    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [3, 4])],
        [helper.make_tensor_value_info("y", 7, [2, None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "places.onnx"
    path.write_bytes(model.SerializeToString())
    results = [np.arange(24).reshape(2, 12), np.array(5)]
    for cached in (False, True):
        loaded = models.load(read_spec(str(path)))
        assert loaded.cached == cached
        (made,) = loaded.imported.trimmed(results)
        assert made.shape == (2, 5)
