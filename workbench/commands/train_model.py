"""``workbench train MODEL``: train it with the compiled step; ``--folder`` keeps checkpoints, from
which ``--resume`` goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from core_compiler.errors import UserError, nearest
from workbench.commands import common
from workbench.commands.printing import emit

#: ``--tiling``: how loops are cut; the bits do not depend on it.
TILINGS = {"default": "default", "alternate": "small"}
#: Examples of a batch where nobody says how many.
BATCH = 8


def add_arguments(parser) -> None:
    from core_compiler.training.initializers import INITIALIZERS
    from core_compiler.training.losses import LOSSES
    from core_compiler.training.optimizers import OPTIMIZERS

    parser.add_argument(
        "model", metavar="MODEL",
        help="a sample (see `workbench models`), or package.module:function, which returns a torch "
        "module and its data: arrays with the examples first, the targets last",
    )  # fmt: skip
    parser.add_argument("--iterations", type=int, default=20, help="how many in all (default 20)")
    parser.add_argument("--batch", type=int, default=BATCH, help=f"examples (default {BATCH})")
    parser.add_argument("--loss", metavar="NAME", help=f"one of {', '.join(LOSSES)}")
    parser.add_argument("--optimizer", default="sgd", metavar="NAME",
                        help=f"one of {', '.join(OPTIMIZERS)} (default sgd)")  # fmt: skip
    parser.add_argument("--rate", type=float, metavar="NUMBER", help="the learning rate")
    parser.add_argument("--clip-norm", type=float, metavar="NORM",
                        help="scale gradients down to this norm")  # fmt: skip
    parser.add_argument("--freeze", action="append", default=[], metavar="NAME",
                        help="leave parameters as they are (* stands for anything)")  # fmt: skip
    parser.add_argument("--initialize", action="append", default=[], metavar="PATTERN=NAME",
                        help="what parameters are at first (* stands for anything): "
                        f"{', '.join(INITIALIZERS)}")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of data order, dropout and weights")
    parser.add_argument("--width", type=float, help="of a sample: channels or features, a factor")
    parser.add_argument("--depth", type=int, help="of a sample: blocks or layers")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=VALUE",
                        help="a further size of a sample (image=64, sequence=32)")  # fmt: skip
    parser.add_argument("-t", "--target", default="cpu", help="what to train on (default cpu)")
    parser.add_argument("--threads", type=int, default=0, help="threads (0: all); changes no bit")
    parser.add_argument("--tiling", default="default", choices=TILINGS,
                        help="how loops are cut; changes no bit")  # fmt: skip
    parser.add_argument("--folder", metavar="DIR", help="where checkpoints are kept")
    parser.add_argument("--every", type=int, default=0, metavar="N",
                        help="a checkpoint after every N iterations too")  # fmt: skip
    parser.add_argument("--resume", action="store_true",
                        help="go on from the newest checkpoint in --folder")  # fmt: skip


def run(arguments) -> int:
    import core_compiler as cc
    from core_compiler.training.config import Training
    from core_compiler.training.fit import fit

    if arguments.every < 0:
        raise UserError(f"--every {arguments.every}", "train", "give 1 or more, or leave it out")
    if (arguments.every or arguments.resume) and not arguments.folder:
        raise UserError("there is no folder for checkpoints", "train", "give --folder DIR")
    common.require_execution(arguments.target)
    module, loss, arrays = _task(arguments)
    training = Training(
        arguments.loss or loss, _optimizer(arguments), tuple(arguments.freeze),
        arguments.clip_norm, arguments.seed, common.pairs(arguments.initialize, "--initialize"),
    )  # fmt: skip
    threads = common.threads(arguments)
    step = cc.compile(
        module, tuple(a[: arguments.batch] for a in arrays), training=training,
        target=arguments.target, threads=threads, observer=common.progress(),
        options={"tiles": TILINGS[arguments.tiling]} if arguments.target == "cpu" else {},
    )  # fmt: skip
    history = fit(
        step, arrays, iterations=arguments.iterations, batch=arguments.batch, seed=arguments.seed,
        folder=arguments.folder, every=arguments.every, resume=arguments.resume,
        watch=_watch(arguments),
    )  # fmt: skip
    held = sum(a.nbytes for a in step.state)
    seconds = sorted(history.seconds)
    data = {
        "model": arguments.model, "target": arguments.target, "first": history.first,
        "loss": history.loss, "digest": step.digest, "identity": step.compilation.identity,
        "seconds_per_iteration": seconds[len(seconds) // 2] if seconds else None,
        "peak_bytes": held + step.compilation.executable.program.memory_bytes(max(threads, 1)),
    }  # fmt: skip
    emit(arguments, data, lambda: _text(data))
    return 0


def _optimizer(arguments) -> Any:
    from dataclasses import replace

    from core_compiler.training.optimizers import optimizer

    made = optimizer(arguments.optimizer)
    return made if arguments.rate is None else replace(made, rate=arguments.rate)  # type: ignore[type-var]


def _task(arguments) -> tuple[Any, str, tuple]:
    """The module, its loss by name, and its data."""
    from sample_models.catalogue import CATALOGUE, build
    from sample_models.training import task

    name = arguments.model
    if name in CATALOGUE:
        sizes = {k: getattr(arguments, k) for k in ("width", "depth")}
        sizes = {k: v for k, v in sizes.items() if v is not None}
        sizes |= common.pairs(arguments.size, "--size")
        built = build(name, seed=arguments.seed, **sizes)
        found = task(name, built, arguments.seed)
        return built.module, found.loss, found.arrays
    if Path(name).suffix in (".onnx", ".keras", ".pt2"):
        raise UserError("a file brings no data to train on", name, "train it from Python: "
                        "cc.compile(path, (x, y), training=cc.Training(...))")  # fmt: skip
    if ":" not in name:
        fix = nearest(name, CATALOGUE, f"there are {', '.join(CATALOGUE)}")
        raise UserError(f"no sample model is called {name!r}", "train", fix)
    from core_compiler.training.data import Data
    from workbench import user_code

    made = user_code.call(name, {})
    if not isinstance(made, tuple) or len(made) != 2:
        raise UserError("the function returns no pair", name,
                        "return a torch module and its data")  # fmt: skip
    return made[0], "cross_entropy", Data.of(made[1]).arrays


def _watch(arguments):
    """One line on a terminal, anew after every iteration."""
    if not sys.stderr.isatty():
        return lambda progress: None

    def show(p) -> None:
        minutes, seconds = divmod(round(p.left), 60)
        end = "\n" if p.iteration == p.total else ""
        print(f"\riteration {p.iteration}/{p.total}  loss {p.loss:.5g}  {p.rate:.3g} examples/s  "
              f"{minutes}:{seconds:02d} left   ", end=end, file=sys.stderr, flush=True)  # fmt: skip

    return show


def _text(data) -> str:
    losses = data["loss"]
    done = f"iterations {data['first'] + 1} to {data['first'] + len(losses)}" if losses else "none"
    lines = [f"{data['model']} on {data['target']}: {done}"]
    if losses:
        lines.append(f"loss     {losses[0]:.6g} to {losses[-1]:.6g}, "
                     f"{data['seconds_per_iteration']:.3g} s an iteration")  # fmt: skip
    lines += [f"digest   {data['digest']}", f"identity {data['identity']}"]
    return "\n".join(lines)
