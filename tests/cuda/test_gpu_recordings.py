"""What `make gpu-recordings` does, on a simulated GPU; without a GPU it says what is missing."""

from __future__ import annotations

import pytest

from benchmarks import gpu_recordings
from core_compiler.record.reader import Recording
from core_compiler.support.errors import UserError
from core_compiler.targets.cuda import CUDA
from tests.cuda.simulated_target import SimulatedCUDA
from workbench.model.spec import read_spec

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

#: A model that the interpreter of PTX runs in a second, and a shrunken one of the catalogue.
TINY = read_spec("tests.cuda.test_gpu_recordings:tiny")
SHRUNKEN = read_spec("digits-mlp", width=0.25)
QUICK = {"repeats": 2, "rounds": 1, "runs": 1}


def tiny():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.ReLU()).eval(), (torch.ones(2, 12),)


@pytest.fixture(
    scope="module",
    params=[TINY, pytest.param(SHRUNKEN, marks=pytest.mark.slow)],
    ids=lambda spec: spec.name,
)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    return folder, gpu_recordings.record(request.param, folder, SimulatedCUDA(), **QUICK)


@pytest.mark.slow
def test_the_digest_is_the_cpus(made):
    row = made[1]
    assert row["equal"] and row["digest"] == row["cpu_digest"]
    assert row["recording"] == f"{row['model']}.run"


@pytest.mark.slow
def test_times_name_where_they_were_taken(made):
    row = made[1]
    assert row["device"] == "Simulated GPU"
    assert row["ours_us"]["min"] > 0
    assert sum(k["count"] for k in row["kernels"]) == row["launches"]
    assert row["predicted_us"] == pytest.approx(sum(k["predicted_us"] for k in row["kernels"]))
    assert row["predicted_us"] > 4 * row["launches"], "the launch latency of each"
    if row["torch_us"] is None:
        assert "torch" in row["torch"] and row["ratio"] is None
    assert "Simulated GPU" in gpu_recordings.summary(row)


def test_the_recording_opens_again_with_its_times(made):
    folder, row = made
    with Recording(folder / row["recording"]) as opened:
        assert opened.meta()["device"]["name"] == "Simulated GPU"
        assert opened.meta()["device"]["versions"]["numba-cuda"]
        assert opened.figures()["digest"] == row["digest"]
        timings = opened.timings()
        assert len(timings) == row["launches"]
        assert all(min(t.samples_us) > 0 and len(t.samples_us) == 2 for t in timings)
        assert all("PTX" in k.facts["intermediate"] for k in opened.kernels())


def test_the_start_page_lists_it_by_gpu(made, monkeypatch, tmp_path):
    from workbench.app import library, workspace

    for module in (library, workspace):
        monkeypatch.setattr(module, "SHIPPED", made[0])
    public = workspace.Workspace(local=False, root=tmp_path)
    (entry,) = public.start_page()["recorded"]
    assert entry["device"] == "Simulated GPU" and entry["total_ms"] > 0
    assert public.path(entry["path"]).is_file()
    with pytest.raises(UserError, match="outside the library"):
        public.path(str(tmp_path.parent / "other.run"))


def test_other_bits_are_told_and_not_kept(monkeypatch, tmp_path):
    class Wrong(SimulatedCUDA):
        def load(self, module, facts, threads=0):
            right = super().load(module, facts, threads)
            monkeypatch.setattr(type(right), "__call__", _other(type(right).__call__))
            return right

    row = gpu_recordings.record(TINY, tmp_path, Wrong(), **QUICK)
    assert not row["equal"] and row["recording"] is None
    assert "NOT the CPU's digest" in gpu_recordings.summary(row)
    assert not list(tmp_path.iterdir())


def _other(call):
    return lambda self, *arrays: tuple(x + x.dtype.type(1) for x in call(self, *arrays))


def test_a_large_recording_is_left_out_with_its_size(tmp_path):
    row = gpu_recordings.record(TINY, tmp_path, SimulatedCUDA(), **QUICK, max_bytes=1000)
    assert row["equal"] and row["recording"] is None
    assert "bytes, more than 1,000" in row["left_out"]
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(CUDA, "available", lambda self: "the NVIDIA driver finds no GPU")
    out = tmp_path / "results.json"
    assert gpu_recordings.main(["digits-mlp", "--recordings", str(tmp_path), "-o", str(out)]) == 3
    assert "no recordings were made: the NVIDIA driver finds no GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
