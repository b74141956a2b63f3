"""``workbench train MODEL``: train it with the compiled step.

``--folder`` keeps checkpoints, from which ``--resume`` continues; ``-o FILE.run`` records the
compile and every iteration.
"""

from __future__ import annotations

import shlex
import sys
from argparse import BooleanOptionalAction
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import STOPPED, UserError
from workbench.commands import common
from workbench.commands.compile_model import counted, listed, output
from workbench.commands.printing import emit
from workbench.model.arguments import TILINGS

#: The default batch size.
BATCH = 8


def add_arguments(parser) -> None:
    from core_compiler.training.config import LEAVES, RECEIPTS
    from core_compiler.training.graph.initializers import INITIALIZERS
    from core_compiler.training.graph.losses import LOSSES
    from core_compiler.training.graph.precision import PRECISIONS
    from core_compiler.training.optimisers.optimizers import OPTIMIZERS

    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a sample (see `workbench models`), a .onnx, .keras or .pt2 file (with --data), or "
        "package.module:function, which returns a torch, Keras or ONNX model and its data: arrays "
        "with the batch axis first and the targets last, columns by name, a dataset or an iterable "
        "of rows",
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="FILE",
        help="the training data, a .npz, .npy or .safetensors (repeatable, for more columns): "
        "columns named as the model's inputs and targets, or in this order",
    )
    parser.add_argument("--iterations", type=int, default=20, help="total number (default 20)")
    parser.add_argument("--batch", type=int, default=BATCH, help=f"batch size (default {BATCH})")
    parser.add_argument(
        "--drop-last",
        action=BooleanOptionalAction,
        help="leave out the examples that are left over at the end of an epoch (default: they are "
        "a smaller batch, if the model can be compiled for it)",
    )
    parser.add_argument("--loss", metavar="NAME", help=f"one of {', '.join(LOSSES)}")
    parser.add_argument(
        "--optimizer",
        default="sgd",
        metavar="NAME",
        help=f"one of {', '.join(OPTIMIZERS)} (default sgd)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="NUMBER",
        help="the learning rate (default: tuned for samples with sgd, else torch's)",
    )
    parser.add_argument(
        "--schedule",
        action="append",
        default=[],
        metavar="NAME:FIELD=NUMBER,...",
        help="learning-rate schedule: step:every=N,gamma=G, exponential:gamma=G, "
        "linear:iterations=N,last=F, cosine:iterations=N,least=R; "
        "warmup:iterations=N precedes another",
    )
    parser.add_argument(
        "--clip-norm", type=float, metavar="NORM", help="scale gradients down to this norm"
    )
    parser.add_argument(
        "--precision",
        default="f32",
        metavar="NAME",
        help=f"store values in {', '.join(PRECISIONS)} (default f32)",
    )
    parser.add_argument(
        "--loss-scale",
        metavar="NUMBER",
        help="a factor for the loss, or dynamic (the default for f16)",
    )
    parser.add_argument(
        "--recompute",
        type=float,
        metavar="PART",
        help="save only this fraction of the activations, above 0 up to 1, and "
        "recompute the rest; changes no bit",
    )
    parser.add_argument(
        "--freeze",
        action="append",
        default=[],
        metavar="NAME",
        help="do not train these parameters (* matches anything)",
    )
    parser.add_argument(
        "--initialize",
        action="append",
        default=[],
        metavar="PATTERN=NAME",
        help=f"initial values of parameters (* matches anything): {', '.join(INITIALIZERS)}",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of data order, dropout, weights")
    parser.add_argument("--width", type=float, help="scale the channels or features of a sample")
    parser.add_argument("--depth", type=int, help="number of blocks or layers of a sample")
    parser.add_argument(
        "--size",
        "--shape",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another size of a sample (image=64, sequence=32)",
    )
    parser.add_argument("-t", "--target", default="cpu", help="what to train on (default cpu)")
    parser.add_argument("--threads", type=int, default=0, help="threads (0: all); changes no bit")
    parser.add_argument(
        "--tiling", default="default", choices=TILINGS, help="how loops are tiled; changes no bit"
    )
    common.add_pipeline(parser)
    parser.add_argument(
        "--shards",
        type=int,
        default=1,
        metavar="S",
        help="equal parts of each batch; the result depends on their number (default 1)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="W",
        help="processes that share the shards; changes no bit",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="use the workers of a dask scheduler, also on other machines",
    )
    parser.add_argument(
        "--own-batch-norm", action="store_true", help="each shard normalises by its own statistics"
    )
    parser.add_argument("--folder", metavar="DIR", help="folder for checkpoints")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.run",
        help="record the compile and every iteration; `workbench open FILE.run` "
        "shows it, also during training",
    )
    parser.add_argument(
        "--every",
        type=int,
        default=0,
        metavar="N",
        help="also write a checkpoint every N iterations",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue from the newest checkpoint in --folder"
    )
    parser.add_argument(
        "--receipts",
        default="off",
        choices=RECEIPTS,
        help="what to hash in every iteration, in --folder",
    )
    parser.add_argument(
        "--leaves",
        default="fast",
        choices=LEAVES,
        help="the hash: fast finds accidents, sha256 is for audits",
    )
    parser.add_argument(
        "--ops-every",
        type=int,
        default=0,
        metavar="K",
        help="in every K-th iteration, hash every value in memory",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check every rewrite of the compile on the first batch, gradients "
        "against numerical derivatives; if one fails, do not train",
    )
    parser.add_argument(
        "--against",
        metavar="NAME",
        choices=("torch",),
        help="torch: train --iterations in torch too, on the same batches, and "
        "compare losses, gradients and parameters; saves nothing",
    )
    parser.add_argument(
        "--inject",
        metavar="OP:ITERATION",
        help="flip one element's last bit in an op's result, once",
    )


def run(arguments) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:
        error = _stopped(arguments, stop)
        if error is None:
            raise
        raise error from None


def _run(arguments) -> int:
    from core_compiler.training.fit import fit
    from core_compiler.training.optimisers.loss_scale import SCALE, SKIPPED
    from core_compiler.training.run.plan import check_worker_count
    from workbench.commands import training_checks
    from workbench.training import runs

    if arguments.every < 0:
        raise UserError(
            f"expected 1 or more, got {arguments.every}",
            "--every",
            "pass 1 or more, or leave it out",
        )
    if arguments.workers < 1:
        raise UserError(
            f"expected 1 or more, got {arguments.workers}", "--workers", "pass 1 or more"
        )
    check_worker_count(arguments.shards, arguments.workers)
    if arguments.against:
        return training_checks.run(arguments)
    if (arguments.every or arguments.resume) and not arguments.folder:
        raise UserError("missing folder for checkpoints", "train", "pass --folder DIR")
    path = output(arguments.output) if arguments.output else None
    plan = runs.plan(arguments)
    plan.check_folder(arguments.resume)  # before an older recording of the name is replaced
    if arguments.resume:
        runs.check_resumed(arguments)
    resumed = path is not None and arguments.resume and path.exists()
    edit = common.pipeline_edit(arguments)
    step, data = runs.make(arguments, edit, common.progress(), finish=path is None or resumed)
    if arguments.check:
        checked = training_checks.checked(arguments, step, data, path)
        if checked["failures"]:
            emit(arguments, checked, lambda: _text(checked))
            return 1
    with nullcontext() if path is None else recorder_at(path, step, resumed) as recorder:
        history = fit(
            step,
            data,
            iterations=plan.iterations,
            batch=plan.batch,
            seed=plan.seed,
            folder=plan.folder,
            every=plan.every,
            resume=arguments.resume,
            receipts=plan.receipts,
            leaves=plan.leaves,
            ops_every=plan.ops_every,
            inject=plan.inject,
            watch=_watch(arguments),
            workers=arguments.workers,
            scheduler=arguments.scheduler,
            observer=recorder,
            drop_last=plan.drop_last,
            on_start=partial(runs.save, arguments, edit) if plan.folder else None,
        )
    seconds = sorted(history.seconds)
    found = {
        "model": arguments.model,
        "target": arguments.target,
        "first": history.first,
        "loss": history.loss,
        "digest": step.digest,
        "identity": step.identity,
        "contract": CONTRACT_VERSION,
        "seconds_per_iteration": seconds[len(seconds) // 2] if seconds else None,
        "peak_bytes": history.peak_bytes,
    }
    if history.left_out:
        found["left_out"] = history.left_out
    state = step.named_state()
    found |= {name: state[name].item() for name in (SCALE, SKIPPED) if name in state}
    if arguments.check:
        found |= {name: checked[name] for name in ("checks", "failures")}
    if path is not None:
        found["recording"] = str(path)
    emit(arguments, found, lambda: _text(found))
    return 0


def _stopped(arguments, stop: KeyboardInterrupt) -> UserError | None:
    """Return what Ctrl-C left in the folder, and how to continue; None if nothing is there."""
    from core_compiler.training.fit import Stopped
    from core_compiler.training.run import checkpoint

    last_kept = (
        max(checkpoint.list_checkpoints(Path(arguments.folder)), default=0)
        if arguments.folder
        else 0
    )
    problem = stop.problem if isinstance(stop, Stopped) else ""
    if not last_kept:
        return UserError("stopped", problem, "nothing was kept", STOPPED) if problem else None
    message = f"stopped; the run is kept up to iteration {last_kept}"
    if problem:
        message += f" (of {stop.iteration}: {problem})"  # type: ignore[attr-defined]
    if arguments.output and Path(arguments.output).exists():
        message += f", its recording is {arguments.output}"
    words = [w for w in arguments.command_line if w != "--resume"]
    fix = f"resume with: {shlex.join(['workbench', *words, '--resume'])}"
    return UserError(message, arguments.folder, fix, STOPPED)


def recorder_at(path: Path, step, resumed: bool):
    """Open a new recording, or continue the one of the run that is resumed."""
    from core_compiler.numerics import CONTRACT_VERSION
    from core_compiler.numerics.contract import need_current
    from core_compiler.record import Recorder
    from core_compiler.record.resumed import ResumedTrainingRecorder

    def accept(meta) -> None:
        version = meta.get("contract", CONTRACT_VERSION)
        need_current(version, "the recording was", str(path), "resume")

    return ResumedTrainingRecorder(path, step.identity, accept) if resumed else Recorder(path)


def _watch(arguments):
    """Return an observer that updates one line on a terminal after every iteration."""
    if not sys.stderr.isatty():
        return lambda progress: None

    def show(p) -> None:
        minutes, seconds = divmod(round(p.seconds_left), 60)
        end = "\n" if p.iteration == p.total else ""
        print(
            f"\riteration {p.iteration}/{p.total}  loss {p.loss:.5g}  {p.rate:.3g} examples/s  "
            f"{minutes}:{seconds:02d} left   ",
            end=end,
            file=sys.stderr,
            flush=True,
        )

    return show


def _text(data) -> str:
    losses = data["loss"]
    if data.get("failures"):
        return "\n".join(
            [
                f"{data['model']} on {data['target']}: not trained",
                counted(data["checks"]),
                *listed(data["failures"]),
            ]
        )
    done = f"iterations {data['first'] + 1} to {data['first'] + len(losses)}" if losses else "none"
    lines = [f"{data['model']} on {data['target']}: {done}"]
    if losses:
        lines.append(
            f"loss     {losses[0]:.6g} to {losses[-1]:.6g}, "
            f"{data['seconds_per_iteration']:.3g} s an iteration"
        )
    if data.get("left_out"):
        lines.append(f"left out {data['left_out']}")
    if data.get("skipped_updates"):
        lines.append(
            f"skipped  {data['skipped_updates']} updates in all, because of non-finite gradients"
        )
    if "checks" in data:
        lines += [counted(data["checks"]), *listed(data["failures"])]
    lines += [f"digest   {data['digest']}", f"identity {data['identity']}"]
    if data.get("recording"):
        lines.append(f"recorded in {data['recording']}")
    return "\n".join(lines)
