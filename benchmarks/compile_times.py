"""Cold compile times: single-layer models of every kind, and whole models.

    python benchmarks/compile_times.py [PATTERN ...] [--threads 2] [--rounds 1] [-o FILE]

Each case whose name contains one of the patterns is compiled by a fresh process with an empty
cache. That process imports torch and the compiler, builds the model, then times ``cc.compile``
alone. Bytecode is there, as after an installation: the first process writes it and is not counted.
The table is worst first: seconds of ``cc.compile`` (the least of the rounds) and its budget; of
these, the code (kernels and linking), the other passes, and the rest (the import of the model and
of modules that are imported on demand, verification); the seconds of the whole process; the number
of kernels, the sum of their own seconds and the longest; peak memory of the process and of its
largest compile worker. On a busy machine, read the processor time, of all processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: The most seconds that a compile may take on two cores.
LAYER_BUDGET, MODEL_BUDGET = 5.0, 15.0
MODELS = ("resnet50", "bert-base", "gpt2")
_SCRIPT = f"import sys; sys.path[:0] = {[str(ROOT), str(Path(__file__).parent)]!r}; "


class Layer(NamedTuple):
    """A single-layer model: ``make(torch)`` returns a module or a function of tensors.

    ``inputs`` are shapes, or (shape, dtype, numbers below) of a fixed dtype.
    """

    make: Callable[[Any], Any]
    inputs: tuple
    dtype: str = "f32"


IMAGE, ROWS, STEPS = (1, 16, 28, 28), (64, 256), (16, 4, 64)


def layers() -> dict[str, Layer]:
    """Return the single-layer models by name."""
    made = {
        "linear": Layer(lambda t: t.nn.Linear(256, 512), (ROWS,)),
        "conv1d": Layer(lambda t: t.nn.Conv1d(16, 32, 3, padding=1), ((1, 16, 200),)),
        "conv2d": Layer(lambda t: t.nn.Conv2d(16, 32, 3, padding=1), (IMAGE,)),
        "conv2d stride 2": Layer(lambda t: t.nn.Conv2d(16, 32, 3, 2, 1), (IMAGE,)),
        "conv3d": Layer(lambda t: t.nn.Conv3d(8, 16, 3, padding=1), ((1, 8, 12, 12, 12),)),
        "depthwise": Layer(lambda t: t.nn.Conv2d(16, 16, 3, padding=1, groups=16), (IMAGE,)),
        "transposed convolution": Layer(lambda t: t.nn.ConvTranspose2d(16, 32, 4, 2, 1), (IMAGE,)),
        "LSTM": Layer(lambda t: t.nn.LSTM(64, 128), (STEPS,)),
        "GRU": Layer(lambda t: t.nn.GRU(64, 128), (STEPS,)),
        "RNN": Layer(lambda t: t.nn.RNN(64, 128), (STEPS,)),
        "multihead attention": Layer(_attention, ((1, 64, 128),)),
        "transformer encoder layer": Layer(
            lambda t: t.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), ((1, 64, 128),)
        ),
        "layer norm": Layer(lambda t: t.nn.LayerNorm(256), (ROWS,)),
        "group norm": Layer(lambda t: t.nn.GroupNorm(4, 16), (IMAGE,)),
        "batch norm": Layer(lambda t: t.nn.BatchNorm2d(16), (IMAGE,)),
        "softmax": Layer(lambda t: t.nn.Softmax(-1), (ROWS,)),
        "gelu": Layer(lambda t: t.nn.GELU(), (ROWS,)),
        "embedding": Layer(lambda t: t.nn.Embedding(1000, 256), (((1, 64), "i64", 1000),)),
        "max pool": Layer(lambda t: t.nn.MaxPool2d(3, 2, 1), (IMAGE,)),
        "average pool": Layer(lambda t: t.nn.AvgPool2d(3, 2, 1), (IMAGE,)),
        "adaptive average pool": Layer(lambda t: t.nn.AdaptiveAvgPool2d(5), (IMAGE,)),
        "bilinear": Layer(lambda t: partial(_resize, t, "bilinear"), (IMAGE,)),
        "bicubic": Layer(lambda t: partial(_resize, t, "bicubic"), (IMAGE,)),
        "sort": Layer(lambda t: lambda x: t.sort(x), (ROWS,)),
        "topk": Layer(lambda t: lambda x: t.topk(x, 5), (ROWS,)),
        "cumsum": Layer(lambda t: lambda x: t.cumsum(x, -1), (ROWS,)),
        "argmax": Layer(lambda t: lambda x: t.argmax(x, -1), (ROWS,)),
        "cross entropy": Layer(
            lambda t: t.nn.functional.cross_entropy, (ROWS, ((64,), "i64", 256))
        ),
        "grid_sample": Layer(
            lambda t: lambda x, g: t.nn.functional.grid_sample(x, g, align_corners=False),
            (IMAGE, (1, 20, 20, 2)),
        ),
        "cdist": Layer(lambda t: t.cdist, (ROWS, ROWS)),
        "matmul i8": Layer(lambda t: t._int_mm, (ROWS, (256, 128)), "i8"),
    }
    for name in ("linear", "conv2d", "LSTM", "multihead attention", "layer norm", "softmax"):
        made[f"{name} bf16"] = made[name]._replace(dtype="bf16")
    for name in ("sort", "argmax", "cumsum"):
        made[f"{name} i8"] = made[name]._replace(dtype="i8")
    return made


def _attention(torch: Any) -> Any:
    class SelfAttention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = torch.nn.MultiheadAttention(128, 4, batch_first=True)

        def forward(self, x):
            return self.heads(x, x, x, need_weights=False)[0]

    return SelfAttention()


def _resize(torch: Any, mode: str, x: Any) -> Any:
    return torch.nn.functional.interpolate(x, scale_factor=2, mode=mode)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("patterns", nargs="*", default=[""])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    names = [n for n in (*MODELS, *layers()) if any(p in n for p in arguments.patterns)]
    in_process("linear", arguments.threads)  # writes bytecode
    rows = []
    for name in names:
        rounds = [in_process(name, arguments.threads) for _ in range(arguments.rounds)]
        rows.append(row := min(rounds, key=lambda r: r["compile_s"]))
        print(line(row), flush=True)
    rows.sort(key=lambda r: -r["compile_s"] / r["budget_s"])
    print("\nworst first:", *map(line, rows), sep="\n")
    if arguments.output:
        from models import machine

        made = {"machine": machine(arguments.threads), "compiles": rows}
        arguments.output.write_text(json.dumps(made, indent=1) + "\n")


def in_process(name: str, threads: int) -> dict[str, Any]:
    """Return the figures of one cold compile in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COMPILER_WORKBENCH_CACHE": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        script = f"{_SCRIPT}import compile_times; compile_times.measure({name!r}, {threads})"
        started = time.perf_counter()
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=PIPE)
        seconds = time.perf_counter() - started
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": seconds}


def measure(name: str, threads: int) -> None:
    """Compile the case ``name`` and print its figures."""
    import torch

    import core_compiler as cc

    model, inputs = built(name, torch)
    before, started = time.process_time(), time.perf_counter()
    made = cc.compile(model, inputs, threads=threads)
    seconds = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kernels = list(made.facts["compiled"].values())
    passes = {stage.name: stage.seconds for stage in made.stages}

    from core_compiler.numerics.reference.digest import digest
    from core_compiler.runtime import kernel_cache

    pool = kernel_cache._pool(None)
    workers = [_most_megabytes(worker.process.pid) for worker in pool._members]
    pool.close()
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    processor_s = sum(u.ru_utime + u.ru_stime for u in (own, children))
    row = {
        "case": name,
        "compile_s": seconds,
        "budget_s": MODEL_BUDGET if name in MODELS else LAYER_BUDGET,
        "rest_s": seconds - sum(passes.values()),
        "passes_s": sum(passes.values()) - passes["generate_code"],
        "code_s": passes["generate_code"],
        "kernels": len(kernels),
        "kernels_s": sum(k.seconds for k in kernels),
        "longest_s": max((k.seconds for k in kernels), default=0.0),
        "processor_s": processor_s - before,
        "memory_mb": memory,
        "worker_mb": max(workers, default=0.0),
        "digest": digest(made(*inputs)),
    }
    print(json.dumps(row))


def _most_megabytes(process: int) -> float:
    """Return the peak memory of a process (Linux; that of its start is not its parent's)."""
    for text in Path(f"/proc/{process}/status").read_text().splitlines():
        if text.startswith("VmHWM:"):
            return int(text.split()[1]) / 1024
    return 0.0


def built(name: str, torch: Any) -> tuple[Any, tuple]:
    """Return a case's model, seeded, and its inputs."""
    if name in MODELS:
        from sample_models import build

        model = build(name)
        return model.module, model.example_inputs
    from op_cases import DTYPES, Function, filled

    torch.manual_seed(0)
    layer = layers()[name]
    model = layer.make(torch)
    if isinstance(model, torch.nn.Module):
        model = model.to(DTYPES[layer.dtype]).eval()
    else:
        model = Function(model)
    inputs = [
        filled(*i) if isinstance(i[0], tuple) else filled(i, layer.dtype) for i in layer.inputs
    ]
    return model, tuple(inputs)


def line(row: dict[str, Any]) -> str:
    over = " over" if row["compile_s"] > row["budget_s"] else ""
    return (
        f"{row['case']:28s} {row['compile_s']:6.2f} s of {row['budget_s']:4.0f}{over:5s}  "
        f"code {row['code_s']:5.2f}  passes {row['passes_s']:5.2f}  rest {row['rest_s']:5.2f}  "
        f"processor time {row['processor_s']:6.2f}  whole process {row['process_s']:6.2f}  "
        f"kernels {row['kernels']:3d}: {row['kernels_s']:6.2f} s, longest {row['longest_s']:5.2f}  "
        f"memory {row['memory_mb']:5.0f} + {row['worker_mb']:4.0f} MB"
    )


if __name__ == "__main__":
    main()
