"""``workbench run MODEL --tokens N``: generate tokens with a language model, one call each."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.support.errors import UserError
from workbench.commands import common
from workbench.commands.compile_model import exit_code
from workbench.commands.printing import emit
from workbench.model import peers
from workbench.support import units

#: How programs for other sizes come about -> words.
_HOW = {"compiled": "compiled", "family": "of a family"}
#: Calls of a run that are not counted: programs for their sizes are made.
FIRST = 4


def add_arguments(parser) -> None:
    group = parser.add_argument_group("generation")
    group.add_argument(
        "--tokens", type=int, metavar="N", help="generate N tokens with a language model"
    )
    group.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        metavar="T",
        help="draw tokens by the probabilities of logits / T (default 0: the most likely token)",
    )
    group.add_argument(
        "--top", type=int, default=0, metavar="K", help="draw among the K most likely tokens"
    )
    group.add_argument(
        "--sampling-seed", type=int, default=0, metavar="SEED", help="seed of the draws (default 0)"
    )


def refuse_without_tokens(arguments) -> None:
    """Raise UserError for options of generation where nothing is generated."""
    for name in ("temperature", "top", "sampling_seed"):
        if getattr(arguments, name):
            option = "--" + name.replace("_", "-")
            raise UserError("no tokens are generated", option, "add --tokens N")


def run(arguments, options, path: Path | None) -> int:
    import core_compiler as cc
    from core_compiler.driver.generate import Parts, Sampling, generate

    if arguments.tokens < 1:
        raise UserError(f"expected 1 or more, got {arguments.tokens}", "--tokens", "pass 1 or more")
    if arguments.against not in (None, "torch", "onnxruntime"):
        raise UserError(
            f"{arguments.against} does not generate tokens here",
            "--against",
            "choose torch or onnxruntime",
        )
    if arguments.tolerance is not None and arguments.against is None:
        raise UserError("nothing is compared", "--tolerance", "add --against")
    sampling = Sampling(arguments.temperature, arguments.top, arguments.sampling_seed)
    spec = common.spec(arguments)
    source, inputs, their = _model(spec, arguments)
    made = cc.compile(
        source,
        inputs,
        target=arguments.target,
        threads=options.threads,
        edit=options.edit,
        options=options.target,
        pass_timeout=options.pass_timeout,
        observer=common.progress(),
        record=path,
    )
    parts = Parts.of(made.names[0], made.names[1], inputs)
    tokens = list(generate(made, parts, inputs, arguments.tokens, sampling))
    data: dict[str, Any] = {
        "model": spec.name,
        "target": made.target.name,
        "tokens": [list(token.ids) for token in tokens],
        "tokens_per_second": _rate(tokens),
        "seconds": [round(token.seconds, 6) for token in tokens],
        "rebinds": [
            {"shapes": each.shapes, "how": each.how, "seconds": round(each.seconds, 6)}
            for each in (made.other_sizes.rebinds if made.other_sizes is not None else ())
        ],
        "against": arguments.against,
        "verdict": None,
    }
    if arguments.against:
        forced = _Forced(sampling, tokens)
        call = their(options.threads)
        theirs = list(generate(call, parts, inputs, arguments.tokens, forced))
        data |= _compared(tokens, theirs, forced)
        if arguments.tolerance is not None:
            worst = data["worst_relative_error"]
            data["verdict"] = "within" if worst <= arguments.tolerance else "differs"
        else:
            judged = {data["worst_call"], arguments.tokens - 1}
            again = _Forced(sampling, tokens)
            data["verdict"] = _judged(made, call, parts, inputs, again, judged)
    emit(arguments, data, lambda: _text(data))
    return exit_code(data["verdict"]) if arguments.against else 0


class _Forced:
    """The tokens of an earlier run, whatever the logits are; what these would choose is noted."""

    def __init__(self, sampling, tokens: Sequence):
        self.sampling, self.given = sampling, [i for token in tokens for i in token.ids]
        self.chosen: list[int] = []

    def choose(self, logits: np.ndarray, number: int) -> int:
        self.chosen.append(self.sampling.choose(logits, number))
        return self.given[number]


def _model(spec, arguments) -> tuple[Any, list[np.ndarray], Callable[[int], Callable]]:
    """Return a model for :func:`compile`, its first inputs, and a function that makes the peer."""
    if spec.kind == "sample":
        from sample_models.catalogue import build
        from sample_models.export import export_onnx, exported

        built = build(spec.text, **spec.sizes)
        inputs = [tensor.numpy() for tensor in built.example_inputs]

        def file() -> Path:
            return export_onnx(spec.text, growing=True, **spec.sizes)

        def peer(threads: int) -> Callable:
            if arguments.against == "torch":
                return peers.torch_function(built.module, threads, spec.text)
            return peers.onnxruntime_function(file(), threads, spec.text)

        source = file() if spec.frontend == "onnx" else exported(built, growing=True)
        return source, inputs, peer
    model = common.load(arguments)
    if spec.kind not in ("onnx", "pt2", "keras", "stablehlo") and model.live is None:
        raise UserError(
            "cannot be called with other sizes", spec.text, "pass a sample or a model file"
        )
    own = len(model.inputs) - len(model.imported.state)
    source = model.live if model.live is not None else Path(spec.text)
    return (
        source,
        [np.array(a) for a in model.inputs[:own]],
        lambda threads: peers.peer(model, arguments.against, threads),
    )


def _rate(tokens: Sequence) -> float:
    """Return tokens per second of one row: the median, without the first calls."""
    counted = [t.seconds for t in tokens[FIRST:]] or [t.seconds for t in tokens]
    return 1.0 / statistics.median(counted)


def _compared(tokens, theirs, forced: _Forced) -> dict[str, Any]:
    """Compare the logits of each call, given the same tokens before it."""
    from core_compiler.debug import metric

    distances = [
        metric.distance(other.logits, ours.logits)
        for ours, other in zip(tokens, theirs, strict=True)
    ]
    worst = max(range(len(distances)), key=lambda call: distances[call].relative)
    return {
        "worst_relative_error": distances[worst].relative,
        "worst_call": worst,
        "same_choice": sum(a == b for a, b in zip(forced.given, forced.chosen, strict=True)),
        "choices": len(forced.given),
        "peer_tokens_per_second": _rate(theirs),
    }


def _judged(made, peer: Callable, parts, inputs, again: _Forced, calls: set[int]) -> str:
    """Return the verdict on all results of some calls, as ``workbench run --against`` gives it.

    The calls are made again, with the same tokens, and the peer is called with the inputs of ours.
    """
    from core_compiler.debug import verdict, whole
    from core_compiler.driver.generate import generate

    if made.other_sizes is None or made.state:
        return "not_compared"
    number, verdicts = itertools.count(), list[str]()

    def call(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        given = [np.array(array) for array in arrays]
        ours = made(*arrays)
        if next(number) in calls:
            imported = made.other_sizes.open(given)
            judged = whole.judge_results(
                imported.module,
                given,
                ours,
                peer(*given),
                lambda: [peer(*moved) for moved in whole.moved_inputs(given)],
                imported.trimmed,
            )
            verdicts.extend(each.verdict for each in judged)
        return ours

    list(generate(call, parts, inputs, max(calls) + 1, again))
    return verdict.worst(verdicts)


def _text(data: dict[str, Any]) -> str:
    first = [row[0] for row in data["tokens"]]
    lines = [
        f"{data['model']} on {data['target']}: {units.counted(len(first), 'token')}",
        " ".join(map(str, first)),
        f"{data['tokens_per_second']:.1f} tokens/s (median of the calls after the first {FIRST}); "
        + _rebinds(data["rebinds"]),
    ]
    if data["against"]:
        lines.append(
            f"{data['against']}: {data['peer_tokens_per_second']:.1f} tokens/s; logits differ by "
            f"at most {data['worst_relative_error']:.2g} (of max abs), "
            f"{data['same_choice']} of {data['choices']} choices are the same"
            f": {data['verdict']}"
        )
    return "\n".join(lines)


def _rebinds(rebinds: Sequence[dict[str, Any]]) -> str:
    by_how: dict[str, list[float]] = {}
    for each in rebinds:
        by_how.setdefault(each["how"], []).append(1e6 * each["seconds"])
    parts = []
    for how, times in by_how.items():
        median = units.duration(statistics.median(times))
        parts.append(f"{units.counted(len(times), 'size')} {_HOW[how]} (median {median})")
    return "other sizes: " + (", ".join(parts) or "none")
