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

import numpy as np

from core_compiler.ir.events import IterationRecord
from core_compiler.support.errors import InternalError, UserError
from core_compiler.training.distributed import worker
from core_compiler.training.distributed.package import Package
from core_compiler.training.distributed.rendezvous import Coordinator, stride_of
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.plan import History, Plan, Watch, check_worker_count
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream

#: Seconds to wait for workers to arrive, and seconds between two polls.
ARRIVAL_TIMEOUT, POLL_INTERVAL = 120.0, 0.1
#: Seconds within which a scheduler must answer.
CONNECT_TIMEOUT = 10.0
#: Number of attempts at an iteration in which workers are lost.
MAX_ATTEMPTS = 5


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
    check_worker_count(step.shards, workers)
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UserError(
            "dask is not installed", "workers", "pip install 'compiler-workbench[workers]'"
        ) from None
    _check_sent(data)
    threads = step.compilation.options.threads
    job = worker.Job(secrets.token_hex(8), plan, threads)
    with _WorkerPool(workers, scheduler) as pool:
        _Run(step, data, history, watch, job, pool).finish()


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


class _WorkerPool:
    """A dask cluster: local processes, or the workers of a scheduler."""

    def __init__(self, workers: int, scheduler: str | None):
        from distributed import Client, LocalCluster
        from distributed.comm import get_address_host

        self.worker_count, self.cluster = workers, None
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
            self.client = Client(
                self.cluster or scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot reach a dask scheduler ({error})",
                str(scheduler),
                "start one with: dask scheduler",
            ) from None
        #: The address at which workers reach this process.
        comm: Any = self.client.scheduler_comm
        self.host = get_address_host(comm.comm.local_address)

    def __enter__(self) -> _WorkerPool:
        return self

    def __exit__(self, *failed: object) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()

    def addresses(self) -> list[str]:
        return sorted(self.client.nthreads())

    def wait(self) -> list[str]:
        """Return the workers' addresses once enough of them are there."""
        deadline = time.monotonic() + ARRIVAL_TIMEOUT
        while len(found := self.addresses()) < self.worker_count:
            if time.monotonic() > deadline:
                raise UserError(
                    f"expected {self.worker_count} workers, found {len(found)}",
                    "workers",
                    "start more with: dask worker ADDRESS",
                )
            time.sleep(POLL_INTERVAL)
        return found

    def send(self, value: Any) -> Any:
        """Scatter an object to the workers and return its future."""
        return self.client.scatter(value, hash=False)

    def submit(self, address: str, function: Callable, *arguments: Any) -> Any:
        return self.client.submit(
            function,
            *arguments,
            workers=[address],
            pure=False,
            retries=0,
            allow_other_workers=False,
        )

    def outcomes(
        self,
        tasks: Mapping[str, Any],
        on_poll: Callable[[], None] = lambda: None,
        is_success: Callable[[Any], bool] = lambda result: True,
        on_failure: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Return the results of the tasks by address, once each has ended or lost its worker.

        ``on_poll`` is called in between. ``on_failure`` is called when a task does not end
        ``is_success``, because others may wait for it. Raise the error of the first failed task.
        """
        results: dict[str, Any] = {}
        failed: BaseException | None = None
        pending = dict(tasks)
        while True:
            on_poll()
            alive = set(self.addresses())
            for address, task in list(pending.items()):
                if not task.done() and address in alive:
                    continue
                del pending[address]
                if task.done() and task.status == "finished":
                    results[address] = task.result()
                    if not is_success(results[address]):
                        on_failure()
                    continue
                if task.done() and task.status == "error" and address in alive:
                    failed = failed or _worker_error(task.exception())
                else:
                    task.cancel()
                on_failure()
            if not pending:
                break
            time.sleep(POLL_INTERVAL)
        if failed is not None:
            raise failed
        return results


def _is_finished(outcome: Mapping[str, Any]) -> bool:
    """Return whether a worker has finished its job."""
    return outcome["ended"] != "apart"


def _worker_error(error: BaseException) -> BaseException:
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
    pool: _WorkerPool
    reports: SimpleQueue = field(default_factory=SimpleQueue)

    def finish(self) -> None:
        """Run until the job is done, restarting whenever a worker is lost."""
        package = Package.of(self.step, self._last_batch())
        stride = stride_of(package.rounds)
        state = self._encode_state()
        iterations: dict[str, int] = {}  # workers that have a state -> its iteration
        reached, failures = self.step.iteration, 0
        while True:
            try:
                available = self.pool.wait()
            except (UserError, KeyboardInterrupt):
                self._fetch_state([a for a in iterations if a in self.pool.addresses()])
                raise
            iterations = {a: i for a, i in iterations.items() if a in available}
            chosen = [*iterations, *(a for a in available if a not in iterations)][
                : self.pool.worker_count
            ]
            newest = max(iterations.values(), default=self.step.iteration)
            if not iterations:
                state = self._newest_checkpoint() or state
            if iterations and any(iterations.get(a) != newest for a in chosen):
                source = next(a for a, i in iterations.items() if i == newest)
                state = self._state_of(source) or state
            # Scattered data are stored on a worker and may be lost with it.
            futures = [self.pool.send(part) for part in (package, self.data, state)]
            try:
                outcomes = self._iterate(chosen, iterations, newest, futures, stride)
            except (UserError, KeyboardInterrupt):
                self._fetch_state(chosen)
                raise
            if len(outcomes) == len(chosen) and all(map(_is_finished, outcomes.values())):
                break
            iterations = {
                a: outcome["iteration"]
                for a, outcome in outcomes.items()
                if outcome["iteration"] is not None
            }
            latest = max(iterations.values(), default=reached)
            reached, failures = max(reached, latest), failures + 1 if latest <= reached else 0
            if failures == MAX_ATTEMPTS:
                self._fetch_state(chosen)
                if address := next((w for e in outcomes.values() if (w := e.get("unreached"))), ""):
                    raise UserError(
                        f"a worker cannot reach this process at {address}",
                        "workers",
                        "pass --scheduler an address of this machine that all workers can reach",
                    )
                raise UserError(
                    f"workers were lost {failures} times in iteration {reached + 1}",
                    "workers",
                    "check why they exit (out of memory?), then resume "
                    "from a checkpoint with fewer workers",
                )
        self._fetch_state(chosen)
        (outcome, *others) = outcomes.values()
        if outcome["ended"] == "not finite":
            plan = self.job.plan
            batch = self.data.batch(outcome["iteration"], plan.batch, plan.seed, plan.drop_last)
            raise self.step.not_finite(outcome["loss"], batch)
        if any(other["digest"] != outcome["digest"] for other in others):
            raise InternalError("the states of the workers differ")
        self.history.peak_bytes = sum(outcome["peak_bytes"] for outcome in outcomes.values())

    def _last_batch(self) -> Sequence[np.ndarray]:
        """Return an example of the smaller batch at the end of an epoch; [] if there is none."""
        plan, data = self.job.plan, self.data
        if isinstance(data, Stream) or plan.drop_last is not False:
            return []
        return data.example(data.remainder(plan.batch))

    def _iterate(self, chosen, iterations, newest, futures, stride) -> dict[str, dict]:
        package, data, state = futures
        count, shards = len(chosen), self.step.shards
        with Coordinator(count, shards, stride, self.reports.put, self.pool.host) as coordinator:
            tasks = {}
            for number, address in enumerate(chosen):
                own = range(shards * number // count, shards * (number + 1) // count)
                given = None if iterations.get(address) == newest else state
                tasks[address] = self.pool.submit(
                    address, worker.train, self.job, package, data, coordinator.info, own, given
                )
            outcomes = self.pool.outcomes(
                tasks, self._forward_reports, _is_finished, coordinator.stop
            )
        for outcome in outcomes.values():  # reports that arrived after the last poll
            for row in outcome["told"]:
                self.reports.put(row)
        self._forward_reports()
        return outcomes

    def _forward_reports(self) -> None:
        """Forward the reports of the workers, except those of repeated iterations."""
        while not self.reports.empty():
            row: IterationRecord = self.reports.get()
            if row.number > self.history.first + len(self.history.rows):
                self.history.add(row)
                self.watch(self.history.progress(self.job.plan.iterations, self.job.plan.batch))

    def _newest_checkpoint(self) -> bytes | None:
        """Return the newest valid checkpoint of this step, for when no worker has a state."""
        folder = self.job.plan.folder
        found = None if folder is None else checkpoint.newest(folder)
        if found is None:
            return None
        data = found.read_bytes()
        _, receipt = checkpoint.decode(data, str(found))
        newer = receipt.get("iteration", 0) > self.step.iteration
        return data if newer and receipt.get("identity") == self.step.identity else None

    def _encode_state(self) -> bytes:
        return checkpoint.encode(self.step.whole_state(), {"iteration": self.step.iteration})

    def _state_of(self, address: str) -> bytes | None:
        return self._call_each([address], worker.state_of).get(address)

    def _fetch_state(self, addresses: Sequence[str]) -> None:
        """Load the state of the workers into the step and release it there."""
        self._forward_reports()
        reached = {a: i for a, i in self._call_each(addresses, worker.iteration_of).items() if i}
        # This worker may be lost now as well.
        for address in sorted(reached, key=reached.__getitem__, reverse=True):
            if (held := self._state_of(address)) is not None:
                self.step.load_state_dict(checkpoint.decode(held, "a worker's state")[0])
                break
        self._call_each(addresses, worker.forget)

    def _call_each(
        self, addresses: Sequence[str], function: Callable[[str], Any]
    ) -> dict[str, Any]:
        """Call a function of the run in each remaining worker and return the results by address."""
        return self.pool.outcomes(
            {a: self.pool.submit(a, function, self.job.run) for a in addresses}
        )
