"""Tokens one after another, for ``benchmarks/models.py --decode``: ours beside the peers.

Each contender generates the same tokens (those that ours chooses), in turns. The keys and values
that a call returns are the inputs of the next, so that each call has other sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.model_variants import LARGE, Function, bandwidth_share, built, with_int8_weights

#: Rounds in turns, and calls of each generation that are not counted.
ROUNDS, FIRST = 3, 4


class Forced:
    """The tokens of an earlier generation, whatever the logits are."""

    def __init__(self, tokens: Sequence[int]):
        self.tokens = tokens

    def choose(self, logits: np.ndarray, number: int) -> int:
        return self.tokens[number]


def dtype_of(name: str, dtype: str) -> str:
    """The dtype of a model's row: ``dtype``, or its own where that is f32."""
    return "bf16" if name in LARGE and dtype == "f32" else dtype


def compiled(name: str, threads: int, dtype: str = "f32") -> tuple[Any, Any, Sequence[np.ndarray]]:
    """The compiled step for any number of tokens before it, its torch module, first inputs."""
    import core_compiler as cc
    from core_compiler.frontends.pytorch.tensors import to_numpy
    from sample_models.catalogue import Built
    from sample_models.export import exported

    module, inputs = built(name, 1, decode=True)
    if dtype == "int8-weights":
        module = with_int8_weights(module)
    names = module.input_names, module.output_names
    program = exported(Built(module, tuple(inputs), *names, lambda seed: ()), growing=True)
    return cc.compile(program, inputs, threads=threads), module, [to_numpy(t) for t in inputs]


def measured(
    name: str, count: int, threads: int, against: Sequence[str], dtype: str = "f32"
) -> dict[str, Any]:
    """Times of calls and tokens per second of one model, ours and the peers."""
    from core_compiler.driver.generate import Parts, generate
    from core_compiler.runtime.peers import PAUSE

    made, module, inputs = compiled(name, threads, dtype)
    parts = Parts.of(*made.names, inputs)
    began = list(generate(made, parts, inputs, count))  # programs for these sizes are made here
    forced = Forced([i for token in began for i in token.ids])
    contenders: dict[str, Function] = {"": made}
    contenders |= {
        p: call for p in against if (call := peer(name, p, module, threads, dtype)) is not None
    }
    times: dict[str, list[float]] = {p: [] for p in contenders}
    errors: dict[str, float] = {}
    for _ in range(ROUNDS):
        for which, call in contenders.items():
            time.sleep(PAUSE)
            tokens = list(generate(call, parts, inputs, count, forced))
            times[which] += [1e3 * t.seconds for t in tokens[FIRST:]]
            if which:
                errors[which] = max(map(relative, tokens, began))
    ours = times.pop("")
    program = made.facts["program"][0]
    hows = [each.how for each in made.other_sizes.rebinds]
    return {
        "model": name,
        "dtype": dtype_of(name, dtype),
        "batch": 1,
        "tokens": count,
        "before": inputs[1].shape[3],
        "ours_ms": median(ours),
        "ours_least_ms": min(ours),
        "ours_first_ms": median(1e3 * t.seconds for t in began[FIRST:]),
        "tokens_per_s": 1e3 / median(ours),
        "peers": {p: median(each) for p, each in times.items()},
        "peers_least": {p: min(each) for p, each in times.items()},
        "ratios": {p: median(each) / median(ours) for p, each in times.items()},
        "errors": errors,
        "programs": {how: hows.count(how) for how in dict.fromkeys(hows)},
        **bandwidth_share(program, min(ours) / 1e3, threads),
    }


def peer(
    name: str, framework: str, module: Any, threads: int, dtype: str = "f32"
) -> Callable | None:
    """The same step in a framework; None if it cannot execute it (bf16 in onnxruntime)."""
    from sample_models.export import export_onnx
    from workbench.model import peers

    if framework == "torch":
        return peers.torch_function(module, threads, name)
    if dtype_of(name, dtype) != "f32":
        return None
    return peers.onnxruntime_function(export_onnx(name, growing=True), threads, name)


def relative(one: Any, other: Any) -> float:
    """The largest difference of the logits of two calls, relative to the largest logit."""
    scale = float(np.abs(other.logits).max()) or 1.0
    return float(np.abs(one.logits - other.logits).max()) / scale
