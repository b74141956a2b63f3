"""``workbench numerics RUN|MODEL``: the pass that changed the values; statistics of values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from core_compiler.support.errors import UserError
from workbench.commands import subject
from workbench.commands.printing import emit, number, painter, printable, table
from workbench.queries import numeric_results, quantisation


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "--pass",
        dest="stage",
        metavar="N|PASS",
        help="the checks of this pass (default: the first that changed bits)",
    )
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="rows of each table (default 10)"
    )


def run(arguments) -> None:
    if arguments.top < 0:
        raise UserError(f"expected 0 or more, got {arguments.top}", "--top", "pass 0 or more")
    if not subject.is_recording(arguments.model):
        arguments.check = True
    with subject.recording(arguments) as opened:
        figures = opened.figures()
        rows = numeric_results.passes(opened.stages(), figures)
        counts = numeric_results.verdicts(rows)
        framework_values = opened.framework_values()
        framework = numeric_results.framework(framework_values, figures)
        quantised = quantisation.summary(opened.stages(), figures)
        compared = any(counts.values()) or numeric_results.peer(figures) or framework
        if not compared and quantised is None:
            raise UserError(
                "no rewrite was checked",
                arguments.model,
                "compile it with --check (and --against torch to compare the import too)",
            )
        changing = numeric_results.changing(rows)
        if arguments.stage is not None:
            stage = subject.find_stage(opened, arguments.stage)
        else:
            stage = changing[0]["index"] if changing else 0
        data = {
            "verdicts": counts,
            "first_pass_that_changed_bits": changing[0]["name"] if changing else None,
            "peer": numeric_results.peer(figures),
            "passes": [row for row in rows if row["verdicts"]],
            "pass": rows[stage]["name"],
            "checks": numeric_results.checks(opened, stage),
            "values": numeric_results.values(opened),
            "findings": _findings(opened),
            "framework": framework,
            "quantised": quantised,
            "lost": quantisation.losses(opened),
            "left_in_floats": quantisation.left_in_floats(opened),
            "framework_values": numeric_results.framework_values(opened),
        }
    emit(arguments, data, lambda: _text(data, arguments.top))


def _findings(opened) -> list[dict[str, Any]]:
    """Return the findings about this run's values, the same as on other surfaces."""
    from workbench.advice.findings import of_numbers
    from workbench.queries.run import Run

    run = Run(opened.path)
    try:
        return [asdict(each) for each in of_numbers(run)]
    finally:
        run.close()


def _text(data, top: int) -> str:
    paint = painter()
    counted = ", ".join(f"{n} {verdict}" for verdict, n in data["verdicts"].items() if n)
    first = data["first_pass_that_changed_bits"]
    lines = [f"checks: {counted or 'none'}"]
    if counted:
        unchanged = "every checked pass kept every bit"
        lines.append(f"first pass that changed bits: {printable(first)}" if first else unchanged)
    if data["peer"]:
        lines.append(numeric_results.peer_line(data["peer"]))
    if data["framework"]:
        # (Differences are among the findings.)
        lines.append(numeric_results.against({**data["framework"], "beyond": None}))
    for each in data["findings"]:
        finding = printable(f"{each['severity']}: {each['title']}")
        lines.append(f"{finding} ({printable(each['detail'])})" if each["detail"] else finding)
    rows = [
        (
            r["index"],
            r["name"],
            " ".join(f"{n} {v}" for v, n in r["verdicts"].items()),
            number(r["worst"] or None),
            number(r["accumulated"]),
        )
        for r in data["passes"]
    ]
    head = ("", "pass", "checks", "worst error", "outputs against the import")
    if rows:
        lines += ["", table(head, rows, right=(0, 3, 4))]
    shown = [c for c in data["checks"] if c["verdict"] != "bitwise"][:top]
    if shown:
        title = printable(f"{data['pass']}: checks that are not bitwise")
        lines += ["", paint("bold", title), _checks(shown)]
    if data["quantised"]:
        lines += _quantised(data, top, paint)
    lines += _values(data["values"], top, paint)
    return "\n".join(lines)


def _checks(rows) -> str:
    return table(
        ("rewrite", "", "error", "allowed", "absolute", "ulps", "value", "element", "model line"),
        [
            (
                "" if r["rewrite"] is None else r["rewrite"],
                r["verdict"],
                number(r["error"]),
                number(r["tolerance"]),
                number(r["absolute"]),
                r["ulps"],
                printable(r["value"] or ""),
                r["element"] or "",
                _place(r),
            )
            for r in rows
        ],
        right=(0, 2, 3, 4, 5),
    )


def _quantised(data, top: int, paint) -> list[str]:
    """Return what quantisation lost and what stayed in floats."""
    found = data["quantised"]
    if not found["measured"]:
        return ["", "quantised; what was lost was not recorded"]
    ratio = "" if found["sqnr_db"] is None else f", {found['sqnr_db']:.1f} dB at the outputs"
    lines = ["", paint("bold", f"quantised: {found['results']} results in integers{ratio}")]
    cells = [
        (
            printable(r["name"]),
            r["kind"].partition(".")[2] or r["kind"],
            printable(r["scope"]),
            f"{r['sqnr_db']:.1f}",
            number(r["cosine"]),
            f"{100 * r['saturated']:.3g} %" if r["saturated"] else "",
            _place(r),
        )
        for r in data["lost"][:top]
    ]
    if cells:
        head = ("lost most", "op", "module", "dB", "cosine", "saturated", "model line")
        lines.append(table(head, cells, right=(3, 4, 5)))
    left = [
        (printable(r["name"]), r["kind"].partition(".")[2], printable(r["reason"]), _place(r))
        for r in data["left_in_floats"][:top]
    ]
    return [*lines, table(("in floats", "op", "why", "model line"), left)] if left else lines


def _values(rows, top: int, paint) -> list[str]:
    """Return the values with NaN or Inf, then the largest ones."""
    bad = [r for r in rows if r["nan"] or r["inf"]]
    order = sorted(rows, key=lambda r: -(r["largest"] or 0.0))
    shown = [*bad, *(r for r in order if r not in bad)][:top]
    if not shown:
        return []
    cells = [
        (
            r["stage"],
            printable(r["name"]),
            r["kind"].partition(".")[2] or r["kind"],
            number(r["minimum"]),
            number(r["maximum"]),
            number(r["mean"]),
            r["nan"] or "",
            r["inf"] or "",
            _place(r),
        )
        for r in shown
    ]
    head = ("stage", "value", "op", "min", "max", "mean", "NaN", "Inf", "model line")
    title = f"{len(rows)} values on the example inputs, {len(bad)} with NaN or Inf, largest first"
    return ["", paint("bold", title), table(head, cells, right=(0, 3, 4, 5, 6, 7))]


def _place(row) -> str:
    return f"{printable(row['file'])}:{row['line']}" if row["file"] else ""
