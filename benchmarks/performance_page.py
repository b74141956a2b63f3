"""Writes docs/performance.md from the records in benchmarks/results.

    python benchmarks/performance_page.py

Each table is of the newest record that has its rows (by the date in the file's name), and says
which. Nothing is measured here.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance.md"
#: How many single ops are listed as lost.
WORST = 25
_PEERS = ("torch", "onnxruntime")

Row = Mapping[str, Any]

_HEAD = """\
# Performance

This page is generated from the records in [benchmarks/results](../benchmarks/results) by
`python benchmarks/performance_page.py`. Each table says which record it is from; the records have
more figures, and those of earlier dates are kept.

## How it is measured

- A **ratio** is the other framework's median time over ours: above 1, ours is faster.
- The contenders of a row run in the same process with the same number of threads, in turns, so
  that a slowdown of the machine meets all of them. Before each turn there is a pause of 0.25 s, in
  which other frameworks' threads stop spinning, and untimed runs for 20 ms. One model: at most 7
  turns of 3 runs; one op: at most 5 turns of 5 runs.
- torch is eager torch without gradients. onnxruntime is its CPU provider with all optimisations.
  Ours is `c(x)` in f32 with the default options, unless a table says otherwise.
- The **limit** of an op is the time that its floating-point operations need at the measured peak of
  fused multiply-adds, or its compulsory bytes at the measured bandwidth, whichever is longer. Our
  **share** is the limit over our least time.
- An **error** is the largest difference from a framework's results, divided by their largest
  value.
- The machines are shared. Ratios are comparable between records, absolute times are not.

To measure on your machine: `python benchmarks/ops.py`, `python benchmarks/models.py --compile`,
`python benchmarks/models.py --decode 32`, `python benchmarks/training.py curves`,
`python -m benchmarks.gpu_recordings`; each takes `-o FILE`.
"""


class Records:
    """The records of a folder, newest first."""

    def __init__(self, folder: Path = RESULTS):
        def age(path: Path) -> tuple[str, str]:
            date = re.search(r"\d{4}-\d\d-\d\d\w*", path.name)
            return (date[0] if date else "", path.name)

        self._paths = sorted(folder.glob("*.json"), key=age, reverse=True)

    def newest(self, kind: str, key: str, has: Callable[[Row], bool]) -> Record | None:
        """The newest record KIND-DATE.json with rows ``key`` of which some have what is needed."""
        for path in self._paths:
            if not re.fullmatch(kind + r"-\d{4}-\d\d-\d\d\w*\.json", path.name):
                continue
            held = json.loads(path.read_text())
            rows = [row for row in held.get(key, ()) if has(row)]
            if rows:
                return Record(path.name, held, rows)
        return None


class Record:
    """Rows of one file, with its machine."""

    def __init__(self, name: str, held: Mapping[str, Any], rows: Sequence[Row]):
        self.name, self.rows = name, rows
        self.date = re.sub(r".*?(\d{4}-\d\d-\d\d).*", r"\1", name)
        self._held = held

    def source(self, more: str = "") -> str:
        """A paragraph that says where and when the rows were measured."""
        link = f"[{self.name}](../benchmarks/results/{self.name})"
        text = f"From {link}, {self.date}: {', '.join(self._machine())}.{more}"
        return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False) + "\n"

    def _machine(self) -> list[str]:
        machine = self._held.get("machine")
        if not isinstance(machine, dict):
            machine = {"processor": self.rows[0].get("device"), **self._held}
        versions = machine.get("versions", {})
        parts = [str(machine["processor"])] if machine.get("processor") else []
        if machine.get("threads"):
            parts.append(f"{machine['threads']} threads")
        parts += [
            f"{name} {versions[name]}" for name in ("torch", "onnxruntime") if name in versions
        ]
        if "load" in machine:
            parts.append(f"load average {machine['load']:.1f}")
        return parts


def page(records: Records | None = None) -> str:
    """The page as text."""
    records = records or Records()
    sections = (ops, models, bound_calls, decoding, training, gpu, compiling, losses)
    return "\n".join([_HEAD, *(text for section in sections if (text := section(records)))])


def ops(records: Records) -> str:
    found = _ops(records)
    if found is None:
        return ""
    good = [row for row in found.rows if "ratio" in row]
    failed = [f"{r['case']} {r['dtype']}" for r in found.rows if "ratio" not in r]
    parts = ["## Single ops\n", found.source(" Each case is compiled by itself.")]
    heads = ("cases", "torch / ours", "below 0.9", "share of the limit")
    for key in ("family", "dtype"):
        rows = []
        for name in dict.fromkeys(row[key] for row in good):
            group = [row for row in good if row[key] == name]
            rows.append((name, *_summary(group)))
        parts.append(table((key, *heads), [*rows, ("all", *_summary(good))]))
    parts.append(
        "The ratio is the geometric mean over the cases, the share of the limit the median.\n"
    )
    if failed:
        parts.append(f"Not measured (the record says why): {'; '.join(failed)}.\n")
    return "\n".join([*parts, far_from_limits(good)])


def far_from_limits(rows: Sequence[Row]) -> str:
    """The cases below 60 % of their limit, by the reason that is written for them."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: r["share"]):
        if row.get("reason"):
            groups.setdefault(row["reason"], []).append(row)
    if not groups:
        return ""
    cells = []
    for why, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        dtypes: dict[str, list[str]] = {}
        for row in group:
            dtypes.setdefault(row["case"], []).append(row["dtype"])
        names = "; ".join(f"{case} ({', '.join(kinds)})" for case, kinds in dtypes.items())
        shares = [100 * row["share"] for row in group]
        cells.append((why, f"{min(shares):.0f} to {max(shares):.0f} %", names))
    text = f"{sum(map(len, groups.values()))} of {len(rows)} cases are below 60 % of their limit:\n"
    return "\n".join([text, table(("reason", "shares", "cases"), cells)])


def _summary(rows: Sequence[Row]) -> tuple[str, ...]:
    ratios = [row["ratio"] for row in rows]
    below = sum(ratio < 0.9 for ratio in ratios)
    share = median(row["share"] for row in rows)
    return str(len(rows)), f"{geometric_mean(ratios):.2f}", str(below), f"{100 * share:.0f} %"


def models(records: Records) -> str:
    found = _models(records)
    if found is None:
        return ""
    heads = ("model", "ours", "torch", "onnxruntime", "torch / ours", "onnxruntime / ours", "error")
    heads = (
        (*heads, "memory, ours", "memory, torch")
        if any("memory" in r for r in found.rows)
        else heads
    )
    rows = [
        (
            _name(row),
            _ms(row["ours_ms"], row.get("ours_least_ms")),
            *(_ms(row["peers"].get(p), row.get("peers_least", {}).get(p)) for p in _PEERS),
            *(_ratio(row["ratios"].get(p)) for p in _PEERS),
            f"{max(row['errors'].values()):.1e}" if row["errors"] else "",
            *(_memory(row) if len(heads) > 7 else ()),
        )
        for row in found.rows
    ]
    return "\n".join(
        ["## Models\n", found.source(_TIMES), table(heads, rows), *_bandwidth(found.rows)]
    )


_TIMES = " Times are medians in milliseconds (in brackets the least)."


def _bandwidth(rows: Sequence[Row]) -> list[str]:
    """What is limited by reading weights: the share of the measured rate of copies."""
    limited = [row for row in rows if row.get("bandwidth_share", 0) >= 0.2]
    if not limited:
        return []
    heads = ("model", "bytes needed", "share of the rate of copies")
    cells = [
        (_name(r), f"{r['needed_bytes'] / 1e6:,.0f} MB", f"{100 * r['bandwidth_share']:.0f} %")
        for r in limited
    ]
    text = (
        "Weights, inputs and results once, at the measured rate of copies, over our least time:\n"
    )
    return [text, table(heads, cells)]


def bound_calls(records: Records) -> str:
    found = records.newest("models", "models", lambda row: "bound" in row.get("peers", {}))
    if found is None:
        return ""
    rows = [
        (_name(row), _us(row["ours_ms"]), *(_us(row["peers"].get(p)) for p in _BOUND))
        for row in found.rows
    ]
    text = " `c.bind(x)` beside onnxruntime's `run_with_iobinding`; medians in microseconds."
    heads = ("model", "`c(x)`", "`c.bind(x)()`", "onnxruntime `run`", "`run_with_iobinding`")
    return "\n".join(["## Bound calls\n", found.source(text), table(heads, rows)])


_BOUND = ("bound", "onnxruntime", "onnxruntime bound")


def decoding(records: Records) -> str:
    found = records.newest("models", "decode", lambda row: True)
    if found is None:
        return ""
    heads = ("model", "ours", *_PEERS, "tokens/s", "torch / ours", "onnxruntime / ours")
    rows = [
        (
            f"{_name(row)}, {row['tokens']} tokens after {row['before']}",
            _ms(row["ours_ms"], row["ours_least_ms"]),
            *(_ms(row["peers"].get(p), row["peers_least"].get(p)) for p in _PEERS),
            f"{row['tokens_per_s']:.1f}",
            *(_ratio(row["ratios"].get(p)) for p in _PEERS),
        )
        for row in found.rows
    ]
    text = (
        " One call for each token, greedy, batch 1; the keys and values grow. Milliseconds a call."
    )
    return "\n".join(
        ["## Decoding\n", found.source(text), table(heads, rows), *_bandwidth(found.rows)]
    )


def training(records: Records) -> str:
    found = _training(records)
    if found is None:
        return ""
    rows = [
        (
            row["model"],
            str(row["batch"]),
            *(f"{1e3 * row['seconds'][who]:.0f}" for who in ("ours", "torch")),
            _ratio(_against_torch(row)),
            f"{row['compile_s']:.0f} s",
            f"{row['peak_bytes'] / 1e6:,.0f} MB",
        )
        for row in found.rows
    ]
    heads = ("model", "batch", "ours, ms", "torch, ms", "torch / ours", "compile", "memory")
    text = " A whole iteration in f32: forward, loss, backward, optimiser."
    return "\n".join(["## Training\n", found.source(text), table(heads, rows)])


def gpu(records: Records) -> str:
    found = _gpu(records)
    if found is None:
        return ""
    rows = [
        (
            row["model"],
            f"{row['ours_us']['median']:,.0f}",
            f"{row['torch_us']['median']:,.0f}",
            _ratio(row["ratio"]),
            _yes(row["equal"]),
        )
        for row in found.rows
    ]
    heads = ("model", "ours, us", "torch, us", "torch / ours", "the CPU's bits")
    parts = ["## GPU\n", found.source(" Batch 1, f32, TF32 off."), table(heads, rows)]
    steps = records.newest("training-gpu", "targets", lambda row: row["same"] is not None)
    if steps is not None:
        cells = [
            (
                r["model"],
                str(r["batch"]),
                *(_device(r, t) for t in ("cpu", "cuda")),
                _yes(r["same"]),
            )
            for r in steps.rows
        ]
        heads = ("training step", "batch", "CPU, ms", "GPU, ms", "the CPU's bits")
        parts += [steps.source(), table(heads, cells)]
    return "\n".join(parts)


def _device(row: Row, target: str) -> str:
    return next((f"{1e3 * r['seconds']:.0f}" for r in row["runs"] if r["target"] == target), "")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def compiling(records: Records) -> str:
    found = records.newest("models", "models", lambda row: "cold_s" in row)
    if found is None:
        return ""
    rows = [
        (
            _name(row),
            f"{row['cold_s']:.0f} s",
            f"{row['warm_s']:.1f} s",
            f"{row['unrecorded_s']:.1f} s",
            str(row["functions"]),
        )
        for row in found.rows
    ]
    heads = ("model", "cold", "warm", "warm, not recorded", "compiled functions")
    text = " Whole processes. Cold: no kernel is known. Warm: all are in the cache."
    parts = ["## Compile times\n", found.source(text), table(heads, rows)]
    checks = records.newest("checks", "models", lambda row: "here checked" in row)
    if checks is not None:
        cells = [
            (
                r["model"],
                *(f"{r[k]['wall']:.1f} s" for k in ("here", "here checked")),
                f"{r['here checked']['checks']:,}",
            )
            for r in checks.rows
        ]
        heads = ("model", "warm", "warm, each rewrite checked", "checks")
        parts += [checks.source(), table(heads, cells)]
    return "\n".join(parts)


def losses(records: Records) -> str:
    """The worst cases by ratio, of the same records as the tables above."""
    parts = ["## Where we lose\n"]
    found = _ops(records)
    if found is not None:
        lost = sorted((r for r in found.rows if r.get("ratio", 1) < 1), key=lambda r: r["ratio"])
        of = sum("ratio" in r for r in found.rows)
        text = f" {len(lost)} of {of} single ops are slower than torch; the worst {WORST}:"
        heads = ("op", "ours, us", "torch, us", "torch / ours", "share of the limit")
        cells = [
            (
                f"{r['family']}: {r['case']} {r['dtype']}",
                f"{r['ours_us']:,.1f}",
                f"{r['torch_us']:,.1f}",
                _ratio(r["ratio"]),
                f"{100 * r['share']:.0f} %",
            )
            for r in lost[:WORST]
        ]
        parts += [found.source(text), table(heads, cells)]
    rows = sorted(_lost_models(records), key=lambda row: row[1])
    if rows:
        cells = [(what, _ratio(ratio), name) for what, ratio, name in rows]
        text = "Models, decoding, training steps and the GPU, all rows with a ratio below 1:\n"
        parts += [text, table(("case", "ratio", "record"), cells)]
    return "\n".join(parts)


def _lost_models(records: Records) -> Iterable[tuple[str, float, str]]:
    for found, what in ((_models(records), ""), (_decode(records), "decoding ")):
        for row in found.rows if found else ():
            for peer, ratio in row["ratios"].items():
                if ratio < 1 and peer in _PEERS:
                    yield f"{what}{_name(row)} beside {peer}", ratio, _link(found)
    for found, what, ratio_of in (
        (_training(records), "training", _against_torch),
        (_gpu(records), "GPU,", lambda row: row["ratio"]),
    ):
        for row in found.rows if found else ():
            if ratio_of(row) < 1:
                yield f"{what} {row['model']} beside torch", ratio_of(row), _link(found)


def _link(found: Record) -> str:
    return f"[{found.date}](../benchmarks/results/{found.name})"


def _ops(records: Records) -> Record | None:
    return records.newest("ops", "ops", lambda row: True)


def _models(records: Records) -> Record | None:
    return records.newest("models", "models", lambda row: True)


def _decode(records: Records) -> Record | None:
    return records.newest("models", "decode", lambda row: True)


def _training(records: Records) -> Record | None:
    return records.newest("training", "curves", lambda row: True)


def _gpu(records: Records) -> Record | None:
    return records.newest("gpu", "models", lambda row: "ratio" in row)


def _against_torch(row: Row) -> float:
    return row["seconds"]["torch"] / row["seconds"]["ours"]


def _name(row: Row) -> str:
    dtype, batch = row.get("dtype", "f32"), row.get("batch", 1)
    parts = [row["model"], dtype if dtype != "f32" else "", f"batch {batch}" if batch > 1 else ""]
    return ", ".join(part for part in parts if part)


def _ms(value: float | None, least: float | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" + ("" if least is None else f" ({least:.3g})")


def _us(value: float | None) -> str:
    return "" if value is None else f"{1e3 * value:,.1f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _memory(row: Row) -> tuple[str, ...]:
    held = row.get("memory") or {}
    found = (held.get(who) for who in ("ours", "torch"))
    return tuple("" if f is None else f"{f['execute_peak_bytes'] / 1e6:,.0f} MB" for f in found)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: names to the left, figures to the right."""
    line = "|---|" + "---:|" * (len(heads) - 1)
    return "\n".join([_row(heads), line, *map(_row, rows)]) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
