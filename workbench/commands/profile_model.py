"""``workbench profile MODEL``: every kernel's time, and other frameworks' in the same run."""

from __future__ import annotations

from functools import partial

import numpy as np

from core_compiler.support.errors import CANNOT_HERE, UserError
from workbench.commands import common
from workbench.commands.compile_model import output
from workbench.commands.printing import emit, number, table
from workbench.model.arguments import require_execution


def add_arguments(parser) -> None:
    common.add_model(parser)
    common.add_compile(parser)
    parser.add_argument(
        "--against", default="", metavar="NAMES", help="torch,onnxruntime,torch.compile,jax,keras"
    )
    parser.add_argument(
        "--repeats", type=int, default=20, metavar="N", help="timed runs for kernels (default 20)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=7,
        metavar="N",
        help="interleaved rounds, each with three timed runs of every contender (default 7)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.run", help="record the compile and the times"
    )


def run(arguments) -> None:
    from core_compiler.runtime.peers import PEERS, compare

    names = [n for n in arguments.against.split(",") if n]
    for name in names:
        if name not in PEERS:
            raise UserError(
                f"unknown framework {name!r}", "--against", f"choose from {', '.join(PEERS)}"
            )
    for option in ("repeats", "rounds"):
        if not 1 <= getattr(arguments, option) <= 10_000:
            raise UserError(
                f"expected 1 to 10000, got {getattr(arguments, option)}",
                f"--{option}",
                "pass a number from 1 to 10000",
            )
    seconds = common.seconds(arguments)
    path = output(arguments.output) if arguments.output else None
    options = common.options(arguments)
    require_execution(arguments.target)
    model = common.load(arguments)
    from core_compiler.runtime import profiler
    from core_compiler.runtime.budget import TimeBudget
    from core_compiler.runtime.team import default_threads
    from workbench.model import jobs

    threads = options.threads or default_threads()
    progress = common.progress(measures=True)
    try:
        # Two series of measurements share the time, or three if one is recorded.
        made = jobs.compile(
            model,
            arguments.target,
            options,
            path=path,
            observer=progress,
            execute=path is not None,
            seconds=seconds / 3,
        )
        executable = made.executable
        contenders = {n: _contender(model, n, threads, progress) for n in dict.fromkeys(names)}
        share = seconds / (2 if path is None else 3)
        tell = partial(progress.progress, "time our kernels")
        found = profiler.profile(
            executable, model.inputs, repeats=arguments.repeats, budget=TimeBudget(share, tell)
        )
        tell = partial(progress.progress, f"time {len(contenders) + 1} contenders, interleaved")
        times = compare(
            lambda: executable(*model.inputs),
            contenders,
            rounds=arguments.rounds,
            budget=TimeBudget(share, tell),
        )
    finally:
        progress.end("finished")
    data = {
        **times.to_json(),
        **found.repeats,
        "rounds": times.rounds,
        "rounds_wanted": times.rounds_wanted,
        "ended_by_budget": found.repeats["ended_by_budget"] or times.rounds < times.rounds_wanted,
        "seconds": seconds,
        "kernels": [
            {
                "name": k.name,
                "count": k.count,
                "median_us": k.median_us,
                "gflops": k.gflops,
                "gbytes_per_s": k.gbytes_per_s,
                "percent_of_limit": k.percent_of_limit,
                "total_us": k.total_us,
            }
            for k in found.kernels
        ],
        "model": model.name,
        "target": made.target.name,
        "threads": found.threads,
        "limits": {
            "gflops": found.limits.peak_flops() / 1e9,
            "gbytes_per_s": found.limits.bandwidth(1 << 30) / 1e9,
            "passed": any(found.limits.passed(k.percent_of_limit) for k in found.kernels),
        },
    }
    emit(arguments, data, lambda: _text(data))


def _contender(model, name: str, threads: int, progress):
    """Return the model in another framework as a call without arguments, warmed up once."""
    from workbench.model import peers

    progress.progress(f"prepare {name}", 0, 0)
    run = peers.peer(model, name, threads)
    inputs = [np.array(a) for a in model.inputs]  # frameworks warn about read-only arrays
    try:
        run(*inputs)
    except UserError:
        raise
    except Exception as error:  # any exception of a framework's own compiler
        reason = (str(error).strip().splitlines() or ["no reason given"])[0][:160]
        raise UserError(
            f"{name} cannot run this model ({type(error).__name__}: {reason})",
            "--against",
            f"leave {name} out",
            CANNOT_HERE,
        ) from None
    return lambda: run(*inputs)


_PASSED = (
    "kernels above the measured limit: it was measured while the machine was busy, and is measured "
    "again the next time"
)


def _text(data) -> str:
    from core_compiler.runtime.budget import describe_cutoff
    from core_compiler.runtime.samples import executed_on

    rows = [("ours", f"{data['ours_ms']:.3f}", "")]
    rows += [(n, f"{ms:.3f}", f"{data['ratios'][n]:.2f}") for n, ms in data["peers"].items()]
    total = sum(k["total_us"] for k in data["kernels"]) or 1
    kernels = [
        (
            k["name"],
            k["count"],
            number(k["median_us"], 1),
            f"{100 * k['total_us'] / total:.1f}",
            number(k["gflops"], 1),
            number(k["gbytes_per_s"], 1),
            number(k["percent_of_limit"], 1),
        )
        for k in data["kernels"]
    ]
    limits = data["limits"]
    head = ("kernel", "launches", "us", "%", "GFLOP/s", "GB/s", "% of limit")
    where = f"{data['target']}, {executed_on(data['threads'])}"
    return "\n".join(
        [
            f"{data['model']} on {where}: medians, interleaved in one run",
            table(("", "ms", "times ours"), rows, right=(1, 2)),
            "",
            table(head, kernels, right=(1, 2, 3, 4, 5, 6)),
            "this machine: {gflops:.0f} GFLOP/s, {gbytes_per_s:.1f} GB/s from memory".format(
                **limits
            ),
            *([_PASSED] if limits["passed"] else []),
            *filter(
                None,
                (
                    describe_cutoff(data["repeats"], data["repeats_wanted"], data["seconds"]),
                    describe_cutoff(
                        data["rounds"], data["rounds_wanted"], data["seconds"], "rounds"
                    ),
                ),
            ),
        ]
    )
