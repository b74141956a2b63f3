"""Data parallelism in several processes: dask starts and supervises them, they exchange directly.

A killed worker costs only time: the others stop before the iteration that needs it, a new worker
starts from the state of the most advanced one, and all continue.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import CRITICAL
from queue import SimpleQueue
from typing import Any

from core_compiler.ir.events import IterationRecord
from core_compiler.support.errors import InternalError, UserError
from core_compiler.training.distributed import worker
from core_compiler.training.distributed.package import Package
from core_compiler.training.distributed.rendezvous import Hub, stride_of
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.plan import History, Plan, Watch, share_out
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream

#: Seconds to wait for workers to arrive, and seconds between two polls.
PATIENCE, LOOK = 120.0, 0.1
#: Seconds within which a scheduler must answer.
CONNECT = 10.0
#: Number of attempts at an iteration in which workers are lost.
ATTEMPTS = 5


def run(
    step: TrainingStep,
    data: Data | Stream,
    history: History,
    plan: Plan,
    watch: Watch,
    *,
    workers: int,
    scheduler: str | None,
) -> None:
    """Run the remaining iterations of :func:`~core_compiler.training.fit.fit` on workers.

    Afterwards ``step`` has their state.
    """
    share_out(step.shards, workers)
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UserError(
            "dask is not installed", "workers", "pip install 'compiler-workbench[workers]'"
        ) from None
    _check_sent(data)
    threads = step.compilation.options.threads
    job = worker.Job(secrets.token_hex(8), plan, threads)
    with _Crew(workers, scheduler) as crew:
        _Run(step, data, history, watch, job, crew).finish()


def _check_sent(data: Data | Stream) -> None:
    """Raise UserError if workers cannot read the data themselves."""
    if not isinstance(data, Stream):
        return
    from distributed.protocol.pickle import dumps

    try:
        dumps(data)
    except Exception as error:
        raise UserError(
            f"the data cannot be sent to workers ({type(error).__name__}: {error})",
            "workers",
            "pass arrays or a dataset that can be pickled, or train without workers",
        ) from None


class _Crew:
    """A dask cluster: local processes, or the workers of a scheduler."""

    def __init__(self, workers: int, scheduler: str | None):
        from distributed import Client, LocalCluster
        from distributed.comm import get_address_host

        self.wanted, self.cluster = workers, None
        if scheduler is None:
            self.cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=CRITICAL,
                preload=[worker.__name__],
            )
        try:
            self.client = Client(self.cluster or scheduler, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot reach a dask scheduler ({error})",
                str(scheduler),
                "start one with: dask scheduler",
            ) from None
        #: The address at which workers reach this process.
        comm: Any = self.client.scheduler_comm
        self.host = get_address_host(comm.comm.local_address)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *failed: object) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()

    def addresses(self) -> list[str]:
        return sorted(self.client.nthreads())

    def wait(self) -> list[str]:
        """Return the workers' addresses once enough of them are there."""
        until = time.monotonic() + PATIENCE
        while len(found := self.addresses()) < self.wanted:
            if time.monotonic() > until:
                raise UserError(
                    f"expected {self.wanted} workers, found {len(found)}",
                    "workers",
                    "start more with: dask worker ADDRESS",
                )
            time.sleep(LOOK)
        return found

    def send(self, what: Any) -> Any:
        """Scatter an object to the workers and return its future."""
        return self.client.scatter(what, hash=False)

    def submit(self, address: str, function: Callable, *arguments: Any) -> Any:
        return self.client.submit(
            function,
            *arguments,
            workers=[address],
            pure=False,
            retries=0,
            allow_other_workers=False,
        )

    def ends(
        self,
        tasks: Mapping[str, Any],
        look: Callable[[], None] = lambda: None,
        well: Callable[[Any], bool] = lambda made: True,
        lost: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Return the results of the tasks by address, once each has ended or lost its worker.

        ``look`` is called in between. ``lost`` is called when a task does not end ``well``, because
        others may wait for it. Raise the error of the first failed task.
        """
        found: dict[str, Any] = {}
        failed: BaseException | None = None
        left = dict(tasks)
        while True:
            look()
            there = set(self.addresses())
            for address, task in list(left.items()):
                if not task.done() and address in there:
                    continue
                del left[address]
                if task.done() and task.status == "finished":
                    found[address] = task.result()
                    if not well(found[address]):
                        lost()
                    continue
                if task.done() and task.status == "error" and address in there:
                    failed = failed or _failed(task.exception())
                else:
                    task.cancel()
                lost()
            if not left:
                break
            time.sleep(LOOK)
        if failed is not None:
            raise failed
        return found


def _well(end: Mapping[str, Any]) -> bool:
    """Return whether a worker has finished its job."""
    return end["ended"] != "apart"


def _failed(error: BaseException) -> BaseException:
    if isinstance(error, UserError):
        return error
    return UserError(
        f"a worker failed: {type(error).__name__}: {error}",
        "workers",
        "install the same version on the worker, or report it",
    )


@dataclass
class _Run:
    step: TrainingStep
    data: Data | Stream
    history: History
    watch: Watch
    job: worker.Job
    crew: _Crew
    heard: SimpleQueue = field(default_factory=SimpleQueue)

    def finish(self) -> None:
        """Run until the job is done, restarting whenever a worker is lost."""
        package = Package.of(self.step)
        stride = stride_of(package.rounds)
        state = self._encoded()
        kept: dict[str, int] = {}  # workers that have a state -> its iteration
        reached, vain = self.step.iteration, 0
        while True:
            try:
                there = self.crew.wait()
            except (UserError, KeyboardInterrupt):
                self._take([a for a in kept if a in self.crew.addresses()])
                raise
            kept = {a: i for a, i in kept.items() if a in there}
            chosen = [*kept, *(a for a in there if a not in kept)][: self.crew.wanted]
            newest = max(kept.values(), default=self.step.iteration)
            if not kept:
                state = self._last() or state
            if kept and any(kept.get(a) != newest for a in chosen):
                giver = next(a for a, i in kept.items() if i == newest)
                state = self._state_of(giver) or state
            # Scattered data are stored on a worker and may be lost with it.
            sent = [self.crew.send(part) for part in (package, self.data, state)]
            try:
                ends = self._iterate(chosen, kept, newest, sent, stride)
            except (UserError, KeyboardInterrupt):
                self._take(chosen)
                raise
            if len(ends) == len(chosen) and all(map(_well, ends.values())):
                break
            kept = {a: end["iteration"] for a, end in ends.items() if end["iteration"] is not None}
            further = max(kept.values(), default=reached)
            reached, vain = max(reached, further), vain + 1 if further <= reached else 0
            if vain == ATTEMPTS:
                self._take(chosen)
                if why := next((w for e in ends.values() if (w := e.get("unreached"))), ""):
                    raise UserError(
                        f"a worker cannot reach this process at {why}",
                        "workers",
                        "pass --scheduler an address of this machine that all workers can reach",
                    )
                raise UserError(
                    f"workers were lost {vain} times in iteration {reached + 1}",
                    "workers",
                    "check why they exit (out of memory?), then resume "
                    "from a checkpoint with fewer workers",
                )
        self._take(chosen)
        (end, *others) = ends.values()
        if end["ended"] == "not finite":
            given = self.data.batch(end["iteration"], self.job.plan.batch, self.job.plan.seed)
            raise self.step.not_finite(end["loss"], given)
        if any(other["digest"] != end["digest"] for other in others):
            raise InternalError("the states of the workers differ")
        self.history.peak_bytes = sum(end["peak_bytes"] for end in ends.values())

    def _iterate(self, chosen, kept, newest, sent, stride) -> dict[str, dict]:
        package, data, state = sent
        count, shards = len(chosen), self.step.shards
        with Hub(count, shards, stride, self.heard.put, self.crew.host) as hub:
            tasks = {}
            for number, address in enumerate(chosen):
                own = range(shards * number // count, shards * (number + 1) // count)
                given = None if kept.get(address) == newest else state
                tasks[address] = self.crew.submit(
                    address, worker.train, self.job, package, data, hub.place, own, given
                )
            ends = self.crew.ends(tasks, self._look, _well, hub.stop)
        for end in ends.values():  # reports that arrived after the last poll
            for row in end["told"]:
                self.heard.put(row)
        self._look()
        return ends

    def _look(self) -> None:
        """Forward the reports of the workers, except those of repeated iterations."""
        while not self.heard.empty():
            row: IterationRecord = self.heard.get()
            if row.number > self.history.first + len(self.history.rows):
                self.history.add(row)
                self.watch(self.history.progress(self.job.plan.iterations, self.job.plan.batch))

    def _last(self) -> bytes | None:
        """Return the newest valid checkpoint of this step, for when no worker has a state."""
        folder = self.job.plan.folder
        found = None if folder is None else checkpoint.newest(folder)
        if found is None:
            return None
        data = found.read_bytes()
        _, receipt = checkpoint.decoded(data, str(found))
        newer = receipt.get("iteration", 0) > self.step.iteration
        return data if newer and receipt.get("identity") == self.step.identity else None

    def _encoded(self) -> bytes:
        return checkpoint.encoded(self.step.whole_state(), {"iteration": self.step.iteration})

    def _state_of(self, address: str) -> bytes | None:
        return self._each([address], worker.state_of).get(address)

    def _take(self, addresses: Sequence[str]) -> None:
        """Load the state of the workers into the step and release it there."""
        self._look()
        reached = {a: i for a, i in self._each(addresses, worker.iteration_of).items() if i}
        # This worker may be lost now as well.
        for address in sorted(reached, key=reached.__getitem__, reverse=True):
            if (held := self._state_of(address)) is not None:
                self.step.load_state_dict(checkpoint.decoded(held, "a worker's state")[0])
                break
        self._each(addresses, worker.forget)

    def _each(self, addresses: Sequence[str], function: Callable[[str], Any]) -> dict[str, Any]:
        """Call a function of the run in each remaining worker and return the results by address."""
        return self.crew.ends({a: self.crew.submit(a, function, self.job.run) for a in addresses})
