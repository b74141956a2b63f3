"""Compiles in processes of their own: their turn, their limits, what they leave, what is heard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc

import pytest

from core_compiler.support.errors import UserError
from tests.workbench.page.conftest import until
from workbench.app import worker
from workbench.app.compiles import MAX_ENDED, Compile, Compiles, Limits


def _jobs(tmp_path, *names: str) -> list[dict]:
    """Jobs that wait to be stepped through: they run until they are told something."""
    return [
        {
            "model": "digits-mlp",
            "sizes": {"width": 0.25},
            "out": str(tmp_path / f"{name}.run"),
            "hold": True,
        }
        for name in names
    ]


def test_further_compiles_wait_for_their_turn(tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    compiles = Compiles(Limits(compiles=1, queue=2))
    jobs = _jobs(tmp_path, *"abcd")
    a, b, c = (
        compiles.start(job, owner) for job, owner in zip(jobs, ("ann", "ben", "cat"), strict=False)
    )
    assert (a.is_queued, b.is_queued, c.is_queued) == (False, True, True)
    assert "number 2 in the queue: digits-mlp is being compiled for ann" in c.progress["what"]
    with pytest.raises(Exception, match="for ann, digits-mlp is being compiled for ben"):
        compiles.start(jobs[3], "dan")
    b.cancel()
    assert b.outcome == "cancelled" and "number 1" in c.progress["what"]
    a.cancel()
    until(lambda: a.outcome is not None and not c.is_queued)
    compiles.stop_all()
    assert (a.outcome, c.outcome) == ("cancelled", "cancelled")
    assert not b.path.exists()


def test_a_job_that_lasts_too_long_is_stopped_and_says_why(tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    (job,) = _jobs(tmp_path, "late")
    late = Compiles(Limits(seconds=0.5)).start(job)
    until(lambda: not late.running)
    assert late.outcome == "failed" and "--job-seconds" in late.error["fix"]
    assert "0.5 s" in late.error["what"]


def test_a_job_that_takes_too_much_memory_says_why(tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    (job,) = _jobs(tmp_path, "large")
    large = Compiles(Limits(memory=4 << 20)).start(job)
    until(lambda: not large.running)
    assert large.outcome == "failed" and "--job-memory" in large.error["fix"], large.error


# What follows needs a worker's process, and none of what a worker does.


def _gone(pid: int) -> bool:
    try:
        return open(f"/proc/{pid}/stat").read().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_what_a_worker_leaves_running_ends_with_it_and_keeps_no_place(tmp_path, stands_in):
    stands_in(f"sleep 600 &\necho $! > {tmp_path}/child\nexit 0")
    (job,) = _jobs(tmp_path, "left")
    made = Compiles().start(job)
    until(lambda: not made.running)
    assert made.outcome == "finished"
    until(lambda: _gone(int((tmp_path / "child").read_text())))


def test_a_child_that_left_the_session_keeps_no_place(tmp_path, stands_in, monkeypatch):
    monkeypatch.setattr("workbench.app.compiles.DRAIN", 0.2)
    stands_in(f"setsid sleep 600 &\necho $! > {tmp_path}/child\nsleep 0.2\nexit 0")
    (job,) = _jobs(tmp_path, "left")
    made = Compiles().start(job)
    until(lambda: not made.running)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_job_that_was_cancelled_in_the_queue_never_begins(tmp_path, stands_in):
    stands_in("exec sleep 600")
    made = Compile(*_jobs(tmp_path, "a"))
    made.cancel()
    made.begin()
    assert (made.outcome, made.pid) == ("cancelled", 0)


def test_two_compiles_never_write_one_file(tmp_path, stands_in):
    stands_in("exec sleep 600")
    compiles = Compiles(Limits(compiles=2, queue=1))
    (job,) = _jobs(tmp_path, "same")
    made = [compiles.start(job) for _ in range(3)]
    assert len({each.path for each in made}) == 3 == len({each.job["out"] for each in made})
    assert all(compiles.of(each.path) is each for each in made)
    compiles.stop_all()


def test_a_search_that_goes_on_is_not_begun_again(tmp_path, stands_in):
    stands_in("exec sleep 600")
    compiles = Compiles(Limits(compiles=2, queue=2))
    job = {"model": "x", "out": str(tmp_path / "x.bisect.json"), "bisect": {"tolerance": 1e-3}}
    made = compiles.start(job, "ann")
    assert compiles.start(job, "ben") is made
    with pytest.raises(UserError, match="another job on this recording"):
        compiles.start({**job, "bisect": {"tolerance": 1e-6}})
    compiles.stop_all()
    assert made.outcome == "cancelled" and _gone(made.pid)


def test_those_that_ended_long_ago_are_forgotten(tmp_path, stands_in):
    stands_in("exit 0")
    done = Compiles()
    for job in _jobs(tmp_path, *(str(number) for number in range(MAX_ENDED + 3))):
        last = done.start(job)
        until(lambda last=last: not last.running)
    assert done.of(last.path) is last and done.of(tmp_path / "0.run") is None


def test_a_held_compile_ends_when_no_page_looks_at_it_any_more(tmp_path, stands_in, monkeypatch):
    stands_in("exec sleep 600")
    monkeypatch.setattr("workbench.app.compiles.ABANDONED_AFTER", 0.3)
    made, other = map(Compile, _jobs(tmp_path, "a", "b"))
    for each in (made, other):
        each.begin()
    made.mark_viewed()
    until(lambda: not made.running)
    assert made.outcome == "cancelled"
    assert other.running, "no page has come yet"
    other.cancel()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("limit", "closed"),
    [("COMPILER_WORKBENCH_JOB_BOUND", True), ("COMPILER_WORKBENCH_JOB_SECONDS", False)],
)
def test_a_worker_ends_without_its_server(limit, closed):
    code = "import sys; from workbench.app import worker; worker.LATE = 0; sys.exit(worker.main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), limit: "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        if closed:
            process.stdout.close()
        assert process.wait(60) == worker.STOPPED


@pytest.mark.parametrize("pipe", [1, 2])
def test_what_is_printed_without_an_end_is_not_kept(tmp_path, stands_in, pipe):
    mebibytes = 64
    stands_in(
        f"head -c {mebibytes << 20} /dev/zero >&{pipe}\necho >&{pipe}\n"
        """echo '{"progress": {"what": "there", "done": 1, "total": 2}}'\n"""
        "echo the end >&2\nexit 1"
    )
    (job,) = _jobs(tmp_path, "chatty")
    tracemalloc.start()
    made = Compiles().start(job)
    until(lambda: not made.running)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < mebibytes << 18
    assert made.error["what"] == "its process ended: the end"
    assert made.progress["what"] == "there"
