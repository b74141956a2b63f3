"""The rendezvous of the workers of a training run.

The coordinator coordinates: all workers continue when all have arrived. On one machine the shards'
contributions are in memory that all workers share (a mapped file), and each worker reduces a part
of it. A worker on another machine sends the contributions of its shards through the coordinator and
receives the sums. A lost worker is noticed by its connection, and all others are stopped.
"""

from __future__ import annotations

import mmap
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.numerics.reference.collective import tree_sum
from core_compiler.numerics.reference.dtypes import DTYPES, dtype_name

_ALIGN, _TOKEN = 64, 16
#: Files here are in memory; if it is too small, files of the temporary folder are mapped.
_MEMORY = Path("/dev/shm")


class WorkerLost(Exception):
    """Raised if a worker is lost and no other one continues."""


class CoordinatorUnreachable(Exception):
    """Raised if a worker cannot reach the coordinator: it has stopped or the address is wrong."""


@dataclass(frozen=True)
class RendezvousInfo:
    """The information that a worker needs to join the rendezvous.

    It contains the coordinator's address, the shared file with its token, and the capacity in bytes
    for each array of the largest round.
    """

    address: tuple[str, int]
    key: bytes
    path: str
    token: bytes
    shards: int
    stride: int

    def part(self, block: np.ndarray, shard: int) -> np.ndarray:
        """Return the contribution of a shard as bytes; index ``shards`` holds the sums."""
        start = _ALIGN + shard * self.stride
        return block[start : start + self.stride]


def stride_of(rounds: Iterable[Iterable[int]]) -> int:
    """Return the bytes that a shard contributes to the largest round of arrays of these sizes."""
    return max((sum(-(-n // _ALIGN) * _ALIGN for n in sizes) for sizes in rounds), default=0)


class Coordinator:
    """The coordinator of a rendezvous: workers that hold ``coordinator.info`` meet in its context.

    ``on_report(what)`` is called on the coordinator's thread with each report of a worker.
    """

    def __init__(
        self,
        workers: int,
        shards: int,
        stride: int,
        on_report: Callable[[Any], None],
        host: str = "127.0.0.1",
    ):
        self.workers, self.on_report, self._stop = workers, on_report, False
        self._size = _ALIGN + (shards + 1) * stride
        has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * self._size
        fd, path = tempfile.mkstemp(prefix="cw-", dir=_MEMORY if has_room else None)
        os.ftruncate(fd, self._size)
        token = secrets.token_bytes(_TOKEN)
        with mmap.mmap(fd, self._size) as memory:
            memory[:_TOKEN] = token
        os.close(fd)
        key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), authkey=key, backlog=workers)
        self.info = RendezvousInfo(self._listener.address, key, path, token, shards, stride)
        self._block = _map_file(path, self._size)
        self._thread = threading.Thread(
            target=self._serve, daemon=True, name="workers' coordinator"
        )

    def __enter__(self) -> Coordinator:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop all workers, also those that have yet to arrive."""
        if self._stop:
            return
        self._stop = True
        with _ignore_connection_errors():  # the thread may wait for a worker that never arrived
            socket.create_connection(self._listener.address, timeout=1).close()
        self._thread.join(10)
        self._listener.close()

    def __exit__(self, *failed) -> None:
        self.stop()
        Path(self.info.path).unlink(missing_ok=True)

    def _serve(self) -> None:
        ranks: dict[Connection, Any] = {}
        try:
            while len(ranks) < self.workers and not self._stop:
                with _ignore_connection_errors():
                    rank: Any = self._listener.accept()
                    ranks[rank] = rank.recv()
            if self._stop:
                return
            # Every worker has mapped it, so no file is left behind.
            Path(self.info.path).unlink(missing_ok=True)
            local_ranks = [rank for rank, is_local in ranks.items() if is_local]
            for rank in ranks:
                rank.send(
                    (local_ranks.index(rank) if rank in local_ranks else -1, len(local_ranks))
                )
            self._run_exchanges(list(ranks), local_ranks)
        except (OSError, EOFError):
            pass
        finally:
            for rank in ranks:
                rank.close()

    def _run_exchanges(self, ranks: list, local_ranks: list) -> None:
        arrived: dict[Any, Any] = {}
        contributions: list[Any] = []  # contributions of all ranks, for the leading one
        gatherer: Any = None
        adding = True  # all have arrived; next all have added up
        while ranks and not self._stop:
            ready: Any = wait(ranks, 0.5)
            for rank in ready:
                kind, payload = rank.recv()
                if kind == "tell":
                    self.on_report(payload)
                elif kind == "leave":
                    ranks.remove(rank)
                elif kind in ("give", "gather"):
                    contributions.append(payload)
                    gatherer = rank if kind == "gather" else gatherer
                else:
                    arrived[rank] = payload
            if gatherer is not None and len(contributions) == self.workers:
                gatherer.send(contributions)
                contributions, gatherer = [], None
            if len(arrived) < len(ranks) or not ranks:
                continue
            sums = None
            if adding:
                for parts in arrived.values():
                    for shard, data in parts or ():
                        self.info.part(self._block, shard)[: len(data)] = np.frombuffer(
                            data, np.uint8
                        )
            for rank in ranks:
                if adding or rank in local_ranks:
                    rank.send(None)
                    continue
                layout = arrived[rank]
                sums = sums or self._sums(layout, bool(local_ranks))
                rank.send(sums)
            arrived, adding = {}, not adding

    def _sums(self, layout: Sequence[tuple[int, str]], added: bool) -> bytes:
        """Return the sums for workers on other machines.

        If all workers are remote, the sums are computed here.
        """
        if not added:
            reduce_part(self.info, self._block, layout, 0, 1)
        total = self.info.part(self._block, self.info.shards)
        return total[: stride_of([[n * DTYPES[k].itemsize for n, k in layout]])].tobytes()


class Rank:
    """The rank of a worker.

    ``all_reduce`` is the exchange of :class:`~core_compiler.runtime.shards.Shards`;
    ``shard_indices`` are the numbers of the worker's shards.
    """

    def __init__(self, info: RendezvousInfo, shard_indices: Sequence[int], shared: bool = True):
        self.info, self.shard_indices = info, shard_indices
        self._block = _map_if_local(info) if shared else None
        try:
            self._coordinator = Client(info.address, authkey=info.key)
            self._coordinator.send(self._block is not None)
        except (OSError, EOFError) as error:
            host, port = info.address
            raise CoordinatorUnreachable(f"{host}:{port}: {error or 'connection closed'}") from None
        self.index, self.local_count = self._receive()

    def report(self, payload: Any) -> None:
        """Send a report to the coordinator."""
        self._send("tell", payload)

    def gather(self, payload: Any) -> list[Any]:
        """Gather the contributions of all workers, in any order; only the leading one waits."""
        if self.is_leader:
            self._send("gather", payload)
            return self._receive()
        self._send("give", payload)
        return []

    @property
    def is_leader(self) -> bool:
        """Return whether this worker reports progress and writes checkpoints and receipts."""
        return self.shard_indices[0] == 0

    def leave(self) -> None:
        """Leave the rendezvous after the last iteration; the others may finish on their own."""
        self._send("leave", None)

    def close(self) -> None:
        self._coordinator.close()

    def all_reduce(self, contributions: Iterable[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Return the sums over all shards; raise :class:`WorkerLost` if a worker is lost."""
        layout: list[tuple[int, str]] = []
        parts = []
        for shard, arrays in zip(self.shard_indices, contributions, strict=True):
            layout = _layout(arrays)
            if self._block is None:
                data = np.zeros(self.info.stride, np.uint8)
                _put(data, arrays)
                parts.append((shard, data[: stride_of([[a.nbytes for a in arrays]])].tobytes()))
            else:
                _put(self.info.part(self._block, shard), arrays)
        self._wait_for_all(parts)
        if self._block is None:
            total = np.frombuffer(self._wait_for_all(layout), np.uint8)
        else:
            reduce_part(self.info, self._block, layout, self.index, self.local_count)
            self._wait_for_all(None)
            total = self.info.part(self._block, self.info.shards)
        return list(_arrays(total, layout))

    def _wait_for_all(self, payload: Any) -> Any:
        self._send("here", payload)
        return self._receive()

    def _send(self, kind: str, payload: Any) -> None:
        try:
            self._coordinator.send((kind, payload))
        except OSError:
            raise WorkerLost from None

    def _receive(self) -> Any:
        try:
            return self._coordinator.recv()
        except (EOFError, OSError):
            raise WorkerLost from None


def reduce_part(
    info: RendezvousInfo,
    block: np.ndarray,
    layout: Sequence[tuple[int, str]],
    index: int,
    count: int,
) -> None:
    """Compute part ``index`` of ``count`` of the sums over all shards."""
    by_shard = [list(_arrays(info.part(block, shard), layout)) for shard in range(info.shards + 1)]
    for arrays in zip(*by_shard, strict=True):
        *contributions, total = arrays
        chunk = slice(total.size * index // count, total.size * (index + 1) // count)
        if chunk.start < chunk.stop:
            tree_sum([a[chunk] for a in contributions], out=total[chunk])


def _put(to: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
    for target, array in zip(_arrays(to, _layout(arrays)), arrays, strict=True):
        target[...] = array.reshape(-1)


def _layout(arrays: Sequence[np.ndarray]) -> list[tuple[int, str]]:
    return [(a.size, dtype_name(a.dtype)) for a in arrays]


def _arrays(block: np.ndarray, layout: Sequence[tuple[int, str]]):
    at = 0
    for size, kind in layout:
        count = size * DTYPES[kind].itemsize
        yield block[at : at + count].view(DTYPES[kind])
        at += -(-count // _ALIGN) * _ALIGN


def _map_if_local(info: RendezvousInfo) -> np.ndarray | None:
    """Return the shared memory, or None on another machine."""
    size = _ALIGN + (info.shards + 1) * info.stride
    try:
        block = _map_file(info.path, size)
    except (OSError, ValueError):
        return None
    return block if block[:_TOKEN].tobytes() == info.token else None


def _map_file(path: str, size: int) -> np.ndarray:
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)


def _ignore_connection_errors():
    return suppress(OSError, EOFError, AuthenticationError)
