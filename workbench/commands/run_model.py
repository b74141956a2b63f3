"""``workbench run MODEL``: execute, print the digest, and compare with another framework.

``-o FILE.run`` records it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import UserError
from workbench.commands import common, generate_tokens
from workbench.commands.compile_model import exit_code, output
from workbench.commands.printing import emit
from workbench.model import peers
from workbench.model.arguments import require_execution

if TYPE_CHECKING:
    from core_compiler.debug.metric import Distance
    from core_compiler.driver.compilation import Compilation
    from core_compiler.ir import Module
    from workbench.model.models import Model


def add_arguments(parser) -> None:
    common.add_model(parser)
    common.add_compile(parser)
    parser.add_argument(
        "--against",
        metavar="NAME",
        help="compare with torch, torch.compile, onnxruntime, jax, keras or tensorflow",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="ERROR",
        help="exit code 1 if an output's error, relative to its largest value, exceeds this "
        "(default: if more than rounding differs)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.run", help="record the compile, the times, the comparison"
    )
    generate_tokens.add_arguments(parser)


def run(arguments) -> int:
    if arguments.against not in (None, *peers.PEERS):
        raise UserError(
            f"unknown framework {arguments.against!r}",
            "--against",
            f"choose from {', '.join(peers.PEERS)}",
        )
    if arguments.tolerance is not None and not arguments.tolerance >= 0:
        raise UserError(
            f"expected 0 or more, got {arguments.tolerance:g}", "--tolerance", "pass 0 or more"
        )
    path = output(arguments.output) if arguments.output else None
    options = common.options(arguments)
    require_execution(arguments.target)
    if arguments.tokens is not None:
        return generate_tokens.run(arguments, options, path)
    generate_tokens.refuse_without_tokens(arguments)
    model = common.load(arguments)
    peer = None
    if arguments.against:
        peer = peers.peer(model, arguments.against, options.threads)
    if path is None:
        ours, data = _executed(arguments, model, options, peer, common.progress())
    else:
        from core_compiler.ir.events import Observers
        from core_compiler.record import Recorder

        class Unfinished(Observers):
            """Observers that stay open after the compile, to record the comparison's result."""

            @override
            def end(self, status, message=""):
                if status != "finished":
                    super().end(status, message)

        with Recorder(path) as recorder:
            observers = Observers(common.progress(), Unfinished(recorder))
            ours, data = _executed(arguments, model, options, peer, observers, True)
            if peer is not None:
                compared = "against", "worst_relative_error", "worst_ulp", "verdict"
                results = {name: data[name] for name in compared}
                recorder.figures(results | {"other_integers": json.dumps(data["other_integers"])})
    emit(arguments, data, lambda: _text(data, ours, model))
    return 0 if peer is None else exit_code(data["verdict"])


def _executed(arguments, model, options, peer, observer, timed: bool = False):
    """Return the outputs, and the report about them."""
    from core_compiler.ir.events import Observers
    from core_compiler.numerics.reference.digest import digest
    from workbench.model import jobs
    from workbench.queries.numeric_results import FrameworkComparison

    comparison = FrameworkComparison()
    made = jobs.compile(
        model,
        arguments.target,
        options,
        observer=Observers(observer, comparison),
        execute=timed,
        against=_node_framework(model, arguments.against),
        seconds=common.seconds(arguments),
    )
    ours = made(*_writable_copies(model.inputs))
    data = {
        "model": model.name,
        "target": made.target.name,
        "worst_relative_error": None,
        "worst_ulp": None,
        "verdict": None,
        "digest": digest(ours),
        "identity": made.identity,
        "contract": CONTRACT_VERSION,
        "frontend": model.spec.frontend,
        "against": arguments.against,
        "values": comparison.result(),
        "beyond": None,
        "not_compared": 0,
        "other_integers": [],
    }
    if peer is not None:
        data |= compare(
            model,
            made,
            ours,
            peer,
            arguments.against,
            data["values"],
            arguments.tolerance,
            made.state if model.imported.state else (),
        )
    return ours, data


def _node_framework(model, against: str | None) -> str:
    """Return the framework of the nodes of a model's import if it is the one compared with.

    Otherwise returns "".
    """
    own_framework = peers.FRAMEWORK_OF_FRONTEND.get(model.spec.frontend, "")
    return own_framework if against and against.removesuffix(".compile") == own_framework else ""


def _writable_copies(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return writable copies: frameworks warn about read-only arrays."""
    return [np.array(a) for a in arrays]


def compare(
    model: Model,
    made: Compilation,
    ours: Sequence[np.ndarray],
    peer: Callable[..., Sequence[np.ndarray]],
    name: str = "the peer",
    values: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
    final_state: Sequence[np.ndarray] = (),
) -> dict[str, Any]:
    """Compare the outputs of a compiled model (``ours``) with those of ``peer``.

    ``worst_relative_error``: the largest difference of an output, relative to its largest value;
    ``worst_ulp``: in ulps, at elements of at least 1/1024 of that (None: not finite);
    ``other_integers``: outputs of integers that ties or rounding changed, which have no such
    figures; ``verdict`` (see `core_compiler.debug.verdict`), including that on the import's
    ``values`` if those were compared; ``beyond``: the first node or output that differs;
    ``not_compared``: the number of such outputs. With a ``tolerance`` that alone decides on the
    outputs. ``final_state`` is the state after the call: it is compared with the import's.
    """
    from core_compiler.debug import framework, metric, verdict, whole
    from workbench.queries import numeric_results

    theirs = peer(*_writable_copies(model.inputs))
    _need_same_form(ours, theirs, name)
    if tolerance is None:
        module = tensor_module(model, made)
        judged = whole.judge_results(
            module,
            model.inputs,
            ours,
            theirs,
            lambda: [peer(*given) for given in whole.moved_inputs(_writable_copies(model.inputs))],
            model.imported.trimmed if module is model.imported.module else list,
            _are_right(values),
        )
    else:
        judged = [verdict.by_tolerance(a, b, tolerance) for a, b in zip(theirs, ours, strict=True)]
        values = None
    integer_outputs = [p for p, a in enumerate(ours) if a.dtype.kind in "biu"]
    integers = [p for p in integer_outputs if judged[p].verdict == "within"]
    distances = [
        metric.Distance() if p in integers else j.distance
        for p, j in enumerate(judged)
        if j.verdict != "not_compared"
    ]
    beyond = values["beyond"] if values else None
    for index, found in enumerate(judged):
        if found.verdict == "differs" and beyond is None:
            output = model.imported.outputs[index]
            maker = whole.maker(model.imported.module, index)
            beyond = numeric_results.beyond(
                framework.FirstDifference(output, *framework.describe_op(maker), False, found)
            )
    verdicts = [j.verdict for j in judged]
    if final_state and tolerance is None:
        states = whole.judge_state(module, model.inputs, final_state)
        for index, found in states.items():
            if found.verdict == "differs":
                verdicts.append("differs")
                where = framework.describe_op(whole.maker(module, index))
                name = framework.result_name(module, index)
                beyond = beyond or numeric_results.beyond(
                    framework.FirstDifference(name, *where, False, found)
                )
    if values and (
        values["verdict"] == "differs" or all(j.kept or j.verdict in _SAYS for j in judged)
    ):  # outputs that were not compared are fine if the import's values were
        verdicts.append(values["verdict"])
    return {
        "worst_relative_error": max((d.relative for d in distances), default=None),
        "worst_ulp": _worst_ulp(distances),
        "verdict": verdict.worst(verdicts),
        "beyond": beyond,
        "other_integers": [model.imported.outputs[index] for index in integers],
        "not_compared": sum(j.verdict == "not_compared" for j in judged),
    }


def tensor_module(model: Model, made: Compilation) -> Module:
    """Return the import as ops with a meaning in f64.

    For a model that was read as a graph of another level, this is the first stage that has them.
    """
    module = model.imported.module
    if module.main.level == "tensor":
        return module
    stages = (stage.module for stage in made.stages)
    return next((m for m in stages if m.main.level == "tensor"), module)


def _are_right(values: Mapping[str, Any] | None) -> bool:
    """Return whether every value of the import was compared with the framework's and equal."""
    if values is None:
        return False
    return not values["left_out"] and values["verdict"] in ("equal", "within")


#: Verdicts that say something about a result.
_SAYS = ("equal", "within", "differs")


def _worst_ulp(distances: Sequence[Distance]) -> int | None:
    """Return the most ulps of any output (0 for equal integers); None if one is not finite."""
    if any(d.ulps is None and d.relative > 0 for d in distances):
        return None
    return max((d.ulps or 0 for d in distances), default=None)


def _need_same_form(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], name: str) -> None:
    fix = "compare models with the same outputs"
    if len(ours) != len(theirs):
        raise UserError(
            f"expected {len(ours)} outputs, got {len(theirs)} from {name}", "--against", fix
        )
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            raise UserError(
                f"expected an output of shape {a.shape}, got {b.shape} from {name}",
                "--against",
                fix,
            )


def _text(data, ours, model) -> str:
    from workbench.queries import numeric_results

    lines = [
        f"{data['model']} on {data['target']}: "
        + ", ".join(
            f"{name} {a.dtype}{list(a.shape)}"
            for name, a in zip(model.imported.outputs, ours, strict=False)  # then counts
        )
        + (f"; outputs not compared: {data['not_compared']}" if data["not_compared"] else "")
    ]
    if data["against"]:
        lines.append(
            numeric_results.peer_line(numeric_results.peer(data) or {"name": data["against"]})
        )
        if data["values"]:
            lines.append(numeric_results.against({**data["values"], "beyond": None}))
        if data["beyond"]:
            lines += numeric_results.beyond_lines(data["beyond"])
    lines += [f"digest   {data['digest']}", f"identity {data['identity']}"]
    return "\n".join(lines)
