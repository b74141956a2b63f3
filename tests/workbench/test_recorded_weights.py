"""A recording with its weights is executed without the model, with its bits and in its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import core_compiler as cc
from core_compiler.driver.recorded_stage import import_file
from core_compiler.record.weight_files import folder_of
from core_compiler.support.errors import UserError
from core_compiler.support.mapped import release
from workbench.commands.cli import main

#: Executes a recording: its results, whether torch was imported, and the memory that it took.
EXECUTE = """
import json, re, sys
import numpy as np
from core_compiler.driver.compilation import Options
from workbench.model import jobs, models
from workbench.model.spec import read_spec

def memory():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

model = models.load(read_spec(sys.argv[1]))
made = jobs.compile(model, "cpu", Options(threads=2))
made.finish()
before = memory()
results = made(*np.load(sys.argv[2]).values())
np.savez(sys.argv[3], *results)
print(json.dumps({"torch": "torch" in sys.modules, "taken": memory() - before}))
"""


def executed(recording: Path, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], dict]:
    given, found = (recording.with_name(name) for name in ("given.npz", "found.npz"))
    np.savez(given, *inputs)
    command = [sys.executable, "-c", EXECUTE, *map(str, (recording, given, found))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    with np.load(found) as results:
        return list(results.values()), json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A model of a few dtypes, recorded with its weights; inputs and results."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(64, 96)
            self.second = torch.nn.Linear(96, 32).bfloat16()
            self.register_buffer("table", torch.arange(96, dtype=torch.int32))

        def forward(self, x):
            return self.second((self.first(x) + self.table).bfloat16()).float()

    x = torch.randn(5, 64)
    made = cc.compile(Model().eval(), (x,), threads=2)
    path = made.record(tmp_path_factory.mktemp("weights") / "a b.run", weights=True)
    return path, [x.numpy()], [np.asarray(y) for y in made(x)]


def test_it_is_executed_without_the_model(recorded):
    path, inputs, expected = recorded
    assert import_file(path).facts["stand_ins"] == 0
    found, about = executed(path, inputs)
    assert not about["torch"]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()


def test_a_damaged_or_wrong_file_is_an_error_and_a_missing_one_a_stand_in(recorded, tmp_path):
    path = tmp_path / "x.run"
    path.write_bytes(recorded[0].read_bytes())
    folder = folder_of(path)
    folder.mkdir()
    files = sorted(folder_of(recorded[0]).iterdir())
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    assert len(files) >= 3 and import_file(path).facts["stand_ins"] == 0
    one = folder / files[0].name
    data = bytearray(one.read_bytes())
    for damaged in (data[:-1], data + b"\0", bytes([data[0] ^ 1]) + data[1:], b""):
        one.write_bytes(damaged)
        with pytest.raises(UserError, match="the file is damaged") as caught:
            import_file(path)
        assert one.name in str(caught.value)
    one.unlink()
    assert import_file(path).facts["stand_ins"] == 1


def test_the_command_line_writes_and_executes_them(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.run"
    assert main(["compile", "digits-mlp", "-o", str(path), "--weights"]) == 0
    capsys.readouterr()
    found = []
    for model, cache in (("digits-mlp", "cache"), (str(path), "another")):
        monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path / cache))
        assert main(["run", model, "--seconds", "0.01", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["identity"] == found[1]["identity"]
    assert main(["compile", "digits-mlp", "--weights"]) == 2
    assert "add -o FILE.run" in capsys.readouterr().err
    blocked = tmp_path / "n.run"
    folder_of(blocked).write_text("a file where the folder should be")
    assert main(["compile", "digits-mlp", "-o", str(blocked), "--weights"]) == 3
    assert "cannot write the weights" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc; gives pages back as Linux does")
def test_a_process_never_holds_the_weights_twice(tmp_path):
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(8)))
    weights = 8 * 2048 * 2048 * 4
    x = torch.randn(1, 2048)
    made = cc.compile(layers.eval(), (x,), threads=2)
    path = made.record(tmp_path / "x.run", weights=True)
    found, about = executed(path, [x.numpy()])
    assert found[0].tobytes() == np.asarray(made(x)[0]).tobytes()
    assert about["taken"] < 1.5 * weights  # the packed ones, and one more


def test_pages_given_back_are_read_again(tmp_path):
    data = np.random.default_rng(0).standard_normal(100_000)
    np.save(tmp_path / "x.npy", data)
    read = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert read.sum() == data.sum()
    release(read[17:91_001])
    assert (read == data).all()
    release(data)  # not a file: nothing happens
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[5] = 7.0
    release(changed)  # a copy on write: its changes are in memory only
    assert changed[5] == 7.0
