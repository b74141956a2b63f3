"""Single ops beside torch eager, measured in turns in the same process.

    python benchmarks/ops.py [PATTERN ...] [--threads 2] [--rounds 5] [-o FILE] [--before FILE]

Each case of ``op_cases.py`` whose ``family / name dtype`` contains one of the patterns is compiled
and executed beside torch. The table is worst first: the peer's median over ours (above 1 means
that ours is faster), and the share of the case's limit, the larger of its flops over the peak of
fused multiply-adds and its compulsory bytes over the bandwidth, both measured at the beginning and
at the end of the run. Where the share is below 60 %, `op_reasons.py` says why. ``--before`` names
what got slower than in an earlier file (by more than both spreads), and then exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import torch
from models import machine
from op_cases import Case, cases
from op_reasons import reason

#: Bits of the sums of each dtype, for the peak of the limit.
_SUM_BITS = {"f64": 64, "i64": 64}
#: Products of bytes that an instruction adds to each sum, in place of one.
_PRODUCTS_AT_ONCE = {"i8": 4, "u8": 4}
#: Cases are slower only beyond this factor: shared machines are noisy.
_NOISE = 1.15
#: A smaller share of the limit has a written reason.
_FAR = 0.6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("patterns", nargs="*", default=[""])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="most seconds a case")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--before", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    from core_compiler.hardware.limits import best
    from core_compiler.runtime.limits import measure

    rows, roofs = [], measure(arguments.threads)
    for case in cases():
        if any(p in label(case) for p in arguments.patterns):
            rows.append(row := measured(case, arguments))
            print(line(row), flush=True)
    roofs = best(roofs, measure(arguments.threads))
    for row in rows:
        add_share(row, roofs)
    made = {
        "machine": machine(arguments.threads) | {"limits": asdict(roofs)},
        "summary": summary(rows),
        "ops": rows,
    }
    if arguments.output:
        arguments.output.write_text(json.dumps(made, indent=1) + "\n")
    print("\nworst first:")
    for row in sorted(rows, key=lambda r: r.get("ratio", 0.0)):
        print(line(row))
    print(json.dumps(made["summary"], indent=1))
    return report_slower(rows, arguments.before)


def label(case: Case) -> str:
    return f"{case.family} / {case.name} {case.dtype}"


def measured(case: Case, arguments) -> dict[str, Any]:
    """The figures of one case; ``error`` if it does not compile or differs."""
    import core_compiler as cc
    from core_compiler.runtime.budget import TimeBudget
    from core_compiler.runtime.peers import compare

    row: dict[str, Any] = {"family": case.family, "case": case.name, "dtype": case.dtype}
    module, inputs = case.make()
    try:
        started = time.perf_counter()
        made = cc.compile(module, inputs, threads=arguments.threads)
        row["compile_s"] = time.perf_counter() - started
        ours = made(*inputs)
    except Exception as error:  # a survey goes on, and says what failed
        return {**row, "error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}

    def peer():
        with torch.inference_mode():
            return module(*inputs)

    row["relative_error"] = farthest(peer(), ours)
    found = compare(
        lambda: made(*inputs),
        {"torch": peer},
        rounds=arguments.rounds,
        runs=5,
        budget=TimeBudget(arguments.seconds),
    )
    theirs = found.peers["torch"]
    row |= {
        "ours_us": found.ours.median_us,
        "ours_least_us": min(found.ours.samples_us),
        "torch_us": theirs.median_us,
        "torch_least_us": min(theirs.samples_us),
        "ratio": theirs.median_us / found.ours.median_us,
        **work(case, made),
        "launches": len(made.facts["program"][0].launches),
    }
    return row


def work(case: Case, made) -> dict[str, float]:
    """The flops of a case, as many instructions' worth, and its compulsory bytes."""
    first = made.stages[0]
    flops = float(first.figures["flops"])
    module = first.module
    values = [*module.main.arguments, *module.main.outputs]
    values += [op.result for op in module.main.body.ops if op.kind == "core.constant"]
    moved = sum(v.type.bytes for v in values)
    return {"flops": flops / _PRODUCTS_AT_ONCE.get(case.dtype, 1), "bytes": moved}


def add_share(row: dict[str, Any], roofs) -> None:
    """Add the time below which no execution can be, our share of it, and why it is small."""
    if "error" in row:
        return
    bits = _SUM_BITS.get(row["dtype"], 32)
    row["limit_us"] = 1e6 * roofs.least_seconds(row.pop("flops"), row.pop("bytes"), bits)
    row["share"] = row["limit_us"] / row["ours_least_us"]
    if row["share"] < _FAR:
        row["reason"] = reason(row["family"], row["case"], row["dtype"], row["ours_least_us"])


def farthest(theirs, ours) -> float:
    """The largest difference from torch relative to its largest value, over all results."""
    theirs = [theirs] if isinstance(theirs, torch.Tensor) else list(theirs)
    flat = [t for each in theirs for t in ([each] if isinstance(each, torch.Tensor) else each)]
    worst = 0.0
    for a, b in zip(flat, ours, strict=True):
        a, b = a.detach().double().numpy(), np.asarray(b).astype(np.float64)
        scale = np.abs(a).max(initial=0) or 1.0
        worst = max(worst, float(np.abs(a - b).max(initial=0) / scale))
    return worst


def line(row: dict) -> str:
    name = f"{row['family']:18s} {row['case']:44s} {row['dtype']:5s}"
    if "error" in row:
        return f"{name} {row['error']}"
    return (
        f"{name} ours {row['ours_us']:10.1f} us  torch {row['torch_us']:10.1f} us  "
        f"ratio {row['ratio']:6.2f}  error {row['relative_error']:.1e}"
        + (f"  share {100 * row['share']:5.1f} %" if "share" in row else "")
    )


def summary(rows: list[dict]) -> dict[str, Any]:
    """Geometric means of the ratios: of all cases, of each family, and of each dtype."""
    good = [r for r in rows if "ratio" in r]
    groups = {"all": good}
    for key in ("family", "dtype"):
        for row in good:
            groups.setdefault(row[key], [])
            if row not in groups[row[key]]:
                groups[row[key]].append(row)
    means = {name: geometric_mean(r["ratio"] for r in group) for name, group in groups.items()}
    return {
        "cases": len(rows),
        "failed": [f"{r['case']} {r['dtype']}" for r in rows if "error" in r],
        "ratios": means,
        "below_0.9": sum(r["ratio"] < 0.9 for r in good),
        "below_60_percent_of_limit": sum(r["share"] < _FAR for r in good),
        "without_a_reason": [
            f"{r['case']} {r['dtype']}" for r in good if r["share"] < _FAR and not r["reason"]
        ],
    }


def report_slower(rows: list[dict], before: Path | None) -> int:
    """Print the cases that are slower than in the file ``before``; return 1 if there are any."""
    if before is None:
        return 0
    known = {(r["case"], r["dtype"]): r for r in json.loads(before.read_text())["ops"]}
    slower = 0
    for row in rows:
        old = known.get((row["case"], row["dtype"]), {})
        if "ratio" not in old:
            continue
        fell = "error" in row or row["ratio"] * _NOISE < old["ratio"]
        if fell and ("error" in row or row["ours_least_us"] > old["ours_least_us"] * _NOISE):
            slower += 1
            print(f"slower than before: {line(row)}, was {old['ratio']:.2f}")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
