"""A compiled training step beside torch: losses, gradients and the state after some iterations.

The same batches run through the torch module three times: by the step, by torch eager, and by
torch eager in f64, which stands for the right values.  One metric, max |d| / max |peer|
(docs/numerics.md, :mod:`core_compiler.debug.metric`): the step's distance from f64 may be at most 4
times torch's own, with a floor of a few ulps of f32, also of the largest gradient (a gradient that
is mathematically 0, as of a bias before a normalisation, is nothing but rounding of larger ones).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core_compiler.debug.metric import distance, epsilon
from core_compiler.errors import CANNOT_HERE, UserError
from core_compiler.ir import Module
from core_compiler.training import losses
from core_compiler.training.optimizers import Lion, Optimizer
from core_compiler.training.roles import Roles
from core_compiler.training.schedules import rates

#: How many times torch's own error against f64 the step's may be.
GROWTH = 4.0
#: The floor, in ulps of f32 of the largest value of a tensor.
ULPS = 16
#: What is compared: the loss of an iteration, a gradient of the first one, a parameter or buffer
#: after the last.
KINDS = ("loss", "gradient", "parameter", "buffer")

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One value beside torch's: ``error`` and ``theirs`` are the distances of the step and of torch
    eager from f64, ``allowed`` the bound.  ``want`` (torch's) and ``got`` are at ``element``;
    ``line`` is the model's where a parameter is read."""

    kind: str
    name: str
    verdict: str
    error: float
    theirs: float
    allowed: float
    element: tuple[int, ...] = ()
    want: float | None = None
    got: float | None = None
    line: str = ""


@dataclass
class Compared:
    """All rows, losses first; ``notes``: what was changed for the comparison."""

    iterations: int
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        found = {row.verdict for row in self.rows}
        return "differs" if "differs" in found else "within" if "within" in found else "equal"

    @property
    def first(self) -> Row | None:
        """The first value beyond its bound: a gradient before losses and states, which follow."""
        order = ("gradient", "loss", "parameter", "buffer")
        wrong = [row for row in self.rows if row.verdict == "differs"]
        return min(wrong, key=lambda row: order.index(row.kind), default=None)


def nothing(why: str, fix: str) -> UserError:
    """Nothing can be compared."""
    return UserError(f"nothing compared: {why}", "--against torch", fix, CANNOT_HERE)


def need_torch(model: Any, training: Any) -> None:
    """UserError where a step of ``model`` has no counterpart in torch."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise nothing("the model is not a torch module",
                      "give a sample or a function that returns a torch model")  # fmt: skip
    if training.precision != "f32" or training.loss_scale is not None:
        raise nothing(f"the step stores values in {training.precision}, with a scaled loss or not",
                      "compare the step in f32")  # fmt: skip
    if training.shards > 1 and not training.sync_batch_norm:
        raise nothing("each shard normalises by its own statistics", "leave out --own-batch-norm")
    _optimizer_of(training.optimizer)
    _loss_of(losses.loss(training.loss))


def without_dropout(model: Any) -> list[str]:
    """Turn dropout off in a torch module: its masks are torch's own.  Returns what to say of it."""
    import torch

    found = False
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p:
            module.p, found = 0.0, True
        for name in ("dropout", "attn_pdrop", "attention_dropout", "hidden_dropout", "dropout_p"):
            held = getattr(module, name, None)
            if isinstance(held, float) and held:
                setattr(module, name, 0.0)
                found = True
    return ["dropout is off: torch draws other masks"] if found else []


# -- what torch computes ---------------------------------------------------------------------------


def _loss_of(loss: losses.Loss) -> Callable[[Any, Any], Any]:
    """(output, target) -> the loss, by torch."""
    from torch.nn import functional as f

    if isinstance(loss, losses.CrossEntropy):

        def cross_entropy(out, target):
            axis = loss.axis % out.ndim
            rows = out.movedim(axis, -1).reshape(-1, out.shape[axis])
            return f.cross_entropy(rows, target.reshape(-1).long(),
                                   ignore_index=loss.ignore_index,
                                   label_smoothing=loss.label_smoothing)  # fmt: skip

        return cross_entropy
    if isinstance(loss, losses.Own):
        return lambda out, target: out.reshape(())
    known: dict[type, Callable[[Any, Any], Any]] = {
        losses.MeanSquaredError: f.mse_loss,
        losses.L1: f.l1_loss,
        losses.Huber: lambda out, y: f.huber_loss(out, y, delta=loss.delta),  # type: ignore
        losses.BCEWithLogits: f.binary_cross_entropy_with_logits,
        losses.KLDivergence: lambda out, y: f.kl_div(
            out, y, reduction="batchmean" if loss.batch else "mean"),  # type: ignore
    }  # fmt: skip
    if type(loss) not in known:
        raise nothing(f"torch has no loss {type(loss).__name__}", "use one of torch's losses")
    return known[type(loss)]


class _Lion:
    """Lion as its paper has it: torch has none."""

    def __init__(self, what: Lion, parameters: Sequence[Any]):
        import torch

        self.what, self.parameters = what, parameters
        self.means = [torch.zeros_like(p) for p in parameters]

    def step(self, rate: float) -> None:
        import torch

        first, second = self.what.betas
        with torch.no_grad():
            for p, mean in zip(self.parameters, self.means, strict=True):
                if p.grad is not None:
                    p.mul_(1 - rate * self.what.weight_decay)
                    p.sub_(rate * torch.sign(first * mean + (1 - first) * p.grad))
                    mean.mul_(second).add_(p.grad, alpha=1 - second)


class _Theirs:
    """An optimiser of torch, whose rate is set before each step."""

    def __init__(self, what: Optimizer, parameters: Sequence[Any]):
        import torch

        from core_compiler.training.torch_state import options_of

        kind = getattr(torch.optim, type(what).__name__)
        self.inner = kind(parameters, lr=0.0, **(options_of(what) or {}))

    def step(self, rate: float) -> None:
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()


def _optimizer_of(what: Optimizer) -> type:
    from core_compiler.training.torch_state import options_of

    if type(what) is Lion:
        return _Lion
    if options_of(what) is None:
        raise nothing(f"torch has no optimiser {type(what).__name__}", "train with one of torch's")
    return _Theirs


@dataclass
class _Run:
    """What torch made: losses, the gradients of the first iteration, the state at the end."""

    losses: list[float]
    gradients: dict[str, np.ndarray]
    state: dict[str, np.ndarray]


@contextmanager
def _default_dtype(torch: Any, kind: Any) -> Iterator[None]:
    """What the model's own code makes is of this dtype too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _run(
    model: Any, training: Any, begin: Arrays, trained: Sequence[str],
    batches: Sequence[Sequence[np.ndarray]], wide: bool,
) -> _Run:  # fmt: skip
    import torch

    kind = torch.float64 if wide else torch.float32
    model = copy.deepcopy(model)
    if not model.training:
        model.train()
    held = {name: torch.from_numpy(np.array(a)) for name, a in begin.items()}
    model.load_state_dict(held, strict=False)
    if wide:
        model = model.double()
    own = dict(model.named_parameters())
    for name, parameter in own.items():
        parameter.requires_grad_(name in trained)
    parameters = [own[name] for name in trained]
    what = training.optimizer
    optimizer = _optimizer_of(what)(what, parameters)
    compute, rate = _loss_of(losses.loss(training.loss)), rates(what.schedule)
    made = _Run([], {}, {})
    with _default_dtype(torch, kind):
        for number, batch in enumerate(batches):
            given = [torch.from_numpy(np.array(a)) for a in batch]
            given = [t.to(kind) if t.is_floating_point() else t for t in given]
            own_loss = isinstance(losses.loss(training.loss), losses.Own)
            inputs, target = (given, None) if own_loss else (given[:-1], given[-1])
            for parameter in parameters:
                parameter.grad = None
            out = _first(model(*inputs))
            loss = compute(out, target)
            loss.backward()
            if training.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, training.clip_norm)
            if number == 0:
                made.gradients = {
                    name: own[name].grad.detach().numpy().copy()
                    for name in trained if own[name].grad is not None
                }  # fmt: skip
            optimizer.step(rate(number))
            made.losses.append(float(loss.detach()))
    made.state = {n: t.detach().numpy().copy() for n, t in model.state_dict().items()}
    return made


def _first(made: Any) -> Any:
    """A model's first result."""
    if isinstance(made, tuple | list):
        return made[0]
    if isinstance(made, Mapping):
        return next(iter(made.values()))
    return made


# -- comparing -------------------------------------------------------------------------------------


def compare(
    step: Any, model: Any, batches: Sequence[Sequence[np.ndarray]],
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Compared:  # fmt: skip
    """Run ``step`` (compiled of ``model`` with ``keep_gradients``, no iteration done) and torch on
    the same batches.  UserError with exit code 3 where nothing can be compared."""
    training = step.compilation.options.training
    module = step.compilation.stages[0].module
    if any("core.random" in op.kind for op in module.walk()):
        raise nothing("the model draws random numbers, and torch draws others",
                      "set dropout and noise to 0")  # fmt: skip
    begin = step.state_dict()
    mine, gradients = [], {}
    for number, batch in enumerate(batches):
        progress("train", number, len(batches))
        mine.append(step(*batch))
        if number == 0:
            gradients = {step.called(n): np.array(a) for n, a in step.gradients.items()}
    trained = [n for n, _ in model.named_parameters() if step.called(n) in gradients]
    runs = []
    for wide in (False, True):
        progress("torch in f64" if wide else "torch", 0, 0)
        try:
            runs.append(_run(model, training, begin, trained, batches, wide))
        except (RuntimeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            kind = "f64" if wide else "f32"
            raise nothing(f"torch cannot run the model in {kind}: {said}",
                          "give a model that runs in torch by itself") from None  # fmt: skip
    theirs, truth = runs
    found = Compared(len(batches))
    for i, loss in enumerate(mine):
        found.rows.append(_row("loss", str(i + 1), truth.losses[i], theirs.losses[i], loss))
    largest = max(map(_largest, truth.gradients.values()), default=0.0)
    lines = _lines(module)
    for name, want in truth.gradients.items():
        ours = gradients.get(step.called(name))
        if ours is not None:
            found.rows.append(_row("gradient", name, want, theirs.gradients[name], ours, largest,
                                   lines.get(step.called(name), "")))  # fmt: skip
    known = {step.called(name) for name in truth.gradients}
    for name in sorted(gradients.keys() - known):  # torch: the loss does not depend on it
        zero = np.zeros_like(gradients[name])
        found.rows.append(_row("gradient", name, zero, zero, gradients[name], largest,
                               lines.get(name, "")))  # fmt: skip
    after = step.state_dict()
    buffers = {name for role, name, _ in step.roles.arguments if role == "buffer"}
    # Of a parameter that stays where it is but for rounding, rounding is all there is to see.
    moved = max((_largest(want - begin[name]) for name, want in truth.state.items()
                 if name in begin and name in trained), default=0.0)  # fmt: skip
    for name, want in truth.state.items():
        if name in after and name in theirs.state:
            kind = "buffer" if step.called(name) in buffers else "parameter"
            found.rows.append(_row(kind, name, want, theirs.state[name], after[name],
                                   moved if kind == "parameter" else 0.0,
                                   lines.get(step.called(name), "")))  # fmt: skip
    return found


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array), initial=0))


def _row(kind: str, name: str, truth, theirs, ours, largest: float = 0.0, line: str = "") -> Row:
    truth, theirs, ours = (np.asarray(a) for a in (truth, theirs, ours))
    if truth.shape != ours.shape:
        return Row(kind, name, "differs", math.inf, 0.0, 0.0, line=line)
    if truth.dtype.kind in "biu":
        off = distance(truth, ours)
        verdict = "differs" if off.relative else "equal"
        return Row(kind, name, verdict, off.relative, 0.0, 0.0, off.index, off.want, off.got, line)
    # What is no number in torch's f32 says nothing of rounding; ours may be none there as well.
    lost = ~np.isfinite(theirs)
    alike = lost & ((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    off = distance(np.where(alike, 0, truth), np.where(alike, 0, ours), ours.dtype)
    own = distance(np.where(lost, 0, truth), np.where(lost, 0, theirs), theirs.dtype)
    size = float(np.max(np.abs(truth), initial=0.0))
    eps = epsilon(np.dtype(np.float32))
    floor = ULPS * eps
    if size:
        floor = max(floor, eps * largest / size)
    elif largest:
        floor = math.inf if float(np.max(np.abs(ours), initial=0.0)) <= eps * largest else floor
    allowed = max(floor, GROWTH * own.relative)
    equal = ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    verdict = "equal" if equal else "within" if off.relative <= allowed else "differs"
    return Row(kind, name, verdict, off.relative, own.relative, allowed, off.index, off.want,
               off.got, line)  # fmt: skip


def _lines(module: Module) -> dict[str, str]:
    """Where the model reads each parameter: ``file:line``."""
    roles = Roles.of(module.main)
    found: dict[str, str] = {}
    names = {module.main.arguments[i]: name for i, (_, name, _) in enumerate(roles.arguments)}
    for op in module.walk():
        for value in op.uses():
            name = names.get(value)
            if name is not None and name not in found and op.origin is not None:
                place = next((f"{n.file}:{n.line}" for n in op.origin.nodes() if n.file), "")
                if place:
                    found[name] = place
    return found
