"""Reading .pt2 archives: good ones as torch reads them, hostile ones never executed."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core_compiler.frontends.pytorch import import_exported
from core_compiler.frontends.pytorch.archive import read_pt2
from core_compiler.support.errors import UserError
from sample_models.export import export_pt2
from tests.frontends.programs import execute, exported


@pytest.fixture(scope="module")
def good() -> Path:
    return export_pt2("digits-cnn", width=0.25)


def _rewritten(source: Path, target: Path, change, *, compression=zipfile.ZIP_STORED) -> Path:
    """A copy of an archive; ``change(name, data)`` answers the new data, or None to leave it
    out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for info in old.infolist():
            data = change(info.filename.split("/", 1)[1], old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
    return target


def _with_program(source: Path, target: Path, edit) -> Path:
    """A copy whose program's JSON went through ``edit``."""

    def change(name, data):
        if name != "models/model.json":
            return data
        program = json.loads(data)
        edit(program)
        return json.dumps(program).encode()

    return _rewritten(source, target, change)


# -- good files --


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits-cnn", "digits-mlp", "resnet18", "bert-base"])
def test_a_sample_models_archive_reads_as_torch_reads_it(name):
    sizes = {} if name.startswith("digits") else {"depth": 1}
    path = export_pt2(name, width=0.25, **sizes)
    ours, theirs = read_pt2(path), torch.export.load(path)
    inputs, keywords = ours.example_inputs
    assert not keywords
    for a, b in zip(inputs, theirs.example_inputs[0], strict=True):
        assert torch.equal(a, b)
    flat = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        for a, b in zip(flat(ours.module()(*inputs)), flat(theirs.module()(*inputs)), strict=True):
            assert torch.equal(a, b)


def test_an_archive_imports_and_executes(good):
    program = read_pt2(good)
    (x,), _ = program.example_inputs
    imported = import_exported(program, read_files=False)
    assert not imported.sources
    with torch.no_grad():
        torch.testing.assert_close(execute(imported, x)[0], program.module()(x))


def test_symbolic_sizes_survive(tmp_path):
    batch = torch.export.Dim("batch", min=2, max=64)
    program = exported(
        lambda x: x.reshape(x.shape[0] * 2, -1),
        torch.ones(4, 6),
        dynamic_shapes={"tensors": ({0: batch},)},
    )
    torch.export.save(program, tmp_path / "model.pt2")
    imported = import_exported(read_pt2(tmp_path / "model.pt2"))
    ((name, bound),) = imported.facts["bound"].items()
    assert bound == {"size": 4, "low": 0, "high": 64}
    again = import_exported(read_pt2(tmp_path / "model.pt2"), sizes={name: 8})
    assert again.module.main.outputs[0].type.shape == (16, 3)


def test_sizes_that_depend_on_data_are_read(tmp_path):
    """torch writes what it knows of such a size as relations between symbols."""
    x, y = torch.tensor([[3.0, -1.0], [-0.0, 2.0]]), torch.tensor([0, 1, 0, 2])
    program = exported(lambda x, y: (x.masked_select(x > 0) * 2, y.nonzero()), x, y)
    torch.export.save(program, tmp_path / "model.pt2")
    ours, theirs = import_exported(read_pt2(tmp_path / "model.pt2")), import_exported(program)
    for a, b in zip(execute(ours, x, y), execute(theirs, x, y), strict=True):
        assert torch.equal(a, b)


def test_shared_and_strided_weights_keep_their_values(tmp_path):
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            base = torch.arange(24.0).reshape(4, 6)
            self.register_buffer("whole", base)
            self.register_buffer("part", base[1:, ::2])
            self.register_buffer("turned", base.t())
            self.register_buffer("none", torch.zeros(0, 3))

        def forward(self, x):
            return x + self.whole.sum(), self.part * x, self.turned * x, self.none + x

    module = Shared()
    x = torch.tensor(2.0)
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    made = execute(import_exported(read_pt2(tmp_path / "m.pt2")), x)
    for a, b in zip(made, module(x), strict=True):
        torch.testing.assert_close(a, b)


# -- files that are damaged --


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="file not found"):
        read_pt2(tmp_path / "none.pt2")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_archive_is_refused(good, tmp_path, share):
    data = good.read_bytes()
    path = tmp_path / "short.pt2"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match=r"not a (readable )?\.pt2 archive"):
        read_pt2(path)


def test_a_foreign_zip_is_refused(tmp_path):
    path = tmp_path / "foreign.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes/readme.txt", "hello")
    with pytest.raises(UserError, match="it has no archive_format"):
        read_pt2(path)


def test_compressed_entries_are_refused_unread(good, tmp_path):
    path = _rewritten(
        good,
        tmp_path / "bomb.pt2",
        lambda n, d: b"\0" * (1 << 26) if n.endswith("weight_0") else d,
        compression=zipfile.ZIP_DEFLATED,
    )
    with pytest.raises(UserError, match="compressed or encrypted"):
        read_pt2(path)


@pytest.mark.parametrize("name", ["../outside", "digits-cnn/../../outside", "/absolute"])
def test_entries_that_leave_the_archive_are_refused(good, tmp_path, name):
    path = tmp_path / "bad.pt2"
    path.write_bytes(good.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(UserError, match="points outside the archive"):
        read_pt2(path)


def test_a_corrupted_weight_is_refused(good, tmp_path):
    data = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        info = max(archive.infolist(), key=lambda i: i.file_size if "weight_" in i.filename else 0)
    data[info.header_offset + len(info.filename) + 200] ^= 255
    path = tmp_path / "bad.pt2"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"CRC|not a readable"):
        read_pt2(path)


def test_a_weight_shorter_than_its_shape_is_refused(good, tmp_path):
    path = _rewritten(
        good, tmp_path / "bad.pt2", lambda n, d: d[:-4] if n.endswith("weight_0") else d
    )
    with pytest.raises(UserError, match=r"needs \d+ bytes, \d+ are stored"):
        read_pt2(path)


@pytest.mark.parametrize("sizes", [[1 << 40, 1 << 20], [-1, 3], ["x"], [1.5]])
def test_weights_of_absurd_sizes_are_refused_without_allocating(good, tmp_path, sizes):
    def change(name, data):
        if name != "data/weights/model_weights_config.json":
            return data
        config = json.loads(data)
        meta = next(iter(config["config"].values()))["tensor_meta"]
        meta["sizes"] = [{"as_int": s} for s in sizes]
        meta["strides"] = [{"as_int": 1} for _ in sizes]
        return json.dumps(config).encode()

    path = _rewritten(good, tmp_path / "bad.pt2", change)
    with pytest.raises(UserError, match=r"bytes|invalid description"):
        read_pt2(path)


@pytest.mark.parametrize(
    "part",
    [
        "models/model.json",
        "data/weights/model_weights_config.json",
        "data/weights/weight_1",
        "data/constants/model_constants_config.json",
        "archive_format",
    ],
)
def test_a_missing_part_is_named(good, tmp_path, part):
    path = _rewritten(good, tmp_path / "bad.pt2", lambda n, d: None if n == part else d)
    with pytest.raises(UserError):
        read_pt2(path)


@given(st.data())
def test_damaged_json_is_refused_or_harmless(good, tmp_path_factory, data):
    """Bytes of the program's JSON changed anywhere: an import, or a UserError; nothing else."""
    with zipfile.ZipFile(good) as archive:
        name = next(n for n in archive.namelist() if n.endswith("models/model.json"))
        held = bytearray(archive.read(name))
    for _ in range(data.draw(st.integers(1, 4))):
        held[data.draw(st.integers(0, len(held) - 1))] = data.draw(st.integers(32, 126))
    path = tmp_path_factory.mktemp("fuzz") / "m.pt2"
    _rewritten(good, path, lambda n, d: bytes(held) if n == "models/model.json" else d)
    told = ""
    try:
        import_exported(read_pt2(path), read_files=False)
    except UserError as error:
        told = str(error)
    assert "\n" not in told


# -- files that mean harm --


class _Harm:
    """Unpickling it makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def _pickled(thing) -> bytes:
    stream = io.BytesIO()
    torch.save(thing, stream)
    return stream.getvalue()


def test_pickle_in_the_example_inputs_is_not_executed(good, tmp_path):
    sign = tmp_path / "executed"
    path = _rewritten(
        good,
        tmp_path / "bad.pt2",
        lambda n, d: _pickled(((_Harm(sign),), {})) if "sample_inputs" in n else d,
    )
    program = read_pt2(path)
    assert program.example_inputs is None
    assert not sign.exists()
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever torch makes of it
        torch.export.load(path).module()(None)
    assert sign.exists()  # the file does harm where it is trusted


def test_a_pickled_weight_is_refused_and_not_executed(good, tmp_path):
    sign = tmp_path / "executed"

    def change(name, data):
        if name == "data/weights/weight_0":
            return _pickled(_Harm(sign))
        if name == "data/weights/model_weights_config.json":
            config = json.loads(data)
            for payload in config["config"].values():
                if payload["path_name"] == "weight_0":
                    payload["use_pickle"] = True
            return json.dumps(config).encode()
        return data

    path = _rewritten(good, tmp_path / "bad.pt2", change)
    with pytest.raises(UserError, match=r"pickled object.*--trust"):
        read_pt2(path)
    assert not sign.exists()


def test_an_opaque_constant_is_refused_and_not_executed(good, tmp_path):
    sign = tmp_path / "executed"

    def change(name, data):
        if name != "data/constants/model_constants_config.json":
            return data
        payload = {
            "path_name": "opaque_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }
        return json.dumps({"config": {"c": payload}}).encode()

    path = _rewritten(good, tmp_path / "bad.pt2", change)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("digits-cnn/data/constants/opaque_obj_0", pickle.dumps(_Harm(sign)))
    with pytest.raises(UserError, match="--trust"):
        read_pt2(path)
    assert not sign.exists()


def _harmful_expression(program, code):
    meta = next(iter(program["graph_module"]["graph"]["tensor_values"].values()))
    meta["sizes"][0] = {"as_expr": {"expr_str": code, "hint": {"as_int": 4}}}


def _harmful_tree(program, code):
    call = program["graph_module"]["module_call_graph"][0]["signature"]
    tree = json.loads(call["in_spec"])
    tree[1]["children_spec"][1] = {
        "type": "collections.defaultdict",
        "context": json.dumps(
            {"default_factory_module": "antigravity", "default_factory_name": "x"}
        ),
        "children_spec": [],
    }
    call["in_spec"] = json.dumps(tree)


def _harmful_name(program, code):
    text = json.dumps(program).replace('"pixels"', json.dumps(f"pixels={code}"))
    program.clear()
    program.update(json.loads(text))


def _harmful_guard(program, code):
    program["guards_code"] = [code]


def _harmful_target(program, code):
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.os.mkdir"


def _harmful_parameter(program, code):
    text = json.dumps(program).replace('"classifier.weight"', json.dumps(f'a"+str({code})+"'))
    program.clear()
    program.update(json.loads(text))


@pytest.mark.parametrize(
    "edit", [_harmful_expression, _harmful_tree, _harmful_name, _harmful_target, _harmful_parameter]
)
def test_code_in_the_programs_json_is_refused_and_not_executed(good, tmp_path, edit):
    sign = tmp_path / "executed"
    code = f"__import__('os').mkdir({str(sign)!r})"
    path = _with_program(good, tmp_path / "bad.pt2", lambda p: edit(p, code))
    with pytest.raises(UserError, match="--trust") as caught:
        read_pt2(path)
    assert "\n" not in str(caught.value)
    assert not sign.exists()


def test_guards_are_dropped_not_executed(good, tmp_path):
    sign = tmp_path / "executed"
    code = f"__import__('os').mkdir({str(sign)!r})"
    path = _with_program(good, tmp_path / "bad.pt2", lambda p: _harmful_guard(p, code))
    program = read_pt2(path)
    program.module()(*program.example_inputs[0])
    assert not sign.exists()


def test_an_expression_that_would_run_for_ever_is_refused(good, tmp_path):
    path = _with_program(good, tmp_path / "bad.pt2", lambda p: _harmful_expression(p, "9**9**9**9"))
    with pytest.raises(UserError, match="it has an invalid size"):
        read_pt2(path)


def test_trust_reads_with_torchs_own_loader(good, tmp_path):
    program = read_pt2(good, trust=True)
    assert program.example_inputs is not None
    path = tmp_path / "bad.pt2"
    path.write_bytes(b"PK nothing")
    with pytest.raises(UserError, match=r"torch\.export\.load failed"):
        read_pt2(path, trust=True)
