"""The rendezvous of the workers of a training run.

The hub coordinates: all workers continue when all have arrived. On one machine the shards'
contributions are in memory that all workers share (a mapped file), and each worker reduces a part
of it. A worker on another machine sends the contributions of its shards through the hub and
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


class Apart(Exception):
    """Raised if a worker is lost and no other one continues."""


class Unreached(Exception):
    """Raised if a worker cannot reach the hub, because it was given up or the address is wrong."""


@dataclass(frozen=True)
class Place:
    """The information that a worker needs to join the rendezvous.

    It contains the hub's address, the shared file with its token, and the capacity in bytes for
    each array of the largest round.
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


class Hub:
    """The coordinator of a rendezvous: workers that hold ``hub.place`` meet in its context.

    ``hear(what)`` is called on the hub's thread with each report of a worker.
    """

    def __init__(
        self,
        workers: int,
        shards: int,
        stride: int,
        hear: Callable[[Any], None],
        host: str = "127.0.0.1",
    ):
        self.workers, self.hear, self._stop = workers, hear, False
        self._size = _ALIGN + (shards + 1) * stride
        roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * self._size
        number, path = tempfile.mkstemp(prefix="cw-", dir=_MEMORY if roomy else None)
        os.ftruncate(number, self._size)
        token = secrets.token_bytes(_TOKEN)
        with mmap.mmap(number, self._size) as memory:
            memory[:_TOKEN] = token
        os.close(number)
        key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), authkey=key, backlog=workers)
        self.place = Place(self._listener.address, key, path, token, shards, stride)
        self._block = _mapped(path, self._size)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="workers' hub")

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop all workers, also those that have yet to arrive."""
        if self._stop:
            return
        self._stop = True
        with _quiet():  # the thread may wait for a worker that never arrived
            socket.create_connection(self._listener.address, timeout=1).close()
        self._thread.join(10)
        self._listener.close()

    def __exit__(self, *failed) -> None:
        self.stop()
        Path(self.place.path).unlink(missing_ok=True)

    def _serve(self) -> None:
        seats: dict[Connection, Any] = {}
        try:
            while len(seats) < self.workers and not self._stop:
                with _quiet():
                    seat: Any = self._listener.accept()
                    seats[seat] = seat.recv()
            if self._stop:
                return
            # Every worker has mapped it, so no file is left behind.
            Path(self.place.path).unlink(missing_ok=True)
            near = [seat for seat, is_near in seats.items() if is_near]
            for seat in seats:
                seat.send((near.index(seat) if seat in near else -1, len(near)))
            self._meet(list(seats), near)
        except (OSError, EOFError):
            pass
        finally:
            for seat in seats:
                seat.close()

    def _meet(self, seats: list, near: list) -> None:
        arrived: dict[Any, Any] = {}
        given: list[Any] = []  # contributions of all ranks, for the leading one
        asking: Any = None
        adding = True  # all have arrived; next all have added up
        while seats and not self._stop:
            ready: Any = wait(seats, 0.5)
            for seat in ready:
                kind, what = seat.recv()
                if kind == "tell":
                    self.hear(what)
                elif kind == "leave":
                    seats.remove(seat)
                elif kind in ("give", "gather"):
                    given.append(what)
                    asking = seat if kind == "gather" else asking
                else:
                    arrived[seat] = what
            if asking is not None and len(given) == self.workers:
                asking.send(given)
                given, asking = [], None
            if len(arrived) < len(seats) or not seats:
                continue
            sums = None
            if adding:
                for parts in arrived.values():
                    for shard, data in parts or ():
                        self.place.part(self._block, shard)[: len(data)] = np.frombuffer(
                            data, np.uint8
                        )
            for seat in seats:
                if adding or seat in near:
                    seat.send(None)
                    continue
                layout = arrived[seat]
                sums = sums or self._sums(layout, bool(near))
                seat.send(sums)
            arrived, adding = {}, not adding

    def _sums(self, layout: Sequence[tuple[int, str]], added: bool) -> bytes:
        """Return the sums for workers on other machines.

        If all workers are remote, the sums are computed here.
        """
        if not added:
            add_up(self.place, self._block, layout, 0, 1)
        total = self.place.part(self._block, self.place.shards)
        return total[: stride_of([[n * DTYPES[k].itemsize for n, k in layout]])].tobytes()


class Seat:
    """The rank of a worker.

    ``join`` is the exchange of :class:`~core_compiler.runtime.shards.Shards`; ``own`` are the
    numbers of the worker's shards.
    """

    def __init__(self, place: Place, own: Sequence[int], shared: bool = True):
        self.place, self.own = place, own
        self._block = _near(place) if shared else None
        try:
            self._hub = Client(place.address, authkey=place.key)
            self._hub.send(self._block is not None)
        except (OSError, EOFError) as error:
            host, port = place.address
            raise Unreached(f"{host}:{port}: {error or 'connection closed'}") from None
        self.index, self.near = self._receive()

    def tell(self, what: Any) -> None:
        """Send a report to the hub."""
        self._send("tell", what)

    def gather(self, what: Any) -> list[Any]:
        """Gather the contributions of all workers, in any order; only the leading one waits."""
        if self.leads:
            self._send("gather", what)
            return self._receive()
        self._send("give", what)
        return []

    @property
    def leads(self) -> bool:
        """Return whether this worker reports progress and writes checkpoints and receipts."""
        return self.own[0] == 0

    def leave(self) -> None:
        """Leave the rendezvous after the last iteration; the others may finish on their own."""
        self._send("leave", None)

    def close(self) -> None:
        self._hub.close()

    def join(self, given: Iterable[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Return the sums over all shards; raise :class:`Apart` if a worker is lost."""
        layout: list[tuple[int, str]] = []
        parts = []
        for shard, arrays in zip(self.own, given, strict=True):
            layout = _layout(arrays)
            if self._block is None:
                data = np.zeros(self.place.stride, np.uint8)
                _put(data, arrays)
                parts.append((shard, data[: stride_of([[a.nbytes for a in arrays]])].tobytes()))
            else:
                _put(self.place.part(self._block, shard), arrays)
        self._arrive(parts)
        if self._block is None:
            total = np.frombuffer(self._arrive(layout), np.uint8)
        else:
            add_up(self.place, self._block, layout, self.index, self.near)
            self._arrive(None)
            total = self.place.part(self._block, self.place.shards)
        return list(_arrays(total, layout))

    def _arrive(self, what: Any) -> Any:
        self._send("here", what)
        return self._receive()

    def _send(self, kind: str, what: Any) -> None:
        try:
            self._hub.send((kind, what))
        except OSError:
            raise Apart from None

    def _receive(self) -> Any:
        try:
            return self._hub.recv()
        except (EOFError, OSError):
            raise Apart from None


def add_up(
    place: Place, block: np.ndarray, layout: Sequence[tuple[int, str]], index: int, count: int
) -> None:
    """Compute part ``index`` of ``count`` of the sums over all shards."""
    held = [list(_arrays(place.part(block, shard), layout)) for shard in range(place.shards + 1)]
    for arrays in zip(*held, strict=True):
        *given, to = arrays
        some = slice(to.size * index // count, to.size * (index + 1) // count)
        if some.start < some.stop:
            tree_sum([a[some] for a in given], out=to[some])


def _put(to: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
    for place, array in zip(_arrays(to, _layout(arrays)), arrays, strict=True):
        place[...] = array.reshape(-1)


def _layout(arrays: Sequence[np.ndarray]) -> list[tuple[int, str]]:
    return [(a.size, dtype_name(a.dtype)) for a in arrays]


def _arrays(block: np.ndarray, layout: Sequence[tuple[int, str]]):
    at = 0
    for size, kind in layout:
        count = size * DTYPES[kind].itemsize
        yield block[at : at + count].view(DTYPES[kind])
        at += -(-count // _ALIGN) * _ALIGN


def _near(place: Place) -> np.ndarray | None:
    """Return the shared memory, or None on another machine."""
    size = _ALIGN + (place.shards + 1) * place.stride
    try:
        block = _mapped(place.path, size)
    except (OSError, ValueError):
        return None
    return block if block[:_TOKEN].tobytes() == place.token else None


def _mapped(path: str, size: int) -> np.ndarray:
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)


def _quiet():
    return suppress(OSError, EOFError, AuthenticationError)
