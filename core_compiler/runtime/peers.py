"""Comparison with other systems on the same model: torch eager, torch.compile, onnxruntime.

Runs of the contenders are interleaved, so that a slowdown of the machine affects all of them.  Each
turn starts with a pause (other systems' threads spin for some milliseconds after a run, which would
be measured here) and untimed runs: after a pause caches and clocks take some time to settle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core_compiler.runtime.budget import TimeBudget
from core_compiler.runtime.profiler import Timing
from core_compiler.support.arrays import to_torch
from core_compiler.support.errors import CANNOT_HERE, UserError

#: Values of ``--against``.
PEERS = ("torch", "torch.compile", "onnxruntime")
#: Pause in seconds between two contenders.  OpenMP's threads spin for up to 0.2 s after a run: with
#: a shorter pause, the next contender shares its processors with them (4 ms instead of 0.15 in one
#: run of three).
PAUSE = 0.25
#: Seconds of untimed runs after a pause, at least one run: after 0.5 s, calls of 0.4 ms took
#: 1.7, 1.2, 1.0, ... ms, for 8 ms.
SETTLE = 0.02


@dataclass(frozen=True)
class Comparison:
    """Times of ``ours`` and of each peer; ratios above 1 mean that ours is faster."""

    ours: Timing
    peers: Mapping[str, Timing]
    #: Rounds completed, and rounds requested.
    rounds: int = 0
    rounds_wanted: int = 0

    def to_json(self) -> dict:
        """Return ``ours_ms``, ``peers`` (name to ms) and ``ratios`` (peer / ours), from medians."""
        ours = self.ours.median_us / 1e3
        peers = {name: t.median_us / 1e3 for name, t in self.peers.items()}
        return {
            "ours_ms": ours,
            "peers": peers,
            "ratios": {n: ms / ours for n, ms in peers.items()},
        }


def compare(
    ours: Callable[[], object],
    peers: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    runs: int = 3,
    warmup: int = 2,
    budget: TimeBudget | None = None,
) -> Comparison:
    """Time all contenders in ``rounds`` interleaved rounds, with ``runs`` timed runs in each.

    ``budget`` may end it after fewer rounds, and, if one run takes long, with one run in each.
    """
    contenders = {"": ours, **peers}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    budget = budget or TimeBudget()
    for run in contenders.values():
        for number in range(warmup):
            if budget.allows_warmup(number, warmup):
                run()
    done = 0
    while budget.allows_repeat(done, rounds):
        for name, run in contenders.items():
            time.sleep(PAUSE)
            round_start = time.perf_counter()
            run()
            while time.perf_counter() - round_start < SETTLE:
                run()
            for _ in range(runs):
                start = time.perf_counter_ns()
                run()
                elapsed = (time.perf_counter_ns() - start) / 1e3
                samples[name].append(elapsed)
                if elapsed / 1e6 * len(contenders) > budget.left:
                    break
        done += 1
    timings = {name: Timing(tuple(values)) for name, values in samples.items()}
    return Comparison(timings.pop(""), timings, done, rounds)


def torch_eager(model, inputs: Sequence, threads: int) -> Callable[[], object]:
    """Return ``model(*inputs)`` of a ``torch.nn.Module`` in eval mode, without gradients."""
    return _torch(model, inputs, threads)


def torch_compile(model, inputs: Sequence, threads: int) -> Callable[[], object]:
    """Return the same through ``torch.compile`` (Inductor); needs a C++ compiler."""
    import torch

    run = _torch(torch.compile(model), inputs, threads)
    try:
        run()
    except Exception as error:  # Inductor raises its compiler's exceptions
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else "no reason"
        raise UserError(
            f"torch.compile failed ({type(error).__name__}: {reason})",
            "peer",
            "install a C++ compiler, or remove it from --against",
            CANNOT_HERE,
        ) from None
    return run


def onnxruntime(
    path: Path | str,
    inputs: Mapping[str, np.ndarray],
    threads: int,
    outputs: Sequence[str] | None = None,
) -> Callable[[], object]:
    """Return an ONNX file in onnxruntime's CPU provider with all its optimisations."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise _absent("onnxruntime") from None
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(outputs, dict(inputs))


def _torch(model, inputs: Sequence, threads: int) -> Callable[[], object]:
    try:
        import torch
    except ImportError:
        raise _absent("torch") from None
    tensors = [x if isinstance(x, torch.Tensor) else to_torch(np.array(x)) for x in inputs]

    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            return model(*tensors)

    return run


def _absent(package: str) -> UserError:
    return UserError(f"{package} is not installed", "peer", f"pip install {package}", CANNOT_HERE)
