"""Several processes: the same bits as one, also when some are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.numerics.reference.collective import tree_sum
from core_compiler.record import Recorder, Recording
from core_compiler.support.errors import STOPPED, UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.inject import Injection
from core_compiler.training.audit.receipts import Book
from core_compiler.training.config import Training
from core_compiler.training.distributed.rendezvous import (
    Coordinator,
    CoordinatorUnreachable,
    Rank,
    WorkerLost,
    stride_of,
)
from core_compiler.training.distributed.workers import _WorkerPool
from core_compiler.training.fit import fit
from core_compiler.training.optimisers.optimizers import SGD
from core_compiler.training.run import checkpoint
from tests.slow import slow_but
from workbench.commands.cli import main

pytest.importorskip("distributed", reason="needs dask: pip install 'compiler-workbench[workers]'")


class Model(torch.nn.Module):
    """Shards meet in the middle, for the statistics, and at the end."""

    def __init__(self, norm: bool = True):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8) if norm else torch.nn.LayerNorm(8)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(functional.dropout(functional.relu(self.norm(self.first(x))), 0.25))


def _model(norm: bool = True):
    torch.manual_seed(0)
    return Model(norm)


def _data():
    torch.manual_seed(1)
    return torch.randn(40, 6).numpy(), torch.randint(0, 3, (40,)).numpy()


def _step(shards: int = 4, norm: bool = True):
    x, y = _data()
    training = Training(optimizer="adam", shards=shards)
    return cc.compile(_model(norm), (x[:8], y[:8]), training=training, threads=1)


@pytest.fixture(scope="module")
def alone():
    """The losses and the digest of one process, by (norm, iterations)."""
    made = {}
    for norm in (True, False):
        step = _step(norm=norm)
        history = fit(step, _data(), iterations=6, batch=8, seed=5)
        made[norm] = history.loss, step.digest
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "norm"), [(2, True), (2, False), (3, True)])
def test_workers_change_no_bit(workers, norm, alone, tmp_path):
    step = _step(norm=norm)
    history = fit(
        step,
        _data(),
        iterations=6,
        batch=8,
        seed=5,
        workers=workers,
        folder=tmp_path,
        receipts="state",
        observer=Recorder(tmp_path / "x.run"),
    )
    assert (history.loss, step.digest) == alone[norm]
    assert step.iteration == 6
    assert history.peak_bytes > 0
    book = Book.read(tmp_path / receipts.FILE)
    with Recording.open(tmp_path / "x.run") as recording:
        rows = recording.iterations()[1]
        assert recording.status == "finished"
    assert [(r.number, r.root) for r in rows] == [(n, r.root) for n, r in book.receipts.items()]
    assert [r.loss for r in rows] == history.loss
    assert {r.rate for r in rows} == {0.001}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_workers_change_no_bit_of_narrow_parameters(dtype):
    """Gradients over four shards are added in f32 and rounded once, whoever adds them."""
    digests = set()
    for workers in (1, 2):
        x, y = map(torch.as_tensor, _data())
        data = x.to(dtype), y
        step = cc.compile(
            _model(norm=False).to(dtype),
            (data[0][:8], y[:8]),
            threads=1,
            training=Training(optimizer=SGD(0.5), shards=4),
        )
        fit(step, data, iterations=6, batch=8, workers=workers)
        digests.add(step.digest)
    assert len(digests) == 1


@pytest.mark.slow
def test_eight_workers_have_the_bits_of_one(capsys):
    digests = set()
    for workers in ("1", "8"):
        words = ["train", "digits-cnn", "--width", "0.25", "--batch", "16", "--shards", "8"]
        assert main([*words, "--workers", workers, "--iterations", "6", "--json"]) == 0
        digests.add(json.loads(capsys.readouterr().out)["digest"])
    assert len(digests) == 1


@pytest.mark.slow
def test_receipts_of_all_values_are_those_of_one_process(tmp_path):
    """Each process sees its own shards' values; one of them writes the receipts of all."""
    books = []
    for name, count in (("alone", 1), ("together", 3)):
        fit(
            _step(),
            _data(),
            iterations=3,
            batch=8,
            seed=5,
            workers=count,
            folder=tmp_path / name,
            receipts="gradients",
            ops_every=2,
        )
        books.append(Book.read(tmp_path / name / receipts.FILE))
    one, several = books
    assert several.receipts == one.receipts
    assert {key.split("/")[0] for key in one.receipts[2].ops} == {"0", "1", "2", "3"}
    assert not one.receipts[1].ops
    assert one.receipts[3].gradients


@pytest.mark.slow
@pytest.mark.parametrize("when", slow_but(("one",), ["one", "all"]))
def test_killed_workers_cost_no_bit(when, alone, tmp_path):
    """One dies in the middle of an iteration and is replaced; or all of them, and a checkpoint is
    what is left."""
    killed: list[int] = []

    def watch(progress):
        if progress.iteration == 3 and not killed:
            children = list(filter(_is_worker, _processes()))
            assert children
            for process in children if when == "all" else children[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    step = _step()
    history = fit(
        step,
        _data(),
        iterations=6,
        batch=8,
        seed=5,
        workers=2,
        watch=watch,
        folder=tmp_path,
        every=2,
    )
    assert killed
    assert (history.loss, step.digest) == alone[True]


class Deadly(Injection):
    """Injects nothing; the first worker that reads it does not get as far as the meeting."""

    def probe(self, names, probes):
        return None

    def watch(self, names, probes, iteration):
        return None

    def __reduce__(self):
        return _deadly, (os.environ["DEADLY"], os.getpid())


def _deadly(path: str, parent: int) -> Injection:
    if os.getpid() != parent:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            os._exit(9)
    return Deadly("none", 1)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nobody_waits_for_one_that_never_came(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("DEADLY", str(tmp_path / "once"))
    step = _step()
    history = fit(step, _data(), iterations=6, batch=8, seed=5, workers=2, inject=Deadly("none", 1))
    assert (history.loss, step.digest) == alone[True]


@pytest.mark.slow
def test_workers_that_do_not_reach_the_run_say_where(monkeypatch):
    class Elsewhere(Coordinator):
        def __enter__(self):
            made = super().__enter__()
            self.info = replace(self.info, address=("127.0.0.1", 9))
            return made

    monkeypatch.setattr("core_compiler.training.distributed.workers.Coordinator", Elsewhere)
    step = _step()
    with pytest.raises(UserError, match=r"cannot reach this process at 127.+:9: .*refused"):
        fit(step, _data(), iterations=6, batch=8, workers=2)
    assert step.iteration == 0


@pytest.mark.slow
def test_where_a_worker_does_not_come_back_the_others_state_is_kept(tmp_path, monkeypatch):
    def watch(progress):
        if progress.iteration == 3:
            monkeypatch.setattr(_WorkerPool, "wait", gone)
            os.kill(next(filter(_is_worker, _processes())), signal.SIGKILL)

    def gone(pool):
        raise UserError("expected 2 workers, found 1", "workers", "start more")

    step = _step()
    with pytest.raises(UserError, match="expected 2 workers, found 1"):
        fit(step, _data(), iterations=60, batch=8, seed=5, workers=2, watch=watch, folder=tmp_path)
    assert step.iteration >= 3
    assert max(checkpoint.list_checkpoints(tmp_path)) == step.iteration
    again = _step()
    fit(again, _data(), iterations=step.iteration, batch=8, seed=5)
    assert again.digest == step.digest


@pytest.mark.slow
def test_ctrl_c_reaches_all_processes_and_nothing_is_lost(tmp_path):
    """A terminal sends it to the whole process group."""
    words = [
        "train",
        "digits-mlp",
        "--width",
        "0.1",
        "--batch",
        "8",
        "--shards",
        "2",
        "--folder",
        str(tmp_path / "run"),
        "--receipts",
        "state",
    ]
    command = [
        sys.executable,
        "-c",
        "import sys; from workbench.commands.cli import main; sys.exit(main())",
    ]
    run = subprocess.Popen(
        [*command, *words, "--workers", "2", "--iterations", "100000"],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    book = tmp_path / "run" / receipts.FILE
    while run.poll() is None and not (book.exists() and len(book.read_text().splitlines()) > 4):
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == STOPPED, said
    done = max(checkpoint.list_checkpoints(tmp_path / "run"), default=0)
    assert done >= 4 and f"kept up to iteration {done}" in said
    assert max(Book.read(book).receipts) == done


def _processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _is_worker(process: int) -> bool:
    """A process of dask's that some ancestor of is this one."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes()
        parents = [process]
        while parents[-1] > 1:
            parents.append(
                int(Path(f"/proc/{parents[-1]}/stat").read_text().rsplit(")")[-1].split()[1])
            )
    except OSError:
        return False
    return b"spawn_main" in words and os.getpid() in parents[1:]


@pytest.mark.slow
def test_workers_of_a_scheduler_resume_what_one_began(alone, tmp_path):
    from distributed import LocalCluster

    fit(_step(), _data(), iterations=2, batch=8, seed=5, folder=tmp_path)
    step = _step()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        history = fit(
            step,
            _data(),
            iterations=6,
            batch=8,
            seed=5,
            workers=2,
            folder=tmp_path,
            resume=True,
            scheduler=cluster.scheduler_address,
        )
    assert step.digest == alone[True][1]
    assert history.loss == alone[True][0][2:]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_all_and_is_explained():
    x, y = _data()
    x[11] = np.inf
    step = _step()
    with pytest.raises(UserError, match=r"the loss of iteration \d is nan: core\.\w+ "):
        fit(step, (x, y), iterations=20, batch=8, seed=5, workers=2)
    assert np.isfinite(step.state_dict()["first.weight"]).all()


@pytest.mark.slow
def test_more_workers_than_shards_are_refused():
    with pytest.raises(UserError, match=r"more workers \(3\) than shards \(2\)"):
        fit(_step(2), _data(), iterations=1, batch=8, workers=3)


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("core_compiler.training.distributed.workers.CONNECT_TIMEOUT", 1.0)
    with pytest.raises(UserError, match="cannot reach a dask scheduler"):
        fit(_step(), _data(), iterations=1, batch=8, workers=2, scheduler="tcp://127.0.0.1:9")


# -- the meeting place -----------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [(True, True), (True, False), (False, False)])
def test_near_and_far_workers_get_the_trees_sums(shared):
    """Five shards on two workers, which share memory or send what they have."""
    random = np.random.default_rng(0)
    rounds = [
        [
            [random.standard_normal(n).astype(kind) for n, kind in ((7, "f4"), (130, "f8"))]
            for _ in range(5)
        ]
        for _ in range(3)
    ]
    wanted = [[tree_sum([shard[i] for shard in one]) for i in (0, 1)] for one in rounds]
    found: dict[int, list] = {0: [], 1: []}
    told: list = []
    with Coordinator(2, 5, stride_of([[28, 1040]]), told.append) as coordinator:

        def work(number: int, own: range) -> None:
            rank = Rank(coordinator.info, own, shared[number])
            for one in rounds:
                found[number].append([np.array(a) for a in rank.all_reduce(one[i] for i in own)])
            rank.report(number)
            rank.close()

        threads = [threading.Thread(target=work, args=p) for p in ((0, range(2)), (1, range(2, 5)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    for held in found.values():
        assert len(held) == 3
        for made, want in zip(held, wanted, strict=True):
            for a, b in zip(made, want, strict=True):
                np.testing.assert_array_equal(a, b)
    assert not Path(coordinator.info.path).exists()


def test_all_are_sent_home_where_one_will_not_come():
    """Those that are there already, and those that come later."""
    ended: list[str] = []
    with Coordinator(3, 3, 64, print) as coordinator:

        def wait() -> None:
            try:
                Rank(coordinator.info, range(1))
            except (WorkerLost, CoordinatorUnreachable) as error:
                ended.append(type(error).__name__)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)  # it is there, or not yet: both end
        coordinator.stop()
        thread.join(20)
        wait()
    assert len(ended) == 2 and ended[1] == "CoordinatorUnreachable"


def test_when_one_goes_the_others_are_sent_home():
    ended = []
    with Coordinator(2, 2, 64, print) as coordinator:

        def stay() -> None:
            with pytest.raises(WorkerLost):
                Rank(coordinator.info, range(1)).all_reduce([[np.ones(3, np.float32)]])
            ended.append(True)

        thread = threading.Thread(target=stay)
        thread.start()
        Rank(coordinator.info, range(1, 2)).close()
        thread.join(20)
    assert ended == [True]
