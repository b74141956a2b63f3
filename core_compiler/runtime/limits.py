"""Measurement of this machine's peak performance: multiply-adds and bytes per second.

The compute roof is a loop of independent fused multiply-adds that never leaves registers.  The
memory roof depends on the footprint: reading and copying are measured over footprints from within
the first cache to far beyond the last, and the faster of the two counts at each (reading alone
needs no ownership of cache lines, so it may exceed copying).  A kernel's limit is the lower roof
(Williams, Waterman, Patterson: "Roofline", CACM 2009): the time that its arithmetic or its
compulsory bytes need, whichever is longer.

Other load on the machine can only lower a measurement, so the best of all measurements counts.  A
kernel that exceeds the limits proves that they were measured while the machine was busy: they are
then measured again on the next request.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce

import numpy as np

from core_compiler.hardware.host import Host, detect
from core_compiler.hardware.limits import Curve, Limits, best, from_json
from core_compiler.runtime import loader
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.runtime.team import Team, aligned, team

#: Increment when the method of measurement changes.
VERSION = 1
#: Independent accumulators: at least latency x units of every known processor (Zen 5: 4 x 2).
CHAINS = 12
#: Iterations of the multiply-add loop in one work item.
ITERATIONS = 2000
#: Bytes touched (read + written) at which bandwidth is measured.
FOOTPRINTS = tuple(2**n for n in range(15, 29, 2))
#: Target duration of one measurement in seconds (less than a scheduler's time slice, so that some
#: are not interrupted), and the number of them: the best counts, the rest is other load.
DURATION, REPEATS = 0.0005, 12
#: Minimum time of a measurement on several threads in seconds, as they must all have had a
#: processor at once; none takes longer than twice this, however busy the machine is.
PATIENCE = 0.03
#: The number of times that everything is measured, to avoid bursts of other load.
ROUNDS = 3
#: Limits that launches still exceed after this many measurements are not measured again: then other
#: load is not the cause.
MOST = 10
_ITEMS = 64
#: Vectors that one step of a sweep touches, so that the loop itself is not measured.
UNROLL = 4


def limits(threads: int, folder: CacheFolder | None = None, again: bool = False) -> Limits:
    """Return this machine's limits with ``threads`` threads: the best of all measurements.

    They are kept in the cache folder, and measured (some seconds) on the first call, with
    ``again``, and after :func:`doubt`.
    """
    folder = CacheFolder() if folder is None else folder
    stored = _load(threads, folder)
    if stored is not None and not again and not stored.doubted:
        return stored.limits
    found, times = measure(threads), 1
    if stored is not None:
        found, times = best(stored.limits, found), stored.times + 1
    _store(_StoredLimits(found, times), folder)
    return found


def doubt(threads: int, folder: CacheFolder | None = None) -> None:
    """Record that a launch exceeded the limits: the next request measures them again."""
    folder = CacheFolder() if folder is None else folder
    stored = _load(threads, folder)
    if stored is not None and not stored.doubted and stored.times < MOST:
        _store(_StoredLimits(stored.limits, stored.times, doubted=True), folder)


@dataclass(frozen=True)
class _StoredLimits:
    """Limits in the cache folder, with the number of measurements (``times``).

    And whether they are to be measured again.
    """

    limits: Limits
    times: int
    doubted: bool = False


def _key(threads: int) -> str:
    return hashlib.sha256(f"{VERSION}|{threads}|{detect().identity}".encode()).hexdigest()


def _load(threads: int, folder: CacheFolder) -> _StoredLimits | None:
    stored = folder.get("limits", _key(threads), "limits.json")
    if stored is None:
        return None
    more = json.loads(stored)
    return _StoredLimits(from_json(stored), int(more.get("times", 1)), bool(more.get("doubted")))


def _store(stored: _StoredLimits, folder: CacheFolder) -> None:
    text = json.dumps({**asdict(stored.limits), "times": stored.times, "doubted": stored.doubted})
    key = _key(stored.limits.threads)
    folder.remove("limits", key)  # an existing entry would not be replaced
    folder.put("limits", key, {"limits.json": text.encode()})


def measure(threads: int, footprints: Sequence[int] = FOOTPRINTS) -> Limits:
    """Measure now, the best of ``ROUNDS``.  Other load on the machine lowers the result."""
    workers = team(threads)
    return reduce(best, (_measured(workers, footprints) for _ in range(ROUNDS)))


def _measured(workers: Team, footprints: Sequence[int]) -> Limits:
    return Limits(
        workers.threads,
        _flops(workers),
        _curve(workers, "read", footprints),
        _curve(workers, "copy", footprints),
    )


def _flops(workers: Team) -> float:
    work = CHAINS * (detect().vector_bytes // 4) * 2 * ITERATIONS  # of one item
    values = aligned(64).view(np.float32)
    values[:2] = 0.999, 0.001
    block = np.array([values.ctypes.data], np.int64)
    once = _seconds(workers, "fma", block, workers.threads, 5)
    items = workers.threads * max(1, int(DURATION / once))
    return work * items / _seconds(workers, "fma", block, items, REPEATS)


def _curve(workers: Team, kernel: str, footprints: Sequence[int]) -> Curve:
    """Return bytes per second at each footprint; every thread has its own part of it."""
    return tuple((size, _bandwidth(workers, kernel, size)) for size in footprints)


def _bandwidth(workers: Team, kernel: str, footprint: int) -> float:
    arrays = 2 if kernel == "copy" else 1
    step = UNROLL * detect().vector_bytes
    chunk = max(step, footprint // arrays // _ITEMS // step * step)
    memory = aligned(arrays * chunk * _ITEMS)
    memory[:] = 1  # touched, so that its pages are mapped
    source = memory.ctypes.data
    traffic = arrays * chunk * _ITEMS
    repeats = 1
    while True:
        block = np.array([source + (arrays - 1) * chunk * _ITEMS, source, chunk, repeats], np.int64)
        seconds = _seconds(workers, kernel, block, _ITEMS, 3)
        if seconds >= DURATION / 4 or repeats >= 1 << 20:
            break
        repeats *= 2 if seconds <= 0 else max(2, min(64, int(DURATION / 2 / seconds)))
    return traffic * repeats / _seconds(workers, kernel, block, _ITEMS, REPEATS)


def _seconds(workers: Team, kernel: str, block: np.ndarray, items: int, repeats: int) -> float:
    """Return the shortest of at least ``repeats`` runs, from first start to last end."""
    code = _code()
    # It runs twice, and the second is timed: the first one wakes the threads.
    record = [code[f"limit_{kernel}"], block.ctypes.data, items, 0, 1]
    records = np.array([record, record], np.int64)
    scratch, best = aligned(4096 * workers.threads), float("inf")
    times = np.zeros((2, workers.threads, 2), np.int64)
    patient = repeats == REPEATS and workers.threads > 1
    start, done = time.monotonic(), 0
    while done < 3 or (
        (spent := time.monotonic() - start) < 2 * PATIENCE
        and (done <= repeats or (patient and spent < PATIENCE))
    ):
        done += 1
        times[:] = 0
        workers.run(records.ctypes.data, 2, scratch.ctypes.data, 4096, times.ctypes.data)
        taken = times[1][times[1, :, 0] > 0]
        best = min(best, float(taken[:, 1].max() - taken[:, 0].min()))
    return max(best, 1.0) * 1e-9


@functools.cache
def _code() -> loader.LoadedCode:
    text = kernels(detect())
    folder = CacheFolder()
    key = hashlib.sha256("\0".join((text, *loader.host())).encode()).hexdigest()
    data = folder.get("limits", key, "limits.o")
    if data is None:
        data = loader.compile_ir(text)
        folder.put("limits", key, {"limits.o": data, "limits.ll": text.encode()})
    return loader.load_object(data, ("limit_fma", "limit_read", "limit_copy"), where="limits")


def kernels(host: Host) -> str:
    """Return the measuring kernels in LLVM IR, at the host's vector width."""
    vector = f"<{host.vector_bytes // 4} x float>"
    chains = range(CHAINS)
    phis = "\n".join(f"  %a{i} = phi {vector} [ %x, %item ], [ %b{i}, %loop ]" for i in chains)
    lanes = host.vector_bytes // 4
    suffix, mask = f"v{lanes}f32", f"<{lanes} x i32> zeroinitializer"
    fmas = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.{suffix}({vector} %a{i}, {vector} %x, {vector} %y)"
        for i in chains
    )
    sums = "\n".join(
        f"  %s{i} = fadd {vector} %b{i}, {'%x' if i == 0 else f'%s{i - 1}'}" for i in chains
    )
    return f"""
declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})

; Each work item: {ITERATIONS} times {CHAINS} independent multiply-adds.
define void @limit_fma(i64 %block, i64 %lo, i64 %hi, i64 %scratch) {{
entry:
  %p = inttoptr i64 %block to ptr
  %values = load ptr, ptr %p
  %y.p = getelementptr float, ptr %values, i64 1
  %x0 = load float, ptr %values
  %y0 = load float, ptr %y.p
  %x1 = insertelement {vector} poison, float %x0, i32 0
  %x = shufflevector {vector} %x1, {vector} poison, {mask}
  %y1 = insertelement {vector} poison, float %y0, i32 0
  %y = shufflevector {vector} %y1, {vector} poison, {mask}
  %out = inttoptr i64 %scratch to ptr
  br label %item
item:
  %i = phi i64 [ %lo, %entry ], [ %i.next, %done ]
  br label %loop
loop:
  %k = phi i64 [ 0, %item ], [ %k.next, %loop ]
{phis}
{fmas}
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, {ITERATIONS}
  br i1 %more, label %loop, label %done
done:
{sums}
  store volatile {vector} %s{CHAINS - 1}, ptr %out, align 64
  %i.next = add i64 %i, 1
  %items = icmp ult i64 %i.next, %hi
  br i1 %items, label %item, label %end
end:
  ret void
}}
{_sweep("read", vector, host.vector_bytes)}
{_sweep("copy", vector, host.vector_bytes)}
"""


def _sweep(name: str, vector: str, width: int) -> str:
    """Return a pass over [lo, hi) chunks, ``repeats`` times; volatile, to prevent a memcpy."""
    steps = []
    for i in range(UNROLL):
        steps.append(f"""  %at{i} = add i64 %at, {i * width}
  %from.at{i} = getelementptr i8, ptr %from, i64 %at{i}
  %v{i} = load volatile {vector}, ptr %from.at{i}, align {width}""")
        if name == "copy":
            steps.append(f"""  %to.at{i} = getelementptr i8, ptr %to, i64 %at{i}
  store volatile {vector} %v{i}, ptr %to.at{i}, align {width}""")
    body = "\n".join(steps)
    return f"""
; Arguments: to, from, bytes of a chunk, repeats.
define void @limit_{name}(i64 %block, i64 %lo, i64 %hi, i64 %scratch) {{
entry:
  %p = inttoptr i64 %block to ptr
  %from.p = getelementptr i64, ptr %p, i64 1
  %chunk.p = getelementptr i64, ptr %p, i64 2
  %repeats.p = getelementptr i64, ptr %p, i64 3
  %to = load ptr, ptr %p
  %from = load ptr, ptr %from.p
  %chunk = load i64, ptr %chunk.p
  %repeats = load i64, ptr %repeats.p
  %first = mul i64 %lo, %chunk
  %last = mul i64 %hi, %chunk
  br label %again
again:
  %r = phi i64 [ 0, %entry ], [ %r.next, %swept ]
  br label %loop
loop:
  %at = phi i64 [ %first, %again ], [ %at.next, %loop ]
{body}
  %at.next = add i64 %at, {UNROLL * width}
  %more = icmp ult i64 %at.next, %last
  br i1 %more, label %loop, label %swept
swept:
  %r.next = add i64 %r, 1
  %once.more = icmp ult i64 %r.next, %repeats
  br i1 %once.more, label %again, label %end
end:
  ret void
}}"""
