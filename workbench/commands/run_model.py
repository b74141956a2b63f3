"""``workbench run MODEL``: execute, print the digest, and compare with another framework;
``-o FILE.run`` records all of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core_compiler.errors import UserError
from core_compiler.kernels import CONTRACT_VERSION
from workbench import peers
from workbench.commands import common
from workbench.commands.compile_model import output
from workbench.commands.printing import emit
from workbench.numbers import places

#: The largest error, relative to how much the outputs vary, that counts as agreement.
AGREES = 1e-4
#: ULPs are counted where the reference is at least this share of its largest magnitude.
COUNTED = 1e-3


def add_arguments(parser) -> None:
    common.add_model(parser)
    common.add_compile(parser)
    parser.add_argument("--against", metavar="NAME", help="compare with torch or onnxruntime")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=AGREES,
        metavar="ERROR",
        help=f"exit code 1 where the relative error is larger (default {AGREES:g})",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.run", help="record the compile, the times, the comparison"
    )


def run(arguments) -> int:
    if arguments.against not in (None, *peers.PEERS):
        raise UserError(f"cannot compare with {arguments.against!r}", "--against",
                        f"choose one of {', '.join(peers.PEERS)}")  # fmt: skip
    if not arguments.tolerance >= 0:
        raise UserError(f"{arguments.tolerance:g} is no error", "--tolerance", "give 0 or more")
    path = output(arguments.output) if arguments.output else None
    options = common.options(arguments)
    common.require_execution(arguments.target)
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
            """Told more after the compile: what the comparison says belongs to the recording."""

            def end(self, status, message=""):
                if status != "finished":
                    super().end(status, message)

        with Recorder(path) as recorder:
            watching = Observers(common.progress(), Unfinished(recorder))
            ours, data = _executed(arguments, model, options, peer, watching, True)
            if peer is not None:
                compared = "against", "worst_relative_error", "worst_ulp"
                recorder.figures({name: data[name] for name in compared})
    emit(arguments, data, lambda: _text(data, ours, model))
    return int(peer is not None and not data["worst_relative_error"] <= arguments.tolerance)


def _executed(arguments, model, options, peer, observer, timed: bool = False):
    """The outputs, and what there is to say about them."""
    from core_compiler.kernels.reference.digest import digest
    from workbench import jobs

    home = peers.HOME.get(model.spec.frontend) if timed else None
    each = home if home == arguments.against else None  # else it knows nothing of the import
    made = jobs.compile(
        model,
        arguments.target,
        options,
        observer=observer,
        execute=timed,
        against=each or "",
        seconds=common.seconds(arguments),
    )
    ours = made(*_own(model.inputs))
    data = {
        "model": model.name,
        "target": made.target.name,
        "worst_relative_error": None,
        "worst_ulp": None,
        "digest": digest(ours),
        "identity": made.identity,
        "contract": CONTRACT_VERSION,
        "frontend": model.spec.frontend,
        "against": arguments.against,
    }
    if peer is not None:
        data |= compare(
            ours, peer(*_own(model.inputs)), peer(*_own(model.others)), arguments.against
        )
    return ours, data


def _own(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Copies that may be written: frameworks warn of arrays that may not."""
    return [np.array(a) for a in arrays]


def compare(
    ours: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    other: Sequence[np.ndarray],
    peer: str = "the peer",
) -> dict:
    """``worst_relative_error`` and ``worst_ulp`` of ``ours`` against ``reference``, both on the
    same inputs; ``other`` is the reference on other inputs, which scales the error."""
    if len(ours) != len(reference):
        raise UserError(
            f"we give {len(ours)} outputs, {peer} gives {len(reference)}",
            "--against",
            "compare models with the same outputs",
        )
    for a, b in zip(ours, reference, strict=True):
        if a.shape != b.shape:
            raise UserError(
                f"an output is {a.shape} here and {b.shape} in {peer}",
                "--against",
                "compare models with the same outputs",
            )
    errors = [relative_error(*arrays) for arrays in zip(ours, reference, other, strict=True)]
    return {
        "worst_relative_error": max(errors, default=0.0),
        "worst_ulp": max(map(worst_ulp, ours, reference), default=0),
    }


def relative_error(ours: np.ndarray, reference: np.ndarray, other: np.ndarray) -> float:
    """max |ours - reference| / max |reference - other|.

    An output that does not depend on the inputs is scaled by its largest magnitude.  Where one side
    is not finite and the other differs, the error is infinite.
    """
    if not reference.size:
        return 0.0
    a, b, c = (np.asarray(x, np.float64) for x in (ours, reference, other))
    with np.errstate(invalid="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        spread = np.abs(b - c) if b.shape == c.shape else np.abs(b)
    worst = float(np.max(np.where(np.isfinite(distance), distance, np.inf)))
    scale = float(np.max(spread, where=np.isfinite(spread), initial=0.0))
    scale = scale or float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0))
    return 0.0 if worst == 0.0 else worst / scale if scale else float("inf")


def worst_ulp(ours: np.ndarray, reference: np.ndarray) -> int:
    """Units in the last place of ``ours``' dtype between the two, over elements of at least
    ``COUNTED`` of the largest reference; 0 for dtypes that are not floats of 2, 4 or 8 bytes."""
    if ours.dtype.kind != "f" or not ours.size:
        return 0
    reference = reference.astype(ours.dtype)
    magnitude = np.abs(reference)
    largest = np.max(magnitude, where=np.isfinite(magnitude), initial=0.0)
    counted = np.isfinite(ours) & np.isfinite(reference) & (magnitude >= COUNTED * largest)
    if not counted.any():
        return 0
    a, b = (places(x[counted]) for x in (ours, reference))
    return int(max(abs(int(x) - int(y)) for x, y in _extremes(a, b)))


def _extremes(a: np.ndarray, b: np.ndarray):
    """The pairs that can be farthest apart; the difference of two int64 may not fit one."""
    distance = a.astype(np.float64) - b.astype(np.float64)
    for i in np.argsort(-np.abs(distance), kind="stable")[:8]:
        yield a[i], b[i]


def _text(data, ours, model) -> str:
    lines = [
        f"{data['model']} on {data['target']}: "
        + ", ".join(
            f"{name} {a.dtype}{list(a.shape)}"
            for name, a in zip(model.imported.outputs, ours, strict=False)  # then counts
        )
    ]
    if data["against"]:
        lines.append(
            f"against {data['against']}: worst relative error {data['worst_relative_error']:.3g}, "
            f"worst ulp {data['worst_ulp']}"
        )
    lines += [f"digest   {data['digest']}", f"identity {data['identity']}"]
    return "\n".join(lines)
