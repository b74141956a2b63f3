"""Comparison of a compiled training step with torch: losses, gradients and the final state.

The same batches run three times: through the step, through torch eager, and through torch eager in
f64, which is the reference.  There is one metric, max |d| / max |peer| (docs/numerics.md,
:mod:`core_compiler.debug.metric`): the error of the step against f64 may be at most 4 times torch's
own, with a floor of a few ulps of f32.  A gradient that is mathematically 0 (a bias before a
normalisation) is only the rounding error of larger gradients, so its floor is that of the largest
gradient.  If a value exceeds its bound, torch's own error is taken as the maximum over further runs
whose weights and data are moved by one ulp: an ill-conditioned value diverges there too.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

import numpy as np

from core_compiler.debug.metric import distance, epsilon
from core_compiler.debug.verdict import VAGUE, worst
from core_compiler.ir import Module, Value
from core_compiler.support.arrays import as_numpy, to_torch
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.support.torch_modules import set_mode
from core_compiler.training.graph import losses
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.optimizers import Lion, Optimizer
from core_compiler.training.optimisers.schedules import rates

#: Maximum ratio of the step's error against f64 to torch's own.
GROWTH = 4.0
#: The floor, in ulps of f32 of the largest value of a tensor.
ULPS = 16
#: In ulps of the narrowest floats that a model makes of a parameter: up to there a value beyond the
#: floor says nothing.
NARROW_ULPS = 4
#: A gradient below this fraction of the largest one is only rounding error of f64.
NOTHING = 2.0**-44
#: Runs of torch with inputs moved by one ulp, used if one run does not show the effect of rounding.
SEEDS = 4
#: Kinds of compared values: a parameter or buffer at the start, the loss of an iteration, a
#: gradient of the first iteration, a parameter or buffer after the last.
KINDS = ("start", "loss", "gradient", "parameter", "buffer")

#: The relative ulp of f32.
_F32 = epsilon(np.dtype(np.float32))

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """The comparison of one value with torch's.

    ``error`` and ``theirs`` are the errors of the step and of torch eager against f64, ``allowed``
    is the bound.  ``want`` (torch's value) and ``got`` are at ``element``; ``line`` is the line of
    the model that reads a parameter.
    """

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
    """All rows of a comparison, losses first."""

    iterations: int
    rows: list[Row] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        return worst(row.verdict for row in self.rows)

    @property
    def notes(self) -> list[str]:
        """Return remarks that do not belong to a row."""
        skipped = [row for row in self.rows if row.verdict == "not_compared"]
        vague = sum(row.theirs > VAGUE for row in skipped)
        counts = {
            f"torch itself is off by more than {VAGUE:.2g} there": vague,
            "they depend on floats narrower than f32": len(skipped) - vague,
        }
        return [f"{count} values are not compared: {why}" for why, count in counts.items() if count]

    @property
    def first(self) -> Row | None:
        """Return the first value beyond its bound: gradients first, as losses and states follow."""
        order = ("start", "gradient", "loss", "parameter", "buffer")
        wrong = [row for row in self.rows if row.verdict == "differs"]
        return min(wrong, key=lambda row: order.index(row.kind), default=None)


def cannot_compare(why: str, fix: str) -> UserError:
    """Return the error for a step that cannot be compared."""
    return UserError(f"nothing compared: {why}", "--against torch", fix, CANNOT_HERE)


def need_torch(model: Any, training: Any) -> None:
    """Raise UserError if a step of ``model`` has no counterpart in torch."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise cannot_compare(
            "the model is not a torch module",
            "pass a sample or a function that returns a torch model",
        )
    if training.precision != "f32" or training.loss_scale is not None:
        scaled = " and scales the loss" if training.loss_scale is not None else ""
        raise cannot_compare(
            f"the step stores values in {training.precision}{scaled}",
            "compare the step in f32 without loss scaling",
        )
    if training.shards > 1 and not training.sync_batch_norm:
        raise cannot_compare(
            "each shard normalises by its own statistics", "leave out --own-batch-norm"
        )
    _optimizer_of(training.optimizer)
    _loss_of(losses.loss(training.loss))


def copied(model: Any) -> Any:
    """Return a copy of a torch module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns about its own saved programs
        return copy.deepcopy(model)


def without_dropout(model: Any) -> list[str]:
    """Turn dropout off in a torch module, whose masks are random, and return notes about it."""
    import torch

    found = False
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p:
            module.p, found = 0.0, True
        for name in ("dropout", "attn_pdrop", "attention_dropout", "hidden_dropout", "dropout_p"):
            probability = getattr(module, name, None)
            if isinstance(probability, float) and probability:
                setattr(module, name, 0.0)
                found = True
    return ["dropout is off: torch draws different masks"] if found else []


# -- what torch computes ---------------------------------------------------------------------------


def _loss_of(loss: losses.Loss) -> Callable[[Any, Any], Any]:
    """Return the function (output, target) -> loss in torch."""
    from torch.nn import functional as f

    if isinstance(loss, losses.CrossEntropy):

        def cross_entropy(out, target):
            axis = loss.axis % out.ndim
            rows = out.movedim(axis, -1).reshape(-1, out.shape[axis])
            return f.cross_entropy(
                rows,
                target.reshape(-1).long(),
                ignore_index=loss.ignore_index,
                label_smoothing=loss.label_smoothing,
            )

        return cross_entropy
    if isinstance(loss, losses.Own):
        return lambda out, target: out.reshape(())
    known: dict[type, Callable[[Any, Any], Any]] = {
        losses.MeanSquaredError: f.mse_loss,
        losses.L1: f.l1_loss,
        losses.Huber: lambda out, y: f.huber_loss(out, y, delta=loss.delta),  # type: ignore
        losses.BCEWithLogits: f.binary_cross_entropy_with_logits,
        losses.KLDivergence: lambda out, y: f.kl_div(
            out,
            y,
            reduction="batchmean" if loss.batch else "mean",  # type: ignore[attr-defined]
        ),
    }
    if type(loss) not in known:
        raise cannot_compare(
            f"loss {type(loss).__name__} not found in torch", "use a loss of torch"
        )
    return known[type(loss)]


class _Lion:
    """The Lion optimiser as its paper defines it; torch does not have it."""

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


class _TorchOptimizer:
    """A torch optimiser whose learning rate is set before each step."""

    def __init__(self, what: Optimizer, parameters: Sequence[Any]):
        import torch

        from core_compiler.training.optimisers.torch_state import options_of

        kind = getattr(torch.optim, type(what).__name__)
        self.inner = kind(parameters, lr=0.0, **(options_of(what) or {}))

    def step(self, rate: float) -> None:
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()


def _optimizer_of(what: Optimizer) -> type:
    from core_compiler.training.optimisers.torch_state import options_of

    if type(what) is Lion:
        return _Lion
    if options_of(what) is None:
        raise cannot_compare(
            f"optimiser {type(what).__name__} not found in torch", "use an optimiser of torch"
        )
    return _TorchOptimizer


@dataclass
class _Run:
    """The results of a torch run: losses, gradients of the first iteration, the final state."""

    losses: list[float]
    gradients: dict[str, np.ndarray]
    state: dict[str, np.ndarray]


@contextmanager
def _default_dtype(torch: Any, kind: Any) -> Iterator[None]:
    """Set torch's default dtype, which tensors created by the model's code get."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _run(
    model: Any,
    training: Any,
    begin: Arrays,
    trained: Sequence[str],
    batches: Sequence[Sequence[np.ndarray]],
    wide: bool,
) -> _Run:
    import torch

    kind = torch.float64 if wide else torch.float32
    model = copied(model)
    if not model.training:
        set_mode(model, training=True)
    tensors = {name: to_torch(np.array(a)) for name, a in begin.items()}
    model.load_state_dict(tensors, strict=False)
    if wide:
        model = _widened(model.double())
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
            given = [to_torch(np.array(a)) for a in batch]
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
                    name: as_numpy(own[name].grad).copy()
                    for name in trained
                    if own[name].grad is not None
                }
            optimizer.step(rate(number))
            made.losses.append(float(loss.detach()))
    made.state = {n: as_numpy(t).copy() for n, t in model.state_dict().items()}
    return made


def _widened(model: Any) -> Any:
    """Return a module in f64; a saved program names f32 in its ops and asserts it of its values."""
    import torch

    def wide(dtype: Any) -> Any:
        return torch.float64 if dtype is torch.float32 else dtype

    for part in model.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.target is torch.ops.aten._assert_tensor_metadata.default:
                part.graph.erase_node(node)
            else:
                node.args, node.kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), wide)
        part.recompile()
    return model


def _first(made: Any) -> Any:
    """Return the first result of a model."""
    if isinstance(made, tuple | list):
        return made[0]
    if isinstance(made, Mapping):
        return next(iter(made.values()))
    return made


# -- comparing -------------------------------------------------------------------------------------


def compare(
    step: Any,
    model: Any,
    batches: Sequence[Sequence[np.ndarray]],
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Compared:
    """Run ``step`` and torch on the same batches and compare the results.

    ``step`` must be compiled from ``model`` with ``keep_gradients`` and must not have run yet.
    Raises UserError with exit code 3 if nothing can be compared.
    """
    training = step.compilation.options.training
    module = step.compilation.stages[0].module
    if any("core.random" in op.kind for op in module.walk()):
        raise cannot_compare(
            "the model draws random numbers, which torch draws differently",
            "set dropout and noise to 0",
        )
    initial_state = step.state_dict()
    our_losses, gradients = [], {}
    for number, batch in enumerate(batches):
        progress("train", number, len(batches))
        our_losses.append(step(*batch))
        if number == 0:
            gradients = {step.canonical_name(n): np.array(a) for n, a in step.gradients.items()}
    trained = _trained(model, training.freeze)

    def run(wide: bool, initial_state: Arrays, batches: Sequence[Sequence[np.ndarray]]) -> _Run:
        progress("torch in f64" if wide else "torch", 0, 0)
        try:
            return _run(model, training, initial_state, trained, batches, wide)
        except (RuntimeError, TypeError, ValueError) as error:
            message = " ".join(str(error).split())[:200]
            kind = "f64" if wide else "f32"
            raise cannot_compare(
                f"torch cannot run the model in {kind}: {message}",
                "pass a model that runs in torch by itself",
            ) from None

    theirs, truth = (run(wide, initial_state, batches) for wide in (False, True))
    buffers = [name for name, _ in model.named_buffers(remove_duplicate=False)]
    comparison = _TorchComparison(step, module, truth, initial_state, trained, buffers)
    final_state = step.state_dict()
    rows = comparison.rows([theirs], our_losses, gradients, final_state)
    if any(row.verdict == "differs" for row in rows):
        # Rounding may take another run elsewhere: Adam takes a full-size step for a gradient that
        # is only rounding error.
        others = [theirs]
        for seed in range(SEEDS):
            random = np.random.default_rng(seed)
            given = [[_moved(a, random) for a in batch] for batch in batches]
            others.append(
                run(False, {n: _moved(a, random) for n, a in initial_state.items()}, given)
            )
        rows = comparison.rows(others, our_losses, gradients, final_state)
    return Compared(len(batches), [*_starts(step, model, training, initial_state), *rows])


def _moved(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a copy of an array with floats moved by up to one ulp."""
    if array.dtype.kind != "f":
        return array
    ulps = random.integers(-1, 2, array.shape) * np.finfo(array.dtype).eps
    return (array * (1 + ulps)).astype(array.dtype)


def _starts(step: Any, model: Any, training: Any, initial_state: Arrays) -> list[Row]:
    """Return rows for values that start differently from the model although none was requested."""
    found, lines = [], _lines(step.compilation.stages[0].module)
    for name, parameter in model.state_dict().items():
        ours = initial_state.get(name)
        if ours is None or any(fnmatch(name, pattern) for pattern, _ in training.initialize):
            continue
        want = as_numpy(parameter)
        if want.shape == ours.shape and want.astype(ours.dtype).tobytes() == ours.tobytes():
            continue
        off = distance(want, ours)
        found.append(
            Row(
                "start",
                name,
                "differs",
                off.relative,
                0.0,
                0.0,
                off.index,
                off.want,
                off.got,
                lines.get(step.canonical_name(name), ""),
            )
        )
    return found


class _TorchComparison:
    """The values of the step and of torch; ``truth`` is torch's run in f64."""

    def __init__(
        self,
        step: Any,
        module: Module,
        truth: _Run,
        begin: Arrays,
        trained: Sequence[str],
        buffers: Sequence[str],
    ):
        self.step, self.truth, self.lines = step, truth, _lines(module)
        self.buffers = frozenset(buffers)
        self.units = _units(module)
        self.largest = max(map(_largest, truth.gradients.values()), default=0.0)
        # A parameter that moves only by rounding shows nothing but rounding.
        self.moved = max(
            (
                _largest(want - begin[name])
                for name, want in truth.state.items()
                if name in begin and name in trained
            ),
            default=0.0,
        )

    def rows(
        self, theirs: Sequence[_Run], losses: Sequence[float], gradients: Arrays, after: Arrays
    ) -> list[Row]:
        """Return all rows; ``theirs`` are torch's runs in f32."""
        found, truth = [], self.truth
        for i, loss in enumerate(losses):
            torch_losses = [run.losses[i] for run in theirs]
            found.append(self._row("loss", str(i + 1), truth.losses[i], torch_losses, loss))
        for name, want in truth.gradients.items():
            ours = gradients.get(
                self.step.canonical_name(name), np.zeros_like(theirs[0].gradients[name])
            )
            torch_arrays = [run.gradients[name] for run in theirs]
            found.append(self._row("gradient", name, want, torch_arrays, ours, self.largest))
        known = {self.step.canonical_name(name) for name in truth.gradients}
        for name in sorted(gradients.keys() - known):  # torch: the loss does not depend on it
            zero = np.zeros_like(gradients[name])
            found.append(self._row("gradient", name, zero, [zero], gradients[name], self.largest))
        for name, want in truth.state.items():
            if name in after and name in theirs[0].state:
                kind = "buffer" if name in self.buffers else "parameter"
                torch_arrays = [run.state[name] for run in theirs]
                largest = self.moved if kind == "parameter" else 0.0
                found.append(self._row(kind, name, want, torch_arrays, after[name], largest))
        return found

    def _row(
        self, kind: str, name: str, truth: Any, theirs: Any, ours: Any, largest: float = 0.0
    ) -> Row:
        canonical_name = self.step.canonical_name(name)
        units = self.units.values() if kind == "loss" else [self.units.get(canonical_name, 0.0)]
        unit = max(units, default=0.0)
        found = _row(kind, name, truth, theirs, ours, largest, unit if unit > _F32 else 0.0)
        return replace(found, line=self.lines.get(canonical_name, ""))


def _trained(model: Any, freeze: Sequence[str]) -> list[str]:
    """Return the parameters that torch must train, by their first names.

    These are all parameters except those that need no gradient or are listed in ``freeze``,
    regardless of how the step handles them.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(id(parameter), []).append(name)
    return [
        aliases[0]
        for aliases in names.values()
        if not any(fnmatch(name, pattern) for name in aliases for pattern in freeze)
    ]


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array), initial=0))


def _units(module: Module) -> dict[str, float]:
    """Map each argument that narrow floats are made of to the relative ulp of the narrowest.

    Torch rounds narrow values in its f64 run as well, and inside of ops at other places than the
    step.
    """
    roles = Roles.of(module.main)
    found: dict[Value, float] = {}
    for op in reversed(module.main.body.ops):
        below = [found.get(v, 0.0) for v in op.results]
        below += [epsilon(k.numpy) for v in op.results if (k := _float(v)) is not None]
        for value in op.uses():
            found[value] = max(found.get(value, 0.0), *below)
    named = zip(module.main.arguments, roles.arguments, strict=True)
    return {name: found.get(v, 0.0) for v, (_, name, _) in named}


def _float(value: Value) -> Any:
    kind = getattr(value.type, "dtype", None)
    return kind if kind is not None and kind.is_float else None


def _row(
    kind: str,
    name: str,
    truth,
    theirs,
    ours,
    largest: float = 0.0,
    narrow: float = 0.0,
) -> Row:
    """Compare one value; ``theirs`` are torch's runs in f32, the first on the same inputs as ours.

    ``largest`` is the magnitude that bounds values which are only rounding error, ``narrow`` the
    relative ulp of floats narrower than f32 that the value depends on (0: there are none).
    """
    truth, ours, first = (np.asarray(a) for a in (truth, ours, theirs[0]))
    if truth.shape != ours.shape:
        return Row(kind, name, "differs", math.inf, 0.0, 0.0)
    if truth.dtype.kind in "biu":
        off = distance(truth, ours)
        verdict = "differs" if off.relative else "equal"
        return Row(kind, name, verdict, off.relative, 0.0, 0.0, off.index, off.want, off.got)
    # An element that is not finite in torch's f32 tells nothing about rounding; ours may be so too.
    not_finite = ~np.isfinite(first)
    agree = not_finite & ((ours == first) | (np.isnan(ours) & np.isnan(first)))
    # A tensor that is 0 everywhere in f64 is compared with the largest value that f32 computes for
    # it.
    fallback_scale = max(_largest(a[np.isfinite(a)]) for a in map(np.asarray, (ours, *theirs)))
    off = distance(
        np.where(agree, 0, truth),
        np.where(agree, 0, ours),
        ours.dtype,
        fallback_scale=fallback_scale,
    )
    torch_error = max(_own_error(truth, np.asarray(a), fallback_scale) for a in theirs)
    size = _largest(truth[np.isfinite(truth)])
    floor = ULPS * _F32
    if (size or fallback_scale) and (size <= NOTHING * largest or torch_error > ULPS * floor):
        floor = max(floor, _F32 * largest / (size or fallback_scale))
    allowed = max(floor, GROWTH * torch_error)
    equal = ours.dtype == first.dtype and ours.tobytes() == first.tobytes()
    verdict = "equal" if equal else "within" if off.relative <= allowed else "differs"
    if not equal and torch_error > VAGUE and allowed > floor:
        verdict = "not_compared"  # rounding alone decides the value
    if verdict == "differs" and off.relative <= NARROW_ULPS * narrow:
        verdict = "not_compared"  # torch's f64 run rounds to narrow floats as well
    return Row(
        kind, name, verdict, off.relative, torch_error, allowed, off.index, off.want, off.got
    )


def _own_error(truth: np.ndarray, theirs: np.ndarray, fallback_scale: float) -> float:
    """Return the error of torch's f32 against its f64, ignoring elements that are not finite."""
    not_finite = ~np.isfinite(theirs)
    want, got = (np.where(not_finite, 0, a) for a in (truth, theirs))
    return distance(want, got, theirs.dtype, fallback_scale=fallback_scale).relative


def _lines(module: Module) -> dict[str, str]:
    """Map each parameter to the ``file:line`` where the model reads it."""
    roles = Roles.of(module.main)
    found: dict[str, str] = {}
    names = {module.main.arguments[i]: name for i, (_, name, _) in enumerate(roles.arguments)}
    for op in module.walk():
        for value in op.uses():
            name = names.get(value)
            if name is not None and name not in found and op.origin is not None:
                location = next((f"{n.file}:{n.line}" for n in op.origin.nodes() if n.file), "")
                if location:
                    found[name] = location
    return found
