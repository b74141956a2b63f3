"""The stored tensors of a torch program: tied tensors, used tensors, shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import combinations
from typing import Any

import numpy as np

from core_compiler.frontends.pytorch.tensors import memory_key
from core_compiler.ir import Dense, Resource
from core_compiler.support.arrays import as_numpy
from core_compiler.support.errors import UserError

#: The effort limit for deciding whether two tensors of one storage overlap (NumPy's measure);
#: beyond it, they are assumed to overlap.
OVERLAP_EFFORT = 1_000_000


def tied(states: Mapping[str, Any]) -> list[list[str]]:
    """Return the names of each tensor that has several."""
    groups: dict[tuple, list[str]] = {}
    for name, held in states.items():
        groups.setdefault(memory_key(held), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def stored(
    states: Mapping[str, Any], made: Mapping[str, Dense | Resource | None], changed: Set[str]
) -> tuple[dict[str, Dense | Resource | np.ndarray], dict[str, np.ndarray]]:
    """Return a state dict in two parts by name: the used tensors, and copies of the others.

    The used ones are those of the module (``made``), or copies if the module has them in parts.
    Tensors that the program has ``changed``, under any name, and tensors that are not dense are in
    neither.
    """
    changed_keys = {memory_key(states[name]) for name in changed if name in states}
    known = {memory_key(states[name]): held for name, held in made.items() if name in states}
    constants: dict[str, Dense | Resource | np.ndarray] = {}
    unread: dict[str, np.ndarray] = {}
    for name, held in states.items():
        memory = memory_key(held)
        if memory in changed_keys:
            continue
        try:
            if memory in known:
                constant = known[memory]
                constants[name] = np.array(as_numpy(held)) if constant is None else constant
            else:
                unread[name] = np.array(as_numpy(held))
        except (RuntimeError, TypeError, NotImplementedError):
            continue
    return constants, unread


def refuse_shared(states: Mapping[str, Any], where: str, *, one: bool = True) -> None:
    """Raise UserError if a trained parameter overlaps another tensor of the model.

    Torch changes both at once, a training step would change one.  ``one``: tensors that share all
    of their memory are a single one with several names, as in a saved program.
    """
    for (name, held), (other, other_tensor) in _overlapping_pairs(states):
        if held is other_tensor or not (held.requires_grad or other_tensor.requires_grad):
            continue
        if not (one and memory_key(held) == memory_key(other_tensor)):
            raise UserError(
                f"{name} and {other} are two tensors that share memory, which training changes",
                where,
                "make them one tensor (module.b = module.a), or copy one (tensor.detach().clone())",
            )


def _overlapping_pairs(
    states: Mapping[str, Any],
) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    """Yield the pairs of tensors that have elements in common."""
    storages: dict[int, list[tuple[str, Any]]] = {}
    for item in states.items():
        try:
            storages.setdefault(item[1].untyped_storage().data_ptr(), []).append(item)
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse, fake, not a tensor
            continue
    for pointer, group in storages.items():
        for first, second in combinations(group, 2):
            if pointer and overlap(first[1], second[1]):
                yield first, second


def overlap(first: Any, second: Any) -> bool:
    """Return whether two tensors have elements in common (True if it takes too long to decide)."""
    try:
        if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
            return False
        if not (first.numel() and second.numel()):
            return False
    except (RuntimeError, NotImplementedError, AttributeError):  # sparse, fake, not a tensor
        return False
    try:
        most: Any = OVERLAP_EFFORT  # NumPy's annotation only allows two special numbers
        return np.shares_memory(_bytes(first), _bytes(second), max_work=most)
    except np.exceptions.TooHardError:
        return True


def _bytes(held: Any) -> np.ndarray:
    """Return an array with the address range of a tensor on any device, which is never read."""
    size = held.element_size()
    strides = (*(size * stride for stride in held.stride()), 1)
    facts = {
        "data": (held.data_ptr(), True),
        "shape": (*held.shape, size),
        "strides": strides,
        "typestr": "|u1",
        "version": 3,
    }
    return np.asarray(type("Memory", (), {"__array_interface__": facts})())
