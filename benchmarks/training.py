"""Training steps: torch's losses and times beside ours, the same bits in all ways, what receipts
and recomputation cost.

    python benchmarks/training.py WHAT [MODEL ...] [-o FILE]

``curves``     20 iterations of each model beside torch eager on the same data, dropout 0, in turns:
               the largest relative difference of a loss, median seconds and their ratio.
``bits``       the digest of a run over threads, tilings, workers, and one that was killed.
``targets``    the digest of a run on the CPU and, where this machine has one, on a GPU.
``receipts``   seconds of iterations with receipts of loss, gradients and state, and of a step that
               keeps no gradients without.
``recompute``  GPT-2 small with ``recompute`` and without: bytes, seconds, predicted and measured.
``frameworks`` the digits CNN as Keras 3 and as ONNX beside its own framework (`frameworks.py`).

Times of a shared machine are worth little; read the ratios, which are of one process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from benchmarks.models import ROOT, machine
from core_compiler.runtime.peers import PAUSE

#: Model -> examples of a batch, further sizes, learning rate.
MODELS: Mapping[str, tuple[int, dict[str, int], float]] = {
    "resnet18": (8, {}, 0.001),
    "gpt2": (4, {"sequence": 64}, 0.01),
    "vit-b16": (4, {}, 0.01),
    "llama-4l": (4, {"sequence": 64}, 0.01),
}
ITERATIONS, SHARDS = 20, 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--part", type=float, default=0.35, help="of recompute")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    kept = arguments.output and _read_results(arguments.output).get(arguments.what)
    arguments.kept = {row["model"]: row for row in kept or ()}
    for row in WHAT[arguments.what](arguments):
        arguments.kept[row["model"]] = row
        print(json.dumps(row), flush=True)
        if arguments.output:
            _write_results(arguments.output, arguments.what, list(arguments.kept.values()))


def _read_results(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _write_results(path: Path, what: str, rows: list[dict]) -> None:
    results = _read_results(path) | {"machine": machine(2), what: rows}
    path.write_text(json.dumps(results, indent=1) + "\n")


def _made(name: str, **sizes: int) -> tuple[Any, Any, Any, int, float]:
    """The torch module without dropout, its data, the loss's name, batch and rate."""
    import torch

    from core_compiler.training.run.data import Data
    from sample_models.catalogue import build
    from sample_models.training import task

    batch, more, rate = MODELS[name]
    built = build(name, seed=0, **{**more, **sizes})
    found = task(name, built, 0)
    for module in built.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for key in ("attn_pdrop", "dropout", "attention_dropout", "hidden_dropout"):
            if isinstance(getattr(module, key, None), float):
                setattr(module, key, 0.0)
    return built.module, Data.of(found.arrays), found.loss, batch, rate


def _compiled(model, data, batch: int, target: str = "cpu", **training: Any):
    import core_compiler as cc
    from core_compiler.training.config import Training

    step = cc.compile(
        model, data.batch(0, batch, 0), training=Training(**training), threads=2, target=target
    )
    step.compilation.finish()
    return step


def curves(arguments):
    import torch
    from torch.nn import functional

    from core_compiler.training.optimisers import optimizers

    torch.set_num_threads(2)
    for name in arguments.models:
        model, data, loss, batch, rate = _made(name)
        began = time.perf_counter()
        step = _compiled(model, data, batch, loss=loss, optimizer=optimizers.SGD(rate, 0.9))
        compiled = time.perf_counter() - began
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)

        def theirs(given) -> float:
            *inputs, target = (torch.from_numpy(np.array(a)) for a in given)
            optimizer.zero_grad()  # noqa: B023
            out = model(*inputs)  # noqa: B023
            out = out[0] if isinstance(out, tuple) else out
            if loss == "cross_entropy":  # noqa: B023
                made = functional.cross_entropy(out.flatten(0, -2), target.flatten())
            else:
                made = functional.mse_loss(out, target)
            made.backward()
            optimizer.step()  # noqa: B023
            return made.item()

        losses, seconds = _interleave(
            {"ours": lambda given: step(*given), "torch": theirs},  # noqa: B023
            [data.batch(i, batch, 0) for i in range(arguments.iterations)],
        )
        pairs = zip(losses["ours"], losses["torch"], strict=True)
        times = {who: median(all_[1:]) for who, all_ in seconds.items()}
        yield {
            "model": name,
            "batch": batch,
            "iterations": arguments.iterations,
            "first_loss": losses["torch"][0],
            "last_loss": losses["torch"][-1],
            "worst_relative": max(abs(a - b) / abs(b) for a, b in pairs),
            "seconds": times,
            "ratio": times["ours"] / times["torch"],
            "compile_s": compiled,
            "peak_bytes": step.peak_bytes,
            "digest": step.digest,
        }


def _interleave(
    contenders: Mapping[str, Callable[[Any], float]], batches: list
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """What each returns for each batch, and its seconds: one after another, batch by batch, in an
    order that turns (who comes after whom shows otherwise: one's arrays are another's cache), after
    a pause: torch's threads wait awake for their next work, on the cores of whoever comes next."""
    made: dict[str, list[float]] = {name: [] for name in contenders}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for round_number, given in enumerate(batches):
        for name in names[round_number % len(names) :] + names[: round_number % len(names)]:
            time.sleep(PAUSE)
            began = time.perf_counter()
            made[name].append(contenders[name](given))
            seconds[name].append(time.perf_counter() - began)
    return made, seconds


def bits(arguments):
    """Every combination, four shards each.  What ``-o`` holds of a model is not run again, and each
    run is kept when it ends: all of them take 20 to 40 minutes."""
    for name in arguments.models:
        batch, sizes, rate = MODELS[name]
        common = [
            "train",
            name,
            "--iterations",
            str(arguments.iterations),
            "--batch",
            str(batch),
            "--rate",
            str(rate),
            "--shards",
            str(SHARDS),
            "--json",
            *(w for k, v in sizes.items() for w in ("--size", f"{k}={v}")),
        ]
        row = {
            "model": name,
            "batch": batch,
            "shards": SHARDS,
            "iterations": arguments.iterations,
        }
        before = arguments.kept.get(name, {})
        runs = list(before["runs"]) if before | row == before else []
        done = {_variant_of(run) for run in runs}
        for variant in itertools.product(
            (1, 2), ("default", "alternate"), (1, 2, 4), (False, True)
        ):
            if variant in done:
                continue
            threads, tiling, workers, killed = variant
            words = [*common, "--threads", str(threads), "--tiling", tiling]
            words += ["--workers", str(workers)]
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                made = _train_killed(words, Path(folder)) if killed else _train(words)
            runs.append(
                {
                    "threads": threads,
                    "tiling": tiling,
                    "workers": workers,
                    "killed": killed,
                    "digest": made["digest"],
                    "last_loss": made["loss"][-1],
                    "seconds": time.perf_counter() - began,
                }
            )
            yield row | {"same": len({r["digest"] for r in runs}) == 1, "runs": runs}


def _variant_of(run: Mapping[str, Any]) -> tuple[int, str, int, bool]:
    return run["threads"], run["tiling"], run["workers"], run["killed"]


_COMMAND = [
    sys.executable,
    "-c",
    "import sys; from workbench.commands.cli import main; sys.exit(main())",
]


def _train(words: list[str]) -> dict:
    done = subprocess.run([*_COMMAND, *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _train_killed(words: list[str], folder: Path) -> dict:
    """A run that is killed once its tenth iteration is kept, and then goes on from there."""
    words = [*words, "--folder", str(folder), "--every", "10"]
    first = subprocess.Popen(
        [*_COMMAND, *words],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while first.poll() is None and not list(folder.glob("*10.safetensors")):
        time.sleep(0.05)
    first.kill()
    if first.wait() == 0:
        raise RuntimeError("the run had ended before it was killed: give it more iterations")
    return _train([*words, "--resume"])


def targets(arguments):
    from core_compiler.targets import target
    from core_compiler.training.optimisers import optimizers

    for name in arguments.models:
        model, data, loss, batch, rate = _made(name)
        runs = []
        for where in ("cpu", "cuda"):
            missing = target(where).available()
            if missing:
                runs.append({"target": where, "not_run": missing})
                continue
            how = {"loss": loss, "optimizer": optimizers.SGD(rate, 0.9)}
            step = _compiled(model, data, batch, where, **how)
            losses, seconds = _interleave(
                {where: lambda given: step(*given)},  # noqa: B023
                [data.batch(i, batch, 0) for i in range(arguments.iterations)],
            )
            runs.append(
                {
                    "target": where,
                    "device": _device(step, where),
                    "digest": step.digest,
                    "last_loss": losses[where][-1],
                    "seconds": median(seconds[where][1:]),
                }
            )
        digests = [r["digest"] for r in runs if "digest" in r]
        yield {
            "model": name,
            "batch": batch,
            "iterations": arguments.iterations,
            "runs": runs,
            "same": len(set(digests)) == 1 if len(digests) > 1 else None,
        }


def _device(step, where: str) -> str:
    if where == "cpu":
        return machine(2)["processor"]
    from benchmarks.gpu_recordings import device_of

    return device_of(step.compilation)["name"]


def receipts(arguments):
    from core_compiler.training.audit.receipts import Recorder
    from core_compiler.training.optimisers import optimizers

    for name in arguments.models:
        model, data, loss, batch, rate = _made(name)
        how = {"loss": loss, "optimizer": optimizers.SGD(rate, 0.9)}
        plain = _compiled(model, data, batch, **how)
        step = _compiled(model, data, batch, keep_gradients=True, **how)
        recorder = Recorder(step.probes, "gradients", 0)
        whole = Recorder(step.probes, "gradients", 1)

        def step_with_receipt(given, by) -> float:
            number = step.iteration + 1  # noqa: B023
            step.watch = by.watch(number)  # noqa: B023
            made = step(*given)  # noqa: B023
            step.watch = None  # noqa: B023
            by.receipt(number, made, step)  # noqa: B023
            return made

        _, seconds = _interleave(
            {
                "off": lambda given: plain(*given),  # noqa: B023
                "kept": lambda given: step(*given),  # noqa: B023
                "gradients": lambda given: step_with_receipt(given, recorder),  # noqa: B023
                "ops": lambda given: step_with_receipt(given, whole),  # noqa: B023
            },
            [data.batch(i, batch, 0) for i in range(arguments.iterations)],
        )
        times = {who: median(all_[1:]) for who, all_ in seconds.items()}
        # Batch by batch: a machine that slows down for a minute does so for all four.
        costs = {
            who: [a / b - 1 for a, b in zip(all_[1:], seconds["off"][1:], strict=True)]
            for who, all_ in seconds.items()
            if who != "off"
        }
        yield {
            "model": name,
            "batch": batch,
            "iterations": arguments.iterations,
            "seconds": times,
            "gradients": len(recorder.gradients),
            **{f"{who}_cost": median(all_) for who, all_ in costs.items()},
            "quartiles": {who: quantiles(all_)[::2] for who, all_ in costs.items()},
        }


def recompute(arguments):
    from core_compiler.placement.recompute import measure
    from core_compiler.training.optimisers import optimizers
    from core_compiler.training.passes.recompute import FACT, recompute_problem

    model, data, loss, batch, rate = _made("gpt2", sequence=256)
    how = {"loss": loss, "optimizer": optimizers.SGD(rate, 0.9)}
    steps = {
        "all kept": _compiled(model, data, batch, **how),
        "recompute": _compiled(model, data, batch, recompute=arguments.part, **how),
    }
    # Both have compiled: a first iteration loads the program, which is all that grows.
    starts = {name: step.whole_state() for name, step in steps.items()}
    given = data.batch(0, batch, 0)
    grown = {name: _grown(lambda step=step: step(*given)) for name, step in steps.items()}
    for name, step in steps.items():
        step.load_state_dict(starts[name])
    losses, seconds = _interleave(
        {name: (lambda given, step=step: step(*given)) for name, step in steps.items()},
        [data.batch(i, batch, 0) for i in range(arguments.iterations)],
    )
    times = {who: median(all_[1:]) for who, all_ in seconds.items()}
    choice = steps["recompute"].compilation.facts[FACT]
    arenas = {n: s.compilation.facts["program"][0].arena_bytes for n, s in steps.items()}
    work = sum(s.cost for s in recompute_problem(_ordered(steps["recompute"]))[1].steps)
    plain = measure(recompute_problem(_ordered(steps["all kept"]))[1], frozenset())
    yield {
        "model": "gpt2",
        "batch": batch,
        "sequence": 256,
        "part": arguments.part,
        "saved_bytes": {"all kept": choice.baseline.saved, "recompute": choice.plan.saved},
        "held_bytes": {"all kept": choice.baseline.held, "recompute": choice.plan.held},
        "saved_part": choice.plan.saved / choice.baseline.saved,
        "predicted_peak": {"all kept": plain.peak, "recompute": choice.plan.peak},
        "arena_bytes": arenas,
        "resident_growth": grown,
        "resident_by_predicted": grown["recompute"] / choice.plan.peak,
        "peak_bytes": {name: step.peak_bytes for name, step in steps.items()},
        "predicted_extra": choice.plan.extra / work,
        "bound": choice.bound / work,
        "launches_again": len(choice.plan.again),
        "seconds": times,
        "measured_extra": times["recompute"] / times["all kept"] - 1,
        "same_losses": losses["all kept"] == losses["recompute"],
        "same_digest": len({s.digest for s in steps.values()}) == 1,
    }


def frameworks(arguments):
    from benchmarks.frameworks import rows

    yield from rows(arguments.iterations)


def _grown(call) -> int:
    """Bytes by which this process's resident memory grows while ``call`` runs, at its highest
    (Linux: ``VmHWM``, set back before)."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", text)[1])


def _ordered(step):
    stages = step.compilation.stages
    return next(s for s in stages if s.step and s.step.label == "order_launches").module.main


WHAT = {
    "curves": curves,
    "bits": bits,
    "targets": targets,
    "receipts": receipts,
    "recompute": recompute,
    "frameworks": frameworks,
}


if __name__ == "__main__":
    main()
