"""``workbench targets``: the installed targets; ``--ops``: the ops they support."""

from __future__ import annotations

from workbench.commands.printing import emit, painter, table
from workbench.support import units


def add_arguments(parser) -> None:
    parser.add_argument(
        "--ops", action="store_true", help="the op set, and how each target runs each op"
    )


def run(arguments) -> None:
    from core_compiler import targets

    found = {name: targets.target(name) for name in targets.names()}
    rows = [
        {
            "name": name,
            "summary": t.summary,
            "missing": t.available(),
            "options": dict(t.options),
            "host": t.host.name if t.host else None,
        }
        for name, t in found.items()
    ]
    if arguments.ops:
        ops = [_op(kind, found) for kind in _registry()]
        emit(arguments, {"targets": rows, "ops": ops}, lambda: _ops(ops, list(found)))
        return
    cells = [
        (r["name"], r["summary"], "can execute here" if r["missing"] is None else r["missing"])
        for r in rows
    ]
    options = [(t.name, name, does) for t in found.values() for name, does in t.options.items()]

    def text() -> str:
        targets_text = table(("target", "", "this machine"), cells)
        return (
            f"{targets_text}\n\n{table(('target', 'option', ''), options)}"
            if options
            else targets_text
        )

    emit(arguments, {"targets": rows}, text)


def _registry():
    from core_compiler import ops

    return ops.REGISTRY.values()


def _op(declared, found) -> dict:
    """Return how an op runs: ``kernel`` (it has a lowering), ``decomposed`` or ``not yet``."""
    how = (
        "kernel"
        if declared.lower is not None
        else "decomposed"
        if declared.decompose
        else "not yet"
    )
    return {
        "op": declared.kind,
        "family": declared.family,
        "operands": list(declared.operands),
        "attributes": list(declared.attributes),
        "summary": declared.summary,
        "targets": {name: _runs(target, declared, how) for name, target in found.items()},
    }


def _runs(target, declared, how: str) -> str:
    claimed = getattr(target, "claimed_kinds", ())
    return "whole" if declared.kind in claimed else how


def _ops(ops, names) -> str:
    paint = painter()
    lines, family = [], None
    rows = [
        (
            f"{o['op']}({', '.join(o['operands'])})",
            *(o["targets"][n] for n in names),
            " ".join(o["attributes"]),
            o["summary"],
        )
        for o in ops
    ]
    shown = table(("op", *names, "attributes", ""), rows).splitlines()
    lines.append(paint("bold", shown[0]))
    for op, line in zip(ops, shown[1:], strict=True):
        if op["family"] != family:
            family = op["family"]
            lines.append(paint("cyan", family))
        lines.append(line)
    lines.append(units.counted(len(ops), "op"))
    return "\n".join(lines)
