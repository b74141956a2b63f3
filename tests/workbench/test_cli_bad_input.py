"""Bad input gets one clear line: what, where, what to do; exit code 2 or 3; never a traceback."""

from __future__ import annotations

import json
import socket
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pytest

from core_compiler.record import schema
from core_compiler.runtime import memory
from tests.workbench.conftest import MODEL

SELECT = "SELECT 1"


@pytest.fixture(scope="module")
def files(tmp_path_factory, recording) -> Path:
    """A folder of files that are not what their names say."""
    folder = tmp_path_factory.mktemp("bad")
    content = recording.read_bytes()
    (folder / "good.run").write_bytes(content)
    (folder / "empty.run").write_bytes(b"")
    (folder / "text.run").write_text("not a recording\n" * 20)
    (folder / "cut.run").write_bytes(content[: len(content) // 2])
    corrupt = bytearray(content)
    corrupt[8192 * 2 : 8192 * 6] = b"\xff" * (8192 * 4)
    (folder / "corrupt.run").write_bytes(bytes(corrupt))
    (folder / "newer.run").write_bytes(content)
    with sqlite3.connect(folder / "newer.run") as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with sqlite3.connect(folder / "foreign.run") as db:
        db.execute("CREATE TABLE t (x)")
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "web.onnx").write_text("<html><body>404: not found</body></html>")
    (folder / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(5000))
    with zipfile.ZipFile(folder / "zip.onnx", "w") as archive:
        archive.writestr("a", "b")
    (folder / "noise.pt2").write_bytes(np.random.default_rng(1).bytes(5000))
    with zipfile.ZipFile(folder / "zip.pt2", "w") as archive:
        archive.writestr("a", "b")
    (folder / "model.bin").write_bytes(b"weights")
    _onnx_files(folder)
    return folder


def _onnx_files(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def save(name: str, nodes, inputs, outputs, weights=()):
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "g",
            [value(n, TensorProto.FLOAT, s) for n, s in inputs],
            [value(n, TensorProto.FLOAT, s) for n, s in outputs],
            [numpy_helper.from_array(a, n) for n, a in weights],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        (folder / name).write_bytes(model.SerializeToString())

    node = helper.make_node
    weight = np.ones((8, 400), np.float32)
    save(
        "good.onnx",
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", [2, 8])],
        [("y", [2, 400])],
        [("w", weight)],
    )
    content = (folder / "good.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(content[: len(content) // 2])
    save(
        "shapes.onnx",
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", [2, 9])],
        [("y", [2, 400])],
        [("w", weight)],
    )
    nodes = [node("Flub", ["x"], ["a"], "first"), node("Blub", ["a"], ["y"], "second")]
    save("unsupported.onnx", nodes, [("x", [2])], [("y", [2])])
    onnx.checker.check_model(str(folder / "good.onnx"))


#: Words ({f} is the folder), the exit code, and what the error must say (in what, where or fix).
WRONG = [
    ((), 2, ["command"]),
    (("nonsense",), 2, ["nonsense", "--help"]),
    (("compile",), 2, ["MODEL", "workbench compile --help"]),
    (("compile", "digits-mlp", "--bogus"), 2, ["--bogus"]),
    (("compile", "nonsuch"), 2, ["nonsuch", "resnet50", "package.module:function"]),
    (("compile", "{f}/absent.onnx"), 2, ["absent.onnx", "not found"]),
    (("compile", "{f}/absent.pt2"), 2, ["absent.pt2", "not found"]),
    (("compile", "{f}/empty.onnx"), 2, ["empty.onnx"]),
    (("compile", "{f}/web.onnx"), 2, ["web.onnx"]),
    (("compile", "{f}/noise.onnx"), 2, ["noise.onnx"]),
    (("compile", "{f}/zip.onnx"), 2, ["zip.onnx"]),
    (("compile", "{f}/cut.onnx"), 2, ["cut.onnx"]),
    (("compile", "{f}/shapes.onnx"), 2, ["shapes.onnx", "MatMul", "invalid inputs", "onnx:1"]),
    (("compile", "{f}/unsupported.onnx"), 2, ["Flub", "Blub", "onnx:1", "onnx:2"]),
    (("compile", "{f}/noise.pt2"), 2, ["noise.pt2"]),
    (("compile", "{f}/zip.pt2"), 2, ["zip.pt2"]),
    (("compile", "{f}/model.bin"), 2, ["model.bin", ".onnx"]),
    (("compile", "no.such.module:build"), 2, ["no.such.module"]),
    (("compile", "json:nothing"), 2, ["nothing"]),
    (("compile", "json:dumps"), 2, ["json:dumps"]),
    (("compile", "digits-mlp", "--frontend", "caffe"), 2, ["caffe", "torch"]),
    (("compile", "{f}/good.onnx", "--frontend", "torch"), 2, ["--frontend"]),
    (("compile", "{f}/good.onnx", "--width", "2"), 2, ["width"]),
    (("compile", "digits-mlp", "--width", "100"), 2, ["width", "0.01 to 4"]),
    (("compile", "digits-mlp", "--batch", "0"), 2, ["batch"]),
    (("compile", "digits-mlp", "--size", "image=3"), 2, ["image"]),
    (("compile", "digits-mlp", "--size", "image"), 2, ["NAME=VALUE"]),
    (("compile", "digits-mlp", "-t", "abacus"), 2, ["abacus", "cpu"]),
    (("run", "digits-mlp", "-t", "cuda"), 3, ["cuda", "cpu"]),
    (("run", "digits-mlp", "-t", "CPU"), 2, ["did you mean cpu?"]),
    (("compil", "digits-mlp"), 2, ["did you mean compile?"]),
    (("compile", "digits-mpl"), 2, ["did you mean digits-mlp?"]),
    (("compile", "digits-mlp", "--size", "width=0.5"), 2, ["--width 0.5"]),
    (("compile", "digits-mlp", "--skip", "fold_constant"), 2, ["did you mean fold_constants"]),
    (("diff", "{f}/good.run", "--pass", "fuse_elemwise"), 2, ["did you mean fuse_elementwise?"]),
    (("export", "{f}/good.run", "--stage", "bufferise", "-o", "{f}/x.mlir"), 2, ["mean bufferize"]),
    (("kernels", "{f}/good.run", "--show", "matmul_ad"), 2, ["did you mean matmul_add"]),
    (("op", "{f}/good.run", "core.matmull"), 2, ["did you mean core.matmul"]),
    (("op", "{f}/good.run", "9" * 30), 2, ["9" * 30]),
    (("query", "{f}/good.run", " ; "), 2, ["empty"]),
    (("compile", "digits-mlp", "--threads", "-1"), 2, ["--threads"]),
    (("compile", "digits-mlp", "--threads", "many"), 2, ["many"]),
    (("compile", "digits-mlp", "--skip", "no_such_pass"), 2, ["no_such_pass", "fold_constants"]),
    (("compile", "digits-mlp", "--skip", "bufferize"), 2, ["bufferize", "cannot be skipped"]),
    (("compile", "digits-mlp", "--set", "fold_constants"), 2, ["PASS.OPTION=VALUE"]),
    (("compile", "digits-mlp", "--set", "fold_constants.x=1"), 2, ["growth"]),
    (("compile", "digits-mlp", "--set", "fold_constants.growth=much"), 2, ["much"]),
    (("compile", "digits-mlp", "--limit", "canonicalise=few"), 2, ["PASS=N"]),
    (("compile", "digits-mlp", "-o", "{f}/absent/x.run"), 2, ["folder not found"]),
    (("compile", "digits-mlp", "-o", "{f}"), 2, [".run"]),
    (("compile", "digits-mlp", "-o", "{f}/x.txt"), 2, ["x.run"]),
    (("run", "digits-mlp", "--against", "caffe"), 2, ["caffe", "onnxruntime"]),
    (("run", "{f}/good.onnx", "--against", "torch"), 2, ["onnxruntime"]),
    (("run", "digits-mlp", "--tolerance", "nan"), 2, ["--tolerance"]),
    (("profile", "digits-mlp", "--against", "torch,caffe"), 2, ["caffe", "torch.compile"]),
    (("profile", "digits-mlp", "--repeats", "0"), 2, ["--repeats"]),
    (("bisect", "digits-mlp", "--tolerance", "-1"), 2, ["--tolerance"]),
    (("passes", "{f}/absent.run"), 2, ["absent.run", "not found"]),
    (("passes", "{f}/empty.run"), 2, ["empty.run"]),
    (("passes", "{f}/text.run"), 2, ["not a recording"]),
    (("passes", "{f}/cut.run"), 2, ["cut.run", "record the compile again"]),
    (("passes", "{f}/newer.run"), 2, ["newer", "update"]),
    (("passes", "{f}/foreign.run"), 2, ["not a recording"]),
    (("passes", "{f}/good.run", "--width", "2"), 2, ["--width"]),
    (("passes", "{f}/good.run", "--check"), 2, ["--check"]),
    (("diff", "{f}/good.run"), 2, ["--pass"]),
    (("diff", "{f}/good.run", "--pass", "no_such_pass"), 2, ["no_such_pass", "fold_constants"]),
    (("diff", "{f}/good.run", "--pass", "999"), 2, ["999"]),
    (("diff", "{f}/good.run", "--pass", "import"), 2, ["import"]),
    (("diff", "{f}/good.run", "--pass", "bufferize", "--to", "decompose"), 2, ["before"]),
    (("diff", "{f}/good.run", "--pass", "decompose", "--context", "-1"), 2, ["--context"]),
    (("op", "{f}/good.run", "%no_such_value"), 2, ["%no_such_value"]),
    (("op", "{f}/good.run", "123456789"), 2, ["123456789"]),
    (("op", "{f}/good.run", "core.constant"), 2, ["ids"]),
    (("op", "{f}/good.run", ""), 2, ["%name"]),
    (("memory", "{f}/good.run", "--top", "-2"), 2, ["--top"]),
    (("kernels", "{f}/good.run", "--show", "no_such_kernel"), 2, ["no_such_kernel", "matmul"]),
    (("kernels", "{f}/good.run", "--show", "x", "--what", "poem"), 2, ["poem", "assembly"]),
    (("query", "{f}/absent.run", SELECT), 2, ["absent.run"]),
    (("query", "{f}/newer.run", SELECT), 2, ["newer"]),
    (("query", "{f}/good.run", "SELEC 1"), 2, ["syntax", "docs/recording.md"]),
    (("query", "{f}/good.run", "SELECT * FROM nothing"), 2, ["nothing"]),
    (("query", "{f}/good.run", "DELETE FROM stage"), 2, ["only reading"]),
    (("query", "{f}/good.run", "DROP TABLE stage"), 2, ["only reading"]),
    (("query", "{f}/good.run", "UPDATE stage SET pass = 1"), 2, ["only reading"]),
    (("query", "{f}/good.run", "INSERT INTO stage DEFAULT VALUES"), 2, ["only reading"]),
    (("query", "{f}/good.run", "CREATE TEMP TABLE t (x)"), 2, ["only reading"]),
    (("query", "{f}/good.run", "PRAGMA query_only = OFF"), 2, ["only reading"]),
    (("query", "{f}/good.run", "ATTACH '{f}/x.db' AS x"), 2, ["only reading"]),
    (("query", "{f}/good.run", "SELECT load_extension('x')"), 2, ["only reading"]),
    (("query", "{f}/good.run", "SELECT 1; SELECT 2"), 2, ["one"]),
    (("query", "{f}/good.run", SELECT, "--timeout", "0"), 2, ["--timeout"]),
    (("query", "{f}/good.run", SELECT, "--rows", "0"), 2, ["--rows"]),
    (("export", "{f}/good.run", "-o", "{f}/x.onnx", "--skip", "decompose"), 2, ["is already"]),
    (("export", "{f}/good.run", "-o", "{f}/x.onnx", "-t", "cuda"), 2, ["compiled for cpu"]),
    (("report", "{f}/good.run", "--max-size", "nan"), 2, ["--max-size", "nan MB"]),
    (("report", "{f}/good.run", "--max-size", "inf"), 2, ["--max-size", "inf MB"]),
    (("compile", "digits-mlp", "--pass-timeout", "inf"), 2, ["--pass-timeout", "inf s"]),
    (("compile", "digits-mlp", "--limit", "decompose=²"), 2, ["--limit", "PASS=N"]),
    (("compile", "digits-mlp", "--target-option", "vector_width=²"), 2, ["vector_width", "²"]),
    (("diff", "{f}/good.run", "--pass", "²"), 2, ["'²'", "fold_constants"]),
    (("export", "{f}/good.run"), 2, ["-o"]),
    (("export", "{f}/good.run", "-o", "{f}/good.run"), 2, ["itself"]),
    (("export", "{f}/good.run", "-o", "{f}/x.mlir"), 2, [".run"]),
    (("export", "{f}/good.run", "--stage", "1", "-o", "{f}/x.run"), 2, [".mlir"]),
    (("export", "{f}/good.run", "-o", "{f}/x.svg"), 2, ["a drawing shows one stage", "--stage"]),
    (("export", "{f}/good.run", "--stage", "999", "-o", "{f}/x.mlir"), 2, ["999"]),
    (("open", "{f}/absent.run"), 2, ["absent.run"]),
    (("open", "{f}/newer.run"), 2, ["newer"]),
    (("open", "{f}"), 2, ["folder"]),
    (("open", "nonsuch"), 2, ["nonsuch"]),
    (("open", "--port", "70000"), 2, ["70000"]),
    (("open", "--address", "no-such-host.invalid"), 2, ["--address"]),
    (("open", "--address", "0.0.0.0"), 2, ["compile, upload and delete", "--no-auth"]),
    (("open", "--address", "::"), 2, ["--address ::", "--no-auth"]),
    (("open", "{f}/good.run", "--address", "192.0.2.1"), 2, ["any client that reaches"]),
    (("open", "--address", "no-such-host.invalid", "--no-auth"), 2, ["cannot resolve the address"]),
    (("profile", "digits-mlp", "--seconds", "0"), 2, ["--seconds", "above 0"]),
    (("profile", "digits-mlp", "--seconds", "nan"), 2, ["--seconds", "above 0"]),
]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("words", "code", "says"), WRONG, ids=lambda x: " ".join(x) if isinstance(x, tuple) else ""
)
def test_a_mistake_is_one_line_and_json_of_three_parts(command, files, words, code, says):
    words = [word.format(f=files) for word in words]
    got, out, err = command(*words)
    assert (got, out) == (code, "")
    assert err.count("\n") == 1
    assert err.startswith("workbench: ")
    assert "Traceback" not in err
    for part in says:
        assert part in err
    got, out, err = command(*words, "--json")
    assert (got, err) == (code, "")
    error = json.loads(out)["error"]
    assert list(error) == ["what", "where", "fix"]
    assert error["what"]
    assert error["fix"]


def test_names_in_a_mistake_do_not_steer_the_terminal(command):
    code, out, err = command("passes", "absent\x1b[2J.run")
    assert (code, out) == (2, "") and "absent\\x1b[2J.run" in err and "\x1b" not in err


def test_damage_inside_a_recording_is_one_line(command, files):
    seen = set()
    for words in (("passes",), ("memory",), ("kernels",), ("diff", "--pass", "decompose")):
        code, _, err = command(words[0], files / "corrupt.run", *words[1:])
        seen.add(code)
        assert code in (0, 2)  # what the damage does not touch can still be read
        assert err.count("\n") == (code == 2)
    assert 2 in seen


def test_a_query_that_takes_too_long_is_stopped(command, recording):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    code, out, err = command("query", recording, endless, "--timeout", "0.2")
    assert (code, out) == (2, "")
    assert "more than 0.2 s" in err


def test_a_port_in_use_is_said_before_anything_starts(command, recording):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = command("open", recording, "--port", port)
    assert code == 2
    assert f"port {port}" in err
    assert f"--port {port + 1}" in err


def test_a_model_too_large_for_memory_is_refused_before_it_is_imported(command, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 64 << 20)
    monkeypatch.setattr("workbench.model.models.load", None)  # would raise if it were called
    code, out, err = command("compile", "resnet50")
    assert (code, out) == (3, "")
    assert "of memory, 64.0 MiB are available" in err
    assert "resnet50" in err


def test_a_model_file_too_large_for_memory_is_refused_before_it_is_read(
    command, files, monkeypatch
):
    monkeypatch.setattr(memory, "available_bytes", lambda: 20_000)
    monkeypatch.setattr("workbench.model.models.load", None)
    code, _, err = command("compile", files / "good.onnx")
    assert code == 3
    assert "good.onnx" in err


def test_batches_too_large_to_execute_are_refused_before_any_pass(command, monkeypatch):
    from workbench.model import memory_need

    monkeypatch.setattr(memory_need, "import_bytes", lambda wanted: 0)
    monkeypatch.setattr("workbench.model.jobs.compile", None)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 10)
    code, _, err = command("compile", *MODEL)
    assert code == 3
    assert "smaller model or batch" in err


def test_a_framework_that_is_not_installed_is_the_machines_fault(command, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "onnxruntime" else find(name, *rest),
    )
    code, _, err = command("run", *MODEL, "--against", "onnxruntime")
    assert code == 3
    assert "pip install 'compiler-workbench[peers]'" in err


def test_a_package_of_an_extra_that_is_absent_is_no_bug_of_ours(command, monkeypatch):
    def absent(*_, **__):
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn.datasets")

    monkeypatch.setattr("workbench.model.models.load", absent)
    code, out, err = command("compile", *MODEL)
    assert (code, out) == (3, "")
    assert "sklearn is not installed; pip install" in err


def test_a_bug_of_ours_has_its_own_exit_code_and_its_traceback(command, monkeypatch):
    def broken(*_, **__):
        raise AssertionError("an invariant")

    monkeypatch.setattr("workbench.model.spec.read_spec", broken)
    code, out, err = command("compile", *MODEL, "--json")
    assert code == 70
    assert "Traceback" in err
    assert "AssertionError: an invariant" in json.loads(out)["error"]["what"]
