"""The sample models beside other frameworks, measured in the same run, interleaved.

    python benchmarks/models.py [MODEL ...] [--dtype f32,bf16,int8,int8-static,int8-weights]
        [--batch 1,8] [--threads 2] [--against torch,onnxruntime] [--bound] [--memory] [--compile]
        [--without-amx] [-o FILE]
    python benchmarks/models.py --decode 32 [gpt2-decode llama-1.2b] [--dtype f32,int8-weights]
        [-o FILE]

Reports medians and least times in milliseconds and ratios of the medians (peer / ours: above 1
means that ours is faster), compile seconds cold (no kernel known) and warm (a fresh process that
finds everything in the cache), what recording adds to a warm one, the number of compiled
functions, and errors against the peers. ``bandwidth_share`` is the time to copy as many bytes as
weights, inputs and results have (at the measured rate) over our least time. What a dtype is, says
`model_variants.py`; the model llama-1.2b is 16 tokens of a prompt in bf16.

``--bound``   also ``c.bind(x)``, beside onnxruntime's ``run_with_iobinding``.
``--memory``  also the memory of a process that executes it, ours and torch's (Linux).
``--decode``  tokens one after another instead, as ``workbench run --tokens`` makes them.

Results are added to those in FILE, by model, dtype and batch. Absolute times of a shared machine
are worth little; read the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import decode, without_amx  # noqa: E402
from benchmarks.model_variants import Variant, bandwidth_share, variant  # noqa: E402

MODELS = (
    "resnet50",
    "bert-base",
    "gpt2",
    "gpt2-decode",
    "vit-b16",
    "llama-4l",
    "resnet18",
    "mobilenet-v2",
    "digits-cnn",
    "digits-mlp",
)
DECODERS = ("gpt2-decode", "llama-1.2b")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="most seconds to time a row")
    parser.add_argument("--against", default="torch,onnxruntime,ours f32,onnxruntime QDQ")
    parser.add_argument("--dtype", default="f32", help="separated by commas")
    parser.add_argument("--batch", default="1", help="separated by commas")
    parser.add_argument("--bound", action="store_true", help="also calls of bound arrays")
    parser.add_argument("--memory", action="store_true", help="also the memory of a process")
    parser.add_argument("--compile", action="store_true", help="also time cold and warm compiles")
    parser.add_argument("--decode", type=int, default=0, metavar="N", help="generate N tokens")
    parser.add_argument("--without-amx", action="store_true", help="refuse AMX's tiles to all")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if arguments.without_amx:
        without_amx.refuse()
    what = "decode" if arguments.decode else "models"
    rows = []
    for row in decode_rows(arguments) if arguments.decode else model_rows(arguments):
        rows.append(row)
        print(json.dumps(row), flush=True)
        if arguments.output:
            write_rows(arguments.output, what, rows, arguments.threads)


def model_rows(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each model, dtype and batch that there is."""
    for dtype in arguments.dtype.split(","):
        for batch in map(int, arguments.batch.split(",")):
            for name in arguments.models or MODELS:
                found = variant(name, dtype, batch)
                if found is None:
                    continue
                row = {"model": name, "dtype": dtype, "batch": batch}
                row |= execute(found, arguments)
                if arguments.memory:
                    contenders = ["ours", *(p for p in found.peers if p == "torch")]
                    case = name, dtype, str(batch), str(arguments.threads)
                    row["memory"] = {who: measured_memory(*case, who) for who in contenders}
                if arguments.compile and (dtype, batch) == ("f32", 1):
                    row.update(compile_times(name))
                yield row


def decode_rows(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each model that takes keys and values of earlier tokens."""
    against = arguments.against.split(",")
    for dtype, name in product(arguments.dtype.split(","), arguments.models or DECODERS):
        row = decode.measured(name, arguments.decode, arguments.threads, against, dtype)
        if arguments.memory:
            case = name, dtype, "1", str(arguments.threads)
            row["memory"] = {
                who: measured_memory(*case, who, "decode") for who in ("ours", "torch")
            }
        yield row


def write_rows(path: Path, what: str, rows: Sequence[dict[str, Any]], threads: int) -> None:
    """Add rows to a file, in the place of those of the same model, dtype and batch."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    by_key = {_key(row): row for row in (*kept.get(what, ()), *rows)}
    kept |= {"machine": machine(threads), what: list(by_key.values())}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def _key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["model"], row.get("dtype", "f32"), row.get("batch", 1)


def execute(found: Variant, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times and errors of one model, ours and the peers in turns."""
    from core_compiler.debug.metric import farthest
    from core_compiler.numerics.reference.digest import digest
    from core_compiler.runtime.budget import TimeBudget
    from core_compiler.runtime.peers import compare

    threads = arguments.threads
    started = time.perf_counter()
    made = found.compile(threads)
    compile_s = time.perf_counter() - started
    ours = made(*found.inputs)
    runs, errors = {}, {}
    for framework in arguments.against.split(","):
        if framework not in found.peers:
            continue
        run = found.peers[framework](threads)
        errors[framework] = farthest(zip(run(*found.inputs), ours, strict=True))[1].relative
        runs[framework] = lambda run=run: run(*found.inputs)
    if arguments.bound:
        runs["bound"] = made.bind(*found.inputs)
        if "onnxruntime" in runs and found.onnx is not None:
            runs["onnxruntime bound"] = io_bound(found.onnx(), found.inputs, threads)
    compared = compare(lambda: made(*found.inputs), runs, budget=TimeBudget(arguments.seconds))
    least = compared.ours.min_us / 1e3
    program = made.facts["program"][0]
    return {
        **compared.to_json(),
        "ours_least_ms": least,
        "peers_least": {name: t.min_us / 1e3 for name, t in compared.peers.items()},
        "rounds": compared.rounds,
        "errors": errors,
        "compile_s": compile_s,
        "digest": digest(ours),
        "identity": made.identity,
        "functions": len(made.facts["compiled"]),
        "launches": len(program.launches),
        "arena_bytes": made.facts["plan"].peak,
        "arena_bound": made.facts["plan"].lower_bound,
        **bandwidth_share(program, least / 1e3, threads),
    }


def io_bound(path: Path, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
    """onnxruntime's session with inputs and results in arrays of its own, bound once."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    binding, value = session.io_binding(), onnxruntime.OrtValue.ortvalue_from_numpy
    given = dict(zip((i.name for i in session.get_inputs()), inputs, strict=True))
    for name, array in given.items():
        binding.bind_ortvalue_input(name, value(array))
    for wanted, array in zip(session.get_outputs(), session.run(None, given), strict=True):
        binding.bind_ortvalue_output(wanted.name, value(np.asarray(array)))
    return lambda: session.run_with_iobinding(binding)


def measured_memory(*case: str) -> dict[str, Any]:
    """Bytes of a fresh process that executes a model; see `process_memory.py`."""
    command = [sys.executable, str(Path(__file__).with_name("process_memory.py")), *case]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compile_times(name: str, pairs: int = 9) -> dict:
    """Seconds of whole processes: cold from an empty cache, then warm with and without recording,
    in turns; ``recording`` is the median of what recording added, per second without it."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COMPILER_WORKBENCH_CACHE": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second run finds bytecode
        run = str(Path(folder) / "x.run")
        plain = [sys.executable, "-m", "workbench.commands.cli", "compile", name, "--json"]
        command = [*plain, "-o", run]
        cold = _seconds(command, environment)
        size = Path(run).stat().st_size
        _seconds(command, environment)
        taken = [
            (_seconds(command, environment), _seconds(plain, environment)) for _ in range(pairs)
        ]
    warm, unrecorded = np.median(taken, axis=0).tolist()
    added = float(np.median([on - off for on, off in taken])) / unrecorded
    return {
        "cold_s": cold,
        "warm_s": warm,
        "unrecorded_s": unrecorded,
        "recording": added,
        "recording_bytes": size,
    }


def _seconds(command: list[str], environment: dict) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def machine(threads: int) -> dict:
    """What the figures were taken on."""
    from importlib.metadata import version

    from core_compiler.hardware.host import detect

    host = detect()
    return {
        "processor": f"{host.model or platform.processor()} ({host.llvm_name})",
        "vector_bits": 8 * host.vector_bytes,
        "threads": threads,
        **({"amx": "refused"} if without_amx.is_refused() else {}),
        "python": platform.python_version(),
        "versions": {n: version(n) for n in ("torch", "onnxruntime", "numba", "llvmlite", "numpy")},
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
