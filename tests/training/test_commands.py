"""``workbench train``, ``verify`` and ``diverge`` on a small model, as a person calls them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from core_compiler.record import Recording
from core_compiler.training.audit.receipts import Book
from workbench.commands.cli import main

#: Compiled steps and runs of them: all of it takes a minute.
pytestmark = pytest.mark.slow

MODEL = ["train", "digits-mlp", "--width", "0.1", "--depth", "1", "--batch", "8", "--seed", "3"]
RUN = [*MODEL, "--iterations", "4", "--every", "2", "--receipts", "gradients"]


def _json(capsys, *words: str) -> tuple[int, dict]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs in folders: one as it is, one with a rounding of an updated parameter flipped, and
    the op that makes it."""
    folder = tmp_path_factory.mktemp("runs")
    assert main([*RUN, "--folder", str(folder / "a"), "-o", str(folder / "a.run")]) == 0
    first, *_ = (folder / "a" / "receipts.jsonl").read_text().splitlines()
    op = [name for _, name, *_ in json.loads(first)["names"] if name.startswith("core.sub#")][-1]
    inject = ["--inject", f"{op}:3", "--tiling", "alternate", "--threads", "1"]
    assert main([*RUN, "--folder", str(folder / "b"), *inject]) == 0
    return folder / "a", folder / "b", op


def test_a_run_is_verified(runs, capsys):
    code, found = _json(
        capsys, "verify", str(runs[0] / "receipts.jsonl"), "--iteration", "1", "--iteration", "4"
    )
    assert code == 0
    assert [row["iteration"] for row in found["iterations"]] == [1, 4]
    for row in found["iterations"]:
        assert row["mismatch"] is None
        assert row["compared"]["state"] > 2


def test_a_run_of_a_gpu_is_verified_on_the_processor(runs, tmp_path, capsys):
    """The bits of the one are those of the other."""
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    held = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**held, "target": "cuda"}))
    code, found = _json(capsys, "verify", str(folder), "-t", "cpu", "--iteration", "3")
    assert (code, found["iterations"][0]["mismatch"]) == (0, None)


def test_two_runs_part_where_the_rounding_was_flipped(runs, capsys):
    *folders, op = map(str, runs)
    code, found = _json(capsys, "diverge", *folders)
    assert code == 1
    assert (found["iteration"], found["op"], found["ulps"]) == (3, op, 1)
    assert found["lasting"]
    assert found["element"]
    assert found["origin"]
    assert main(["diverge", *folders]) == 1
    said = capsys.readouterr().out
    assert f"iteration 3: {op} is the first op that differs\n" in said
    assert "1 ulp apart" in said
    code, found = _json(capsys, "diverge", str(runs[0]), str(runs[0]))
    assert (code, found["op"], found["compared"]) == (0, None, 4)


OWN_PASS = '''
from dataclasses import dataclass

from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class Louder(Pass):
    """What comes out of a gelu, a bit louder."""

    exact = False

    def run(self, module, context):
        def edit(rewriter):
            for op in rewriter.ops:
                if op.kind == "core.gelu":
                    b = Builder(module.weights, op.origin)
                    x = b.op("core.gelu", op.operands, **op.attributes)
                    factor = b.expand(b.scalar_like(1.001, x), x.type.shape)
                    rewriter.replace(op, b.ops, {op.result: b.mul(x, factor)}, rule="louder",
                                     tolerance=1e-2)

        return context.rewrite(module, edit)
'''


def test_of_two_pipelines_the_pass_is_named(runs, tmp_path, capsys):
    """A pass of a person's own: its text is kept with the run."""
    file = tmp_path / "louder.py"
    file.write_text(OWN_PASS)
    other = tmp_path / "run"
    assert main([*RUN, "--folder", str(other), "--insert", f"{file}@after:canonicalise"]) == 0
    file.unlink()
    capsys.readouterr()
    code, found = _json(capsys, "diverge", str(other), str(runs[0]))
    assert code == 1
    assert (found["pass"], found["rule"], found["iteration"]) == ("louder", "louder", 1)
    assert (found["op"], found["number"], found["total"]) == ("core.gelu#1", 1, 1)
    assert found["origin"]
    assert found["value"]
    assert found["element"]
    assert found["ulps"] >= 1
    assert main(["diverge", str(other), str(runs[0])]) == 1
    said = capsys.readouterr().out
    assert "iteration 1: louder causes the difference\n" in said
    assert "inserted after canonicalise in the first, is absent in the second" in said


def test_a_run_is_recorded_and_goes_on_in_its_recording(runs, capsys, tmp_path):
    folder, path = tmp_path / "a", tmp_path / "a.run"
    shutil.copytree(runs[0], folder)
    shutil.copy(runs[0].with_suffix(".run"), path)
    book = Book.read(folder / "receipts.jsonl")
    ask = "SELECT number, root FROM iteration ORDER BY number"
    _, found = _json(capsys, "query", str(path), ask)
    assert found["rows"] == [[n, book.receipts[n].root] for n in range(1, 5)]
    before = path.read_bytes()
    again = [*RUN, "--folder", str(folder), "-o", str(path)]
    assert main(again) == 2, "the folder has checkpoints"
    assert path.read_bytes() == before, "nothing is recorded over a run that is to be resumed"
    capsys.readouterr()
    code, made = _json(capsys, *again, "--iterations", "6", "--resume")
    assert (code, made["first"], made["recording"]) == (0, 4, str(path))
    _, found = _json(capsys, "query", str(path), ask)
    assert [number for number, _ in found["rows"]] == [1, 2, 3, 4, 5, 6]
    assert found["rows"][:4] == [[n, book.receipts[n].root] for n in range(1, 5)]
    with Recording.open(path) as recording:
        meta = recording.meta()
        assert (meta["model"], meta["mode"]) == ("digits-mlp", "training")
        assert meta["training_run"]["iterations"] == 6
        assert [s.index for s in recording.stages()] == list(range(recording.stage_count()))


def test_without_a_recording_the_answer_is_what_it_was(runs, capsys):
    _, found = _json(capsys, *MODEL, "--iterations", "1")
    assert list(found) == [
        "model",
        "target",
        "first",
        "loss",
        "digest",
        "identity",
        "contract",
        "seconds_per_iteration",
        "peak_bytes",
    ]


def test_shards_are_part_of_what_is_computed(capsys):
    digests = {}
    for shards in ("1", "2", "4"):
        code, found = _json(capsys, *MODEL, "--iterations", "2", "--shards", shards)
        assert code == 0
        digests[shards] = found["digest"], found["identity"]
        assert found["peak_bytes"] > 0
    assert len(set(digests.values())) == 3


def test_workers_give_the_digest_of_one(capsys):
    pytest.importorskip(
        "distributed", reason="needs dask: pip install 'compiler-workbench[workers]'"
    )
    found = [
        _json(capsys, *MODEL, "--iterations", "3", "--shards", "4", "--workers", workers)[1]
        for workers in ("1", "2")
    ]
    assert found[0]["digest"] == found[1]["digest"]
    assert found[0]["loss"] == found[1]["loss"]


def linear():
    return torch.nn.Linear(4, 3), (np.ones((32, 4), np.float32), np.zeros(32, np.int64))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "digits-mlp", "--shards", "3"], "cannot split a batch of 8 into 3 equal shards"),
        (["train", "digits-mlp", "--workers", "2"], "more workers (2) than shards (1)"),
        (["train", "digits-mlp", "--workers", "0"], "--workers: expected 1 or more, got 0"),
        (
            ["train", "tests.training.test_commands:linear", "--seed", str(2**64)],
            "invalid value 18446744073709551616 for seed; pass a whole number",
        ),
        (["train", "digits-mlp", "--receipts", "state"], "missing folder for the receipts"),
        (["train", "digits-mlp", "--inject", "core.conv"], "cannot parse 'core.conv' as an op"),
        (["train", "digits-mlp", "-o", "x.txt"], "the name does not end in .run"),
        (["verify", "nowhere"], "training run not found"),
        (["diverge", "nowhere", "elsewhere"], "training run not found"),
    ],
)
def test_bad_words_are_one_line(words, said, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_an_iteration_without_a_receipt_is_named(runs, capsys):
    assert main(["verify", str(runs[0]), "--iteration", "9"]) == 2
    assert "choose one from 1 to 4" in capsys.readouterr().err
