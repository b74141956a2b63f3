"""``workbench memory RUN|MODEL``: the plan's peak, bound and gap; buffers; live bytes."""

from __future__ import annotations

from core_compiler.runtime.memory import show_bytes
from core_compiler.support.errors import UserError
from workbench.commands import subject
from workbench.commands.printing import emit, printable, table
from workbench.queries.numeric_results import as_count

#: Rows and columns of the live-bytes curve.
HEIGHT, WIDTH = 8, 72


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="the N largest buffers (default 10)"
    )


def run(arguments) -> None:
    if arguments.top < 0:
        raise UserError(f"expected 0 or more, got {arguments.top}", "--top", "pass 0 or more")
    with subject.recording(arguments) as opened:
        buffers, figures = opened.buffers(), opened.figures("memory")
    if not buffers:
        raise UserError(
            "no memory was planned", arguments.model, "the compile stopped before memory planning"
        )
    tiers = {
        name: summary([b for b in buffers if b.tier == name])
        for name in dict.fromkeys(b.tier for b in buffers)
    }
    peak, bound = (as_count(figures.get(name)) for name in ("arena_bytes", "lower_bound_bytes"))
    data = {
        "peak_bytes": peak,
        "lower_bound_bytes": bound,
        "gap": peak / bound - 1 if bound else 0.0,
        "tiers": tiers,
        "figures": figures,
        "live": live([b for b in buffers if b.kind == "temporary"]),
        "buffers": [
            {
                "name": b.name,
                "kind": b.kind,
                "tier": b.tier,
                "offset": b.offset,
                "size": b.size,
                "unpadded_size": b.unpadded_size,
                "start": b.start,
                "end": b.end,
                "value": b.value,
                "op": b.op,
            }
            for b in buffers
        ],
    }
    emit(arguments, data, lambda: _text(data, arguments.top))


def summary(buffers) -> dict:
    """Return the number of buffers of one tier, the bytes to its end, and the most live bytes."""
    return {
        "buffers": len(buffers),
        "bytes": max((b.offset + b.size for b in buffers), default=0),
        "live_peak": max((n for _, n in live(buffers)), default=0),
    }


def live(buffers) -> list[tuple[int, int]]:
    """Return (program position, live bytes from there on) at each change."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.start] = change.get(b.start, 0) + b.size
        change[b.end + 1] = change.get(b.end + 1, 0) - b.size
    total, curve = 0, []
    for position in sorted(change):
        total += change[position]
        curve.append((position, total))
    return curve


def drawn(curve: list[tuple[int, int]], height: int = HEIGHT, width: int = WIDTH) -> list[str]:
    """Return the curve in characters.

    A column shows the most live bytes in its part of the program.
    """
    if not curve or not (peak := max(n for _, n in curve)):
        return []
    end = max(curve[-1][0], 1)
    columns = min(width, end)
    column_peaks = [0] * columns
    for (position, size), after in zip(curve, [*(p for p, _ in curve[1:]), end], strict=True):
        first = position * columns // end
        last = max(first + 1, -(-after * columns // end))
        for column in range(first, min(last, columns)):
            column_peaks[column] = max(column_peaks[column], size)
    eighths = [round(8 * height * n / peak) for n in column_peaks]
    lines = []
    for row in reversed(range(height)):
        bar = "".join(" ▁▂▃▄▅▆▇█"[min(8, max(0, e - 8 * row))] for e in eighths)
        label = show_bytes(peak) if row == height - 1 else ""
        lines.append(f"{label:>10} |{bar.rstrip()}")
    lines.append(f"{'0':>10} +{'-' * columns} {end} steps")
    return lines


def _text(data, top: int) -> str:
    lines = [
        (
            f"arena {show_bytes(data['peak_bytes'])}, gap {100 * data['gap']:.1f}% to the "
            f"lower bound of {show_bytes(data['lower_bound_bytes'])}"
        ),
        "",
        table(
            ("tier", "buffers", "bytes", "live at most"),
            [
                (name, t["buffers"], show_bytes(t["bytes"]), show_bytes(t["live_peak"]))
                for name, t in data["tiers"].items()
            ],
            right=(1, 2, 3),
        ),
    ]
    curve = drawn([tuple(p) for p in data["live"]])
    if curve:
        lines += ["", "live bytes of the arena", *curve]
    largest = sorted(data["buffers"], key=lambda b: (-b["size"], b["offset"]))[:top]
    if largest:
        rows = [
            (
                printable(b["name"]) or f"%{b['value']}",
                b["kind"],
                b["tier"],
                b["offset"],
                show_bytes(b["size"]),
                f"{b['start']} to {b['end']}",
            )
            for b in largest
        ]
        lines += [
            "",
            table(("buffer", "kind", "tier", "offset", "size", "steps"), rows, right=(3, 4)),
        ]
    return "\n".join(lines)
