"""Comparison of gradient rewrites with numerical derivatives, subgradients and torch's autograd."""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.debug import ties, torch_gradients
from core_compiler.debug.evaluate import Recorded
from core_compiler.debug.gradients import SLOPE, GradientCheck, NotEvaluated, Point, Slope, failure
from core_compiler.ir import Block, Op, Rewrite, Value, attributes_key
from core_compiler.ir.claims import Gradient
from core_compiler.ir.events import CheckRecord
from core_compiler.runtime.cache_folder import CacheFolder, default_root
from core_compiler.runtime.kernel_cache import digest_of
from core_compiler.support.errors import UserError


def check_gradient(rewrite: Rewrite, values: Recorded, narrow: Any) -> CheckRecord:
    """Check an event of ``differentiate``."""
    started = time.perf_counter()

    def record(verdict: str, **facts: Any) -> CheckRecord:
        return CheckRecord(rewrite, verdict, seconds=time.perf_counter() - started, **facts)

    claim = rewrite.claim
    assert isinstance(claim, Gradient)
    if not claim.forward:
        return _check_initial_cotangent(rewrite, record, values, narrow)
    key = canonical(rewrite)
    known = kept(key)
    if known is not None:
        return record("within", worst_error=known[0], tolerance=SLOPE, note=known[1])
    try:
        check = GradientCheck(rewrite, values, narrow)
        found, worst, tested, left_out, count = [], 0.0, 0, 0, 0
        for number, point in enumerate(check.points()):
            slope = check.slope(point, number)
            if slope.error > SLOPE:
                return record("failed", **_failure(check, point, slope))
            if slope.left_out < slope.count or not slope.count:
                tested += 1
            left_out, count = left_out + slope.left_out, count + slope.count
            worst = max(worst, slope.error)
            found.append(point)
        peers = []
        for peer in (ties.compare, torch_gradients.compare):
            result = peer(check, found)
            if result is not None and result.failure is not None:
                return record("failed", **result.failure)
            if result is not None:
                worst = max(worst, result.error)
                peers.append(result.note)
    except NotEvaluated as problem:
        return record("unchecked", note=f"not differentiated numerically: {problem}")
    if not tested:
        if not peers:
            return record(
                "unchecked", note="no element of the result is differentiable at the tested points"
            )
        note = "; ".join(peers)
    else:
        noun = "point" if tested == 1 else "points"
        note = f"central differences in f64 at {tested} {noun}"
        if left_out:
            note += f" ({left_out} of {count} elements skipped: not differentiable)"
        note = "; ".join([note, *peers])
    keep(key, worst, note)
    return record("within", worst_error=worst, tolerance=SLOPE, note=note)


def _check_initial_cotangent(
    rewrite: Rewrite, record: Any, values: Recorded, narrow: Any
) -> CheckRecord:
    """Check that the cotangent of the differentiated value itself is 1."""
    ((value, _, after),) = rewrite.claim.sums  # type: ignore[union-attr]
    assert isinstance(after, Value)
    made = np.asarray(values[after], np.float64)
    if made.shape == value.type.shape and np.all(made == 1):
        return record("bitwise", note="differentiation starts with 1")
    return record(
        "failed",
        worst_error=math.inf,
        value=value,
        old=1.0,
        new=float(made.reshape(-1)[0]) if made.size else math.nan,
        note="differentiation does not start with 1",
    )


def _failure(check: GradientCheck, point: Point, slope: Slope) -> dict[str, Any]:
    """Return the facts of a record that failed."""
    value, index, want, got = check.worst(point, slope)
    return failure(
        check,
        value,
        index,
        want,
        got,
        slope.error,
        f"the central difference in f64, at {point.name}",
    )


#: Good verdicts of this process: key -> (error, note).
_KNOWN: dict[str, tuple[float, str]] = {}


_FOLDER = "gradient-checks"


def canonical(rewrite: Rewrite) -> str:
    """Return the hash of an event without value names, and of the sources that define its ops."""
    numbers: dict[Value, int] = {}

    def number(value: Value | None) -> Any:
        if value is None:
            return None
        is_new = value not in numbers
        index = numbers.setdefault(value, len(numbers))
        return (index, str(value.type)) if is_new else index

    def block(one: Block) -> Any:
        arguments = tuple(map(number, one.arguments))
        return arguments, tuple(map(op_key, one.ops)), tuple(map(number, one.outputs))

    def op_key(op: Op) -> Any:
        operands = tuple(map(number, op.operands))
        regions = tuple(map(block, op.regions))
        key = attributes_key(op.attributes.items())
        return op.kind, operands, key, regions, tuple(map(number, op.results))

    claim = rewrite.claim
    assert isinstance(claim, Gradient)
    text = repr(
        (
            tuple(map(op_key, claim.forward)),
            tuple((number(a), number(b)) for a, b in claim.given),
            tuple((number(a), number(b)) for a, b, _ in claim.sums),
            tuple(map(op_key, rewrite.new)),
            tuple(number(after) for _, _, after in claim.sums),
        )
    )
    parts = (sources(), torch_gradients.version(), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def sources() -> str:
    """Return the digest of the sources that evaluate and compare."""
    return digest_of(
        ("ops/**/*.py", "numerics/**/*.py", "kernel_ir/*.py", "lowering/*.py", "debug/*.py")
    )


def kept(key: str) -> tuple[float, str] | None:
    """Return a good verdict from the cache, or None."""
    if key not in _KNOWN:
        found = _folder(default_root()).get(_FOLDER, key, "verdict.json")
        if found is None:
            return None
        verdict = json.loads(found)
        _KNOWN[key] = verdict["error"], verdict["note"]
    return _KNOWN[key]


def keep(key: str, error: float, note: str) -> None:
    """Cache a good verdict; a cache that cannot be written is ignored."""
    _KNOWN[key] = error, note
    content = json.dumps({"error": error, "note": note}).encode()
    with suppress(UserError):
        _folder(default_root()).put(_FOLDER, key, {"verdict.json": content})


@cache
def _folder(root: Path) -> CacheFolder:
    return CacheFolder(root)
