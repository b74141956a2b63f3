"""The weight store: constants outside the IR, named by the hash of their type and bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from core_compiler.ir.attributes import INLINE_BYTES, Dense, Resource, dense
from core_compiler.ir.types import dtype, tensor
from core_compiler.support.errors import UserError


def array_digest(array: np.ndarray) -> str:
    """Return the SHA-256 (hex) over dtype name, shape and little-endian row-major bytes."""
    array = np.ascontiguousarray(array)
    head = f"{dtype(array.dtype).name}:{'x'.join(map(str, array.shape))}:".encode()
    state = hashlib.sha256(head)
    if array.size:
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _place(array: np.ndarray) -> tuple:
    return array.ctypes.data, array.shape, array.strides, array.dtype


class WeightStore:
    """Content-addressed constants; adding an equal array again returns the same handle.

    Append-only and shared by all stages of a compile, so that snapshots never copy weights. Arrays
    are held read-only, in memory or memory-mapped. Memory shared with a framework is not copied;
    see :meth:`watch`. Arrays that an ``earlier`` store watches, and that have not changed since,
    are not hashed again.
    """

    def __init__(self, earlier: WeightStore | None = None) -> None:
        self._earlier = {} if earlier is None else earlier._watched()
        self._arrays: dict[str, np.ndarray] = {}
        self._checks: dict[str, Callable[[str], None]] = {}

    def watch(self, digest: str, check: Callable[[str], None]) -> None:
        """Watch the array of ``digest``, whose memory another owner may change.

        ``check``, called with the digest, raises UserError if it has changed; it is called at every
        read and by :meth:`check`.
        """
        self._checks.setdefault(digest, check)

    def check(self) -> None:
        """Raise UserError if an array has changed since it was added."""
        for digest, check in self._checks.items():
            check(digest)

    def add(self, array) -> Dense | Resource:
        """Return the attribute for ``array``: inline if small, else a stored resource."""
        array = np.asarray(array)
        if array.nbytes <= INLINE_BYTES:
            return dense(array)
        digest = self._known_digest(array) or array_digest(array)
        if digest not in self._arrays:
            stored = np.ascontiguousarray(array)
            # Copy arrays that their owner may still write to, but not mapped files and shared
            # tensors.
            stored = stored.copy() if stored is array and array.flags.writeable else stored.view()
            stored.flags.writeable = False
            self._arrays[digest] = stored
        return Resource(tensor(array.shape, array.dtype), digest)

    def _watched(self) -> dict[tuple, tuple[str, Callable[[str], None]]]:
        """Return digest and check of each watched array, by where it is and what it is."""
        return {_place(self._arrays[d]): (d, check) for d, check in self._checks.items()}

    def _known_digest(self, array: np.ndarray) -> str | None:
        """Return the digest that an earlier store has for this very memory, if it is unchanged."""
        digest, check = self._earlier.get(_place(array), (None, None))
        if digest is None or check is None:
            return None
        try:
            check(digest)
        except UserError:
            return None
        return digest

    def put(self, digest: str, array: np.ndarray) -> None:
        """Bind a known digest to its array (for readers of caches and recordings).

        Raise ValueError if the store has the digest and it is not that of this array.
        """
        stored = self._arrays.get(digest)
        if stored is not None and stored is not array and array_digest(array) != digest:
            raise ValueError(f"{digest} is the digest of another array: use add")
        self._arrays[digest] = array

    def only(self, digests: Iterable[str]) -> WeightStore:
        """Return a store with the arrays of ``digests`` only; other owners are not checked."""
        made = WeightStore()
        for digest in digests:
            if digest in self._arrays:
                made._arrays[digest] = self._arrays[digest]
            if digest in self._checks:
                made._checks[digest] = self._checks[digest]
        return made

    def __getitem__(self, digest: str) -> np.ndarray:
        if digest in self._checks:
            self._checks[digest](digest)
        found = self._arrays.get(digest)
        if found is None:
            raise UserError(
                f"weights {digest[:12]} are not in the store",
                "in-memory store",
                "compile the model again to store its weights",
            )
        return found

    def __contains__(self, digest: str) -> bool:
        return digest in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
