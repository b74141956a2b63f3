"""Checks of the passes after differentiation against formulas in NumPy, in f64.

Each event of clipping, unscaling, the optimiser's update and the guard of an update names the
formula that its ops compute (`ir.claims.Formula`).  The formulas are written here a second time,
from the papers and torch.optim's documentation and independently of the passes.  The ops are
evaluated in f64 on the recorded values and on random ones, as the state of a first iteration is
mostly zeros.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from core_compiler.debug.evaluate import Recorded
from core_compiler.debug.metric import distance
from core_compiler.debug.wide import F64Evaluator, widened
from core_compiler.ir import Rewrite, Value
from core_compiler.ir.claims import Formula
from core_compiler.ir.events import CheckRecord
from core_compiler.support.errors import InternalError

#: Maximum difference of both sides in f64, relative to the largest value.
TOLERANCE = 1e-9
#: Number of random trials besides the recorded values.
TRIALS = 4
SEED = 0x666F726D

Named = dict[str, np.ndarray]
#: (inputs by name, options) -> outputs by name; a missing output is not compared.
Function = Callable[[Mapping[str, np.ndarray], Mapping[str, Any]], Named]


class Unknown(Exception):
    """The formula is unknown; the message names it."""


# -- optimisers ------------------------------------------------------------------------------------

#: Rounds a constant of a formula once, to the dtype of the operand that it meets.
Rounded = Callable[[float], float]


def _decayed(o: Any, r: Rounded, g, p):
    """Return the gradient with weight decay.

    Without decay an infinite weight must not contribute (0 times it is NaN).
    """
    return g + r(o.weight_decay) * p if o.weight_decay else g


def _sgd(o: Any, r: Rounded, p, g, s, n) -> tuple[np.ndarray, Named]:
    g = _decayed(o, r, g, p)
    if not o.momentum:
        return p - n["rate"] * g, {}
    first = bool(n["first"]) and o.dampening != 0
    momentum_buffer = g if first else r(o.momentum) * s["momentum_buffer"] + r(1 - o.dampening) * g
    step = g + r(o.momentum) * momentum_buffer if o.nesterov else momentum_buffer
    return p - n["rate"] * step, {"momentum_buffer": momentum_buffer}


def _mean(r: Rounded, beta: float, old, new) -> np.ndarray:
    """Return the average ``beta * old + (1 - beta) * new``; the smaller factor is rounded."""
    if 1 - beta < 0.5:
        return (1 - r(1 - beta)) * old + r(1 - beta) * new
    weight = r(1 - (1 - beta))
    return weight * old + (1 - weight) * new


def _adam(o: Any, r: Rounded, p, g, s, n, decoupled: bool = False) -> tuple[np.ndarray, Named]:
    if decoupled:
        p = p * (1 - n["rate"] * o.weight_decay)
    else:
        g = _decayed(o, r, g, p)
    mean = _mean(r, o.betas[0], s["exp_avg"], g)
    square = r(o.betas[1]) * s["exp_avg_sq"] + r(1 - o.betas[1]) * g**2
    made = {"exp_avg": mean, "exp_avg_sq": square}
    if o.amsgrad:
        square = made["max_exp_avg_sq"] = np.maximum(s["max_exp_avg_sq"], square)
    mean_hat = mean / (1 - n["after.beta1_power"])
    square_hat = square / (1 - n["after.beta2_power"])
    return p - n["rate"] * mean_hat / (np.sqrt(square_hat) + r(o.eps)), made


def _adamw(o: Any, r: Rounded, p, g, s, n) -> tuple[np.ndarray, Named]:
    return _adam(o, r, p, g, s, n, decoupled=True)


def _adagrad(o: Any, r: Rounded, p, g, s, n) -> tuple[np.ndarray, Named]:
    g = _decayed(o, r, g, p)
    total = s["sum"] + g**2
    rate = n["rate"] / (1 + n["before.steps"] * o.rate_decay) if o.rate_decay else n["rate"]
    return p - rate * g / (np.sqrt(total) + r(o.eps)), {"sum": total}


def _rmsprop(o: Any, r: Rounded, p, g, s, n) -> tuple[np.ndarray, Named]:
    g = _decayed(o, r, g, p)
    square = r(o.alpha) * s["square_avg"] + r(1 - o.alpha) * g**2
    made, below = {"square_avg": square}, square
    if o.centered:
        made["grad_avg"] = _mean(r, o.alpha, s["grad_avg"], g)
        below = square - made["grad_avg"] ** 2
    step = g / (np.sqrt(below) + r(o.eps))
    if o.momentum:
        step = made["momentum_buffer"] = r(o.momentum) * s["momentum_buffer"] + step
    return p - n["rate"] * step, made


def _lion(o: Any, r: Rounded, p, g, s, n) -> tuple[np.ndarray, Named]:
    first, second = o.betas
    mean = s["exp_avg"]
    step = np.sign(r(first) * mean + r(1 - first) * g)
    p = p * (1 - n["rate"] * o.weight_decay)
    return p - n["rate"] * step, {"exp_avg": r(second) * mean + r(1 - second) * g}


_OPTIMIZERS = {
    "SGD": _sgd,
    "Adam": _adam,
    "AdamW": _adamw,
    "Adagrad": _adagrad,
    "RMSprop": _rmsprop,
    "Lion": _lion,
}


def _ours(what: Any, module: str) -> str:
    """Return the name of one of our own classes; a user's class may compute anything."""
    name = type(what).__name__
    if type(what).__module__ != f"core_compiler.training.optimisers.{module}":
        raise Unknown(f"{name} is not an optimiser, schedule or scale of the compiler")
    return name


def _update(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    o = options["optimizer"]
    formula = _OPTIMIZERS[_ours(o, "optimizers")]
    p, g = given["parameter"], given["gradient"]
    slots = {n.removeprefix("slot."): a for n, a in given.items() if n.startswith("slot.")}
    made, moved = formula(o, options["rounded"], p, g, slots, given)
    return {"parameter": made, **{f"slot.{n}": a for n, a in moved.items()}}


def _rate(schedule: Any, t: int) -> float:
    name = _ours(schedule, "schedules")
    if name == "Warmup":
        if t < schedule.iterations:
            return _rate(schedule.after, 0) * (t + 1) / schedule.iterations
        return _rate(schedule.after, t - schedule.iterations)
    value = schedule.value
    if name == "Step":
        return value * schedule.gamma ** (t // schedule.every)
    if name == "Exponential":
        return value * schedule.gamma**t
    share = min(t, getattr(schedule, "iterations", 1)) / getattr(schedule, "iterations", 1)
    if name == "Linear":
        return value * (1 + share * (schedule.last - 1))
    if name == "Cosine":
        return schedule.least + (value - schedule.least) * (1 + math.cos(math.pi * share)) / 2
    return value


def _numbers(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    """Return the values that all parameters of an iteration share."""
    o, t = options["optimizer"], int(given["iteration"])
    name = _ours(o, "optimizers")
    done = t - int(given.get("skipped", 0))
    made: dict[str, Any] = {
        "iteration": t + 1,
        "first": done == 0,
        "rate": _rate(o.schedule, t),
    }
    if name in ("Adam", "AdamW"):
        for i in (1, 2):
            made[f"after.beta{i}_power"] = given[f"before.beta{i}_power"] * o.betas[i - 1]
    if name == "Adagrad" and o.rate_decay:
        made["after.steps"] = given["before.steps"] + 1
    return {n: np.asarray(a) for n, a in made.items()}


# -- clipping, scaling, guarding -------------------------------------------------------------------


def _norm(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    """Compute torch.nn.utils.clip_grad_norm_."""
    total = math.sqrt(sum(float(np.sum(g**2)) for g in given.values()))
    rounded = options["rounded"]
    factor = min(1.0, rounded(options["norm"]) / (total + rounded(1e-6)))
    return {"total": np.asarray(total), "factor": np.asarray(factor)}


def _same(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    return {"made": given["x"]}


def _product(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    """Multiply a tensor by a scalar."""
    return {"made": given["x"] * given["factor"]}


def _unscaled(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    return {
        "made": given["x"] * given["factor"],
        "finite": np.reshape(np.all(np.isfinite(given["x"])), (1,)),
    }


def _factor(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Any:
    scale = options["scale"]
    return scale.value if _ours(scale, "loss_scale") == "Static" else given["loss_scale"]


def _scaled_loss(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    return {"made": np.asarray(given["loss"] * _factor(given, options))}


def _inverse(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    return {"made": np.asarray(1 / _factor(given, options))}


def _all(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    return {"made": np.asarray(all(bool(np.all(a)) for a in given.values()))}


def _guarded(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    return {"made": given["after"] if bool(given["finite"]) else given["before"]}


def _next_scale(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    """Compute torch.amp.GradScaler.update."""
    scale, finite = options["scale"], bool(given["finite"])
    made: dict[str, Any] = {"skipped_updates": given["skipped_updates"] + (not finite)}
    if _ours(scale, "loss_scale") == "Dynamic":
        factor, count = float(given["loss_scale"]), int(given["growth_tracker"])
        if not finite:
            factor, count = factor * scale.backoff, 0
        elif count + 1 == scale.interval:
            factor, count = factor * scale.growth, 0
        else:
            count += 1
        made |= {"loss_scale": factor, "growth_tracker": count}
    return {n: np.asarray(a) for n, a in made.items()}


def _mean_of_shards(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    """Average over equal shards.

    A divisor other than the shard's count (n - 1 for a variance) is the divisor over all shards.
    """
    count, shards = math.prod(options["shape"][a] for a in options["axes"]), options["shards"]
    return {"made": given["total"] * shards / (shards * count - (count - options["divisor"]))}


def _unbiased_of_shards(given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Named:
    count = options["of"] * options["shards"]
    return {"made": given["variance"] * options["rounded"](count / (count - 1))}


FORMULAS: dict[str, Function] = {
    "the optimiser's update": _update,
    "the numbers of an iteration": _numbers,
    "the norm of the gradients": _norm,
    "a gradient times a factor": _product,
    "an unscaled gradient": _unscaled,
    "the scaled loss": _scaled_loss,
    "one over the loss's factor": _inverse,
    "whether all are finite": _all,
    "a guarded update": _guarded,
    "the value itself": _same,
    "a mean over all shards": _mean_of_shards,
    "an unbiased variance over all shards": _unbiased_of_shards,
    "the loss's next factor": _next_scale,
}


# -- the check -------------------------------------------------------------------------------------


def check_formula(rewrite: Rewrite, values: Recorded, narrow: Any) -> CheckRecord:
    """Compare the ops of an event with its formula."""
    started = time.perf_counter()

    def record(verdict: str, **facts: Any) -> CheckRecord:
        return CheckRecord(rewrite, verdict, seconds=time.perf_counter() - started, **facts)

    claim = rewrite.claim
    assert isinstance(claim, Formula)
    if claim.name not in FORMULAS:
        return record("unchecked", note=f"{claim.name} has no known formula")
    worst, options = 0.0, {**claim.options, "rounded": _rounding(claim)}
    try:
        for inputs in _inputs(claim, values):
            known = {claim.given[name]: array for name, array in inputs.items()}
            with np.errstate(all="ignore"):
                made = evaluated(F64Evaluator(narrow), rewrite, known, values)
                wanted = FORMULAS[claim.name](inputs, options)
            for name, want in wanted.items():
                if name not in claim.made:
                    continue
                value = claim.made[name]
                if value not in made:  # defined earlier, not by this event
                    continue
                got = np.asarray(made[value])
                off = distance(_float(want), _float(got))
                if off.relative > TOLERANCE:
                    at = f" at element {list(off.index)}" if off.index else ""
                    note = f"{name} of {claim.name}{at} is {off.got:.6g}, its formula in f64 gives "
                    note += f"{off.want:.6g}" if off.want is not None else off.note
                    return record(
                        "failed",
                        worst_error=off.relative,
                        tolerance=TOLERANCE,
                        value=value,
                        index=off.index,
                        old=off.want,
                        new=off.got,
                        note=note,
                    )
                worst = max(worst, off.relative)
    except (Unknown, InternalError) as problem:
        return record("unchecked", note=f"not compared with a formula: {problem}")
    note = f"{claim.name}, by its formula in f64 on recorded and random values"
    return record("within", worst_error=worst, tolerance=TOLERANCE, note=note)


def _rounding(claim: Formula) -> Rounded:
    """Return the rounding of constants: to the dtype of the first float result."""
    floats = (v.type.dtype for v in claim.made.values() if v.type.dtype.is_float)
    kind = next(floats, None)
    return float if kind is None else lambda value: float(np.asarray(value, kind.numpy))


def _float(array: Any) -> np.ndarray:
    return np.asarray(array, np.float64)


def evaluated(
    wide: F64Evaluator, rewrite: Rewrite, known: Mapping[Value, np.ndarray], values: Recorded
) -> dict[Value, np.ndarray]:
    """Return the results of an event's new ops in f64 for ``known``, else for recorded values."""
    made = dict(known)

    def read(value: Value) -> np.ndarray:
        return made[value] if value in made else widened(np.asarray(values[value]))

    for op in rewrite.new:
        outer = {v: read(v) for v in op.uses()} if op.regions else None
        results = wide.op(op, [read(v) for v in op.operands], outer)
        made.update(zip(op.results, results, strict=True))
    return made


def _inputs(claim: Formula, values: Recorded) -> Iterator[Named]:
    """Yield the recorded inputs, then random ones."""
    yield {name: widened(np.asarray(values[v])) for name, v in claim.given.items()}
    counts = sorted({0, 1, 2, 7, *_counts(list(claim.options.values()))})
    for trial in range(TRIALS):
        random = np.random.default_rng([SEED, trial])
        yield {
            name: _drawn(v, random, counts, name in claim.positive, trial)
            for name, v in claim.given.items()
        }


def _drawn(
    value: Value, random: np.random.Generator, counts: list[int], positive: bool, trial: int
) -> np.ndarray:
    kind, shape = value.type.dtype, value.type.shape
    if kind.is_float:
        if positive:
            return random.uniform(0.1, 0.9, shape)
        made = random.standard_normal(shape) * 10.0 ** (trial - 1)
        return np.asarray(made)
    if kind.numpy == np.bool_:
        return np.asarray(random.integers(0, 2, shape).astype(bool))
    return np.asarray(random.choice(counts, shape), kind.numpy)


def _counts(what: Any) -> Iterator[int]:
    """Yield the iteration counts in options, and their neighbours."""
    if isinstance(what, bool):
        return
    if isinstance(what, int):
        yield from (max(what - 1, 0), what, what + 1)
    elif isinstance(what, list | tuple):
        for part in what:
            yield from _counts(part)
    elif is_dataclass(what):
        for each in fields(what):
            yield from _counts(getattr(what, each.name))
