"""Text from a language model, token by token: greedy, or sampled with the contract's Philox.

A model that computes logits of token ids, and perhaps keys and values that the next call takes
again (``keys`` -> ``new_keys``, ``past_key_values.0.key`` -> ``present.0.key``), is called once for
each token.  With caches each call takes one token; without, all tokens so far.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from core_compiler.numerics.reference.elementwise import apply
from core_compiler.numerics.reference.random import uniform
from core_compiler.support.errors import UserError

Call = Callable[..., Sequence[np.ndarray]]


class Chooses(Protocol):
    """The interface of a choice of the next token: :class:`Sampling`, or another."""

    def choose(self, logits: np.ndarray, number: int) -> int:
        """Return the token for ``logits`` f32[vocabulary]; ``number`` counts tokens from 0."""


#: Names of inputs that are token ids, and of those that grow with them: ones, and positions.
_IDS = ("input_ids", "ids", "tokens", "token_ids", "inputs")
_MASK, _POSITIONS = ("attention_mask",), ("position_ids", "positions", "cache_position")


@dataclass(frozen=True)
class Sampling:
    """The choice of the next token from the logits.

    ``temperature`` 0: the first of the largest.  Otherwise a token is drawn with the probabilities
    of logits / temperature, among the ``top`` largest (0: all).  The draw of token number ``n`` is
    element 0 of the contract's uniform numbers of ``seed`` and iteration ``n``.
    """

    temperature: float = 0.0
    top: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf") or self.top < 0:
            raise UserError(
                f"invalid temperature {self.temperature:g} or top {self.top}",
                "generate",
                "pass numbers of 0 or more",
            )

    def choose(self, logits: np.ndarray, number: int) -> int:
        """Return the token for ``logits`` f32[vocabulary]; ``number`` counts tokens from 0."""
        if not self.temperature:
            return int(np.argmax(logits))  # the first one
        kept = np.arange(logits.size)
        if 0 < self.top < logits.size:  # stable: of equal logits the first ones
            kept = np.sort(np.argsort(-logits, kind="stable")[: self.top])
        scaled = (logits[kept] / np.float32(self.temperature)).astype(np.float32)
        weights = apply("exp", scaled - scaled.max()).astype(np.float64)
        sums = np.cumsum(weights)  # in order, in f64: the same on every machine
        draw = float(uniform((1,), self.seed, iteration=number)[0]) * sums[-1]
        place = int(np.searchsorted(sums, draw, side="right"))
        return int(kept[min(place, kept.size - 1)])


@dataclass(frozen=True)
class Parts:
    """The parts of a language model: positions among its inputs and outputs.

    ``caches`` maps inputs to the outputs that they take in the next call; ``mask`` and
    ``positions`` are inputs, or -1.
    """

    ids: int
    logits: int
    caches: dict[int, int]
    mask: int = -1
    positions: int = -1

    @staticmethod
    def of(inputs: Sequence[str], outputs: Sequence[str], examples: Sequence[np.ndarray]) -> Parts:
        """Find the parts, by names; UserError if an input has no part in generation.

        Caches whose names do not tell are the other inputs and outputs in order, if these are as
        many.
        """
        plain = [name.rpartition("/")[2].lower() for name in inputs]
        integers = [i for i, a in enumerate(examples) if a.dtype.kind in "iu"]
        named = [i for i in integers if plain[i] in _IDS]
        rest = [i for i in integers if plain[i] not in (*_MASK, *_POSITIONS)]
        if not (named or len(rest) == 1):
            raise UserError(
                f"no input is token ids among {', '.join(inputs)}",
                "generate",
                "name an integer input input_ids",
            )
        ids = named[0] if named else rest[0]
        logits = next((i for i, n in enumerate(outputs) if "logits" in n.lower()), 0)
        by_key = {_cache_key(n): i for i, n in enumerate(outputs) if i != logits}
        caches = {
            i: by_key[_cache_key(n)]
            for i, n in enumerate(inputs)
            if i not in integers and _cache_key(n) in by_key
        }
        floats = [i for i in range(len(inputs)) if i not in integers]
        others = [i for i in range(len(outputs)) if i != logits]
        if not caches and len(floats) == len(others):
            caches = dict(zip(floats, others, strict=True))
        mask, positions = (
            next((i for i in integers if plain[i] in known), -1) for known in (_MASK, _POSITIONS)
        )
        unknown = set(range(len(inputs))) - {ids, mask, positions, *caches}
        if unknown:
            raise UserError(
                f"input {inputs[min(unknown)]} is neither token ids nor a cache",
                "generate",
                "name a cache X, and the output with its next content new_X or present of past",
            )
        return Parts(ids, logits, caches, mask, positions)


def _cache_key(name: str) -> str:
    """Return a name that a cache has as an input and as an output."""
    name = name.rpartition("/")[2].lower()
    name = re.sub(r"^(new|next|updated)[_.]|[_.](out|after|next)$|\s*\(after\)$", "", name)
    return re.sub(r"^(past_key_values|past_key_value|past|presents|present)(?=[_.]|$)", "kv", name)


@dataclass(frozen=True)
class Token:
    """A generated token (of each row of the batch), and the seconds of the call that made it."""

    ids: tuple[int, ...]
    seconds: float
    logits: np.ndarray


def generate(
    call: Call,
    parts: Parts,
    inputs: Sequence[np.ndarray],
    count: int,
    sampling: Chooses = Sampling(),
) -> Iterator[Token]:
    """Yield ``count`` tokens of ``call`` (a compilation, or another function of arrays).

    ``inputs`` are those of the first call: token ids [batch, n], caches.
    """
    arrays = [np.array(a) for a in inputs]
    for number in range(count):
        started = time.perf_counter()
        results = call(*arrays)
        seconds = time.perf_counter() - started
        logits = np.asarray(results[parts.logits], np.float32)
        last = logits[:, -1] if logits.ndim == 3 else logits.reshape(arrays[parts.ids].shape[0], -1)
        chosen = [sampling.choose(row, number * len(last) + i) for i, row in enumerate(last)]
        yield Token(tuple(chosen), seconds, last)
        ids = arrays[parts.ids]
        fresh = np.array(chosen, ids.dtype).reshape(-1, 1)
        grown = int(ids.shape[1])
        arrays[parts.ids] = fresh if parts.caches else np.concatenate([ids, fresh], axis=1)
        for source, made in parts.caches.items():
            arrays[source] = np.asarray(results[made])
        if parts.mask >= 0:
            mask = arrays[parts.mask]
            arrays[parts.mask] = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
        if parts.positions >= 0:
            held = arrays[parts.positions]
            after = held[..., -1:] + 1
            whole = parts.caches or held.shape[-1] != grown
            arrays[parts.positions] = after if whole else np.concatenate([held, after], axis=-1)
