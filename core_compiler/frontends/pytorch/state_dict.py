"""The stored tensors of a torch program: which are one, which are read, which share memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import combinations
from typing import Any

import numpy as np

from core_compiler.frontends.pytorch.tensors import memory_of
from core_compiler.ir import Dense, Resource
from core_compiler.support.arrays import as_numpy
from core_compiler.support.errors import UserError

#: How much work it may be to find out whether two tensors of one storage have an element in
#: common (NumPy's measure); where it is more, they are taken to.
SEARCH = 1_000_000


def tied(states: Mapping[str, Any]) -> list[list[str]]:
    """The names of each tensor that has several."""
    groups: dict[tuple, list[str]] = {}
    for name, held in states.items():
        groups.setdefault(memory_of(held), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def stored(
    states: Mapping[str, Any], made: Mapping[str, Dense | Resource | None], changed: Set[str]
) -> tuple[dict[str, Dense | Resource | np.ndarray], dict[str, np.ndarray]]:
    """A state dict in two parts, by name: what is read as it is (``made``: as the module has it;
    copies of what it has in parts), and copies of what nothing reads.  What the program has
    ``changed``, by whatever name, is in neither, nor what is not dense."""
    moved = {memory_of(states[name]) for name in changed if name in states}
    known = {memory_of(states[name]): held for name, held in made.items() if name in states}
    constants: dict[str, Dense | Resource | np.ndarray] = {}
    unread: dict[str, np.ndarray] = {}
    for name, held in states.items():
        memory = memory_of(held)
        if memory in moved:
            continue
        try:
            if memory in known:
                as_made = known[memory]
                constants[name] = np.array(as_numpy(held)) if as_made is None else as_made
            else:
                unread[name] = np.array(as_numpy(held))
        except (RuntimeError, TypeError, NotImplementedError):
            continue
    return constants, unread


def refuse_shared(states: Mapping[str, Any], where: str, *, one: bool = True) -> None:
    """UserError where a parameter that is trained has elements in common with another tensor of
    the model: torch changes both at once, a training step would change one.  ``one``: tensors that
    have all their memory in common are one that has several names, as in a program that was
    saved."""
    for (name, held), (other, beside) in _sharing(states):
        if held is beside or not (held.requires_grad or beside.requires_grad):
            continue
        if not (one and memory_of(held) == memory_of(beside)):
            raise UserError(
                f"{name} and {other} are two tensors that share memory, which training changes",
                where, "make them one tensor (module.b = module.a), or copy one "
                "(tensor.detach().clone())",
            )  # fmt: skip


def _sharing(states: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    """The pairs of tensors that have elements in common."""
    storages: dict[int, list[tuple[str, Any]]] = {}
    for item in states.items():
        try:
            storages.setdefault(item[1].untyped_storage().data_ptr(), []).append(item)
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse, fake, no tensor
            continue
    for pointer, group in storages.items():
        for first, second in combinations(group, 2):
            if pointer and overlap(first[1], second[1]):
                yield first, second


def overlap(first: Any, second: Any) -> bool:
    """Whether two tensors have elements in common (where that takes too long to say, yes)."""
    try:
        if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
            return False
        if not (first.numel() and second.numel()):
            return False
    except (RuntimeError, NotImplementedError, AttributeError):  # sparse, fake, no tensor
        return False
    try:
        most: Any = SEARCH  # the annotation of NumPy knows two special numbers only
        return np.shares_memory(_bytes(first), _bytes(second), max_work=most)
    except np.exceptions.TooHardError:
        return True


def _bytes(held: Any) -> np.ndarray:
    """What stands for the memory of a tensor, on whatever device, and is never read."""
    size = held.element_size()
    strides = (*(size * stride for stride in held.stride()), 1)
    facts = {"data": (held.data_ptr(), True), "shape": (*held.shape, size), "strides": strides,
             "typestr": "|u1", "version": 3}  # fmt: skip
    return np.asarray(type("Memory", (), {"__array_interface__": facts})())
