"""The coverage of each framework's ops, from the translation tables and the frameworks' op lists.

``python -m core_compiler.frontends.coverage`` writes ``docs/coverage.md``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
#: Contains the counts between two marks.
README = PAGE.parents[1] / "README.md"
_MARKS = "<!-- coverage -->", "<!-- end of coverage -->"
#: An op has a translation; it is expanded to ops that have one; neither.
SUPPORTED, COMPOSED, MISSING = STATUSES = ("supported", "composed", "missing")
#: ONNX's domains (without ``ai.onnx.ml``: trees and text).
ONNX_DOMAINS = ("", "ai.onnx.preview", "ai.onnx.preview.training")


@dataclass(frozen=True)
class Entry:
    """An op and its coverage.

    ``group`` is its domain or set, ``since`` the version of its definition (0: unspecified), ``of``
    the ops that it is composed of, as far as its definition names them.
    """

    op: str
    group: str
    since: int
    status: str
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """The ops of one framework in the installed version."""

    frontend: str
    library: str
    entries: tuple[Entry, ...]

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(entry.status for entry in self.entries)
        return {status: found[status] for status in STATUSES}


def onnx() -> Coverage:
    """Return every op of ONNX at its newest version, and the supported ops of ``com.microsoft``."""
    import onnx as library

    from core_compiler.frontends.onnx import ops

    newest: dict[tuple[str, str], library.defs.OpSchema] = {}
    for schema in library.defs.get_all_schemas_with_history():
        key = schema.domain, schema.name
        if (
            schema.domain in ONNX_DOMAINS
            and not schema.deprecated
            and (key not in newest or newest[key].since_version < schema.since_version)
        ):
            newest[key] = schema
    table, entries = ops.TABLE, []
    for (domain, name), schema in newest.items():
        own = _key(domain, name)
        status, of = (SUPPORTED, ()) if own in table else _composed(schema, table, library)
        entries.append(Entry(own, domain or "ai.onnx", schema.since_version, status, of))
    entries += [
        Entry(name, name.rpartition("::")[0], 0, SUPPORTED)
        for name in table
        if name.startswith("com.microsoft::")
    ]
    return Coverage("onnx", f"onnx {version('onnx')}", _sorted(entries))


def _key(domain: str, name: str) -> str:
    return f"{domain}::{name}" if domain else name


def _composed(schema, table, library) -> tuple[str, tuple[str, ...]]:
    if schema.has_function:
        text = schema.get_function_with_opset_version(schema.since_version)
        nodes = library.FunctionProto.FromString(text).node
        of = tuple(dict.fromkeys(_key(n.domain, n.op_type) for n in nodes))
        return (COMPOSED if all(kind in table for kind in of) else MISSING), of
    return (COMPOSED if schema.has_context_dependent_function else MISSING), ()


def pytorch() -> Coverage:
    """Return the ops that torch tags as core ATen."""
    import torch

    from core_compiler.frontends.pytorch.decompositions import decomposable, has_translation

    entries = []
    # dir(torch.ops.aten) only lists the ops that have been used so far.
    for name in sorted(set(torch._C._dispatch_get_all_op_names())):
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            status = (
                SUPPORTED if has_translation(str(op)) else COMPOSED if decomposable(op) else MISSING
            )
            entries.append(Entry(str(op), "core ATen", 0, status))
    return Coverage("pytorch", f"torch {version('torch')}", _sorted(entries))


def stablehlo() -> Coverage:
    """Return the ops of StableHLO and CHLO, the ops of JAX's programs."""
    from jaxlib.mlir import dialects

    from core_compiler.frontends.stablehlo import ops

    entries = []
    for group in ("stablehlo", "chlo"):
        held = importlib.import_module(f"{dialects.__name__}.{group}")
        kinds = {getattr(each, "OPERATION_NAME", "") for each in vars(held).values()}
        for kind in sorted(kind for kind in kinds if kind.startswith(f"{group}.")):
            if kind in (f"{group}.return", "stablehlo.custom_call"):
                continue  # the terminator of a region; a call is translated by its target
            status, of = (SUPPORTED, ()) if kind in ops.TABLE else _legalised(kind)
            entries.append(Entry(kind, group, 0, status, of))
    return Coverage("stablehlo", f"jaxlib {version('jaxlib')}", _sorted(entries))


def _legalised(kind: str) -> tuple[str, tuple[str, ...]]:
    """Return the coverage of an op by StableHLO's own legalisation, and the ops it expands to."""
    from core_compiler.frontends.stablehlo.ops import TABLE
    from core_compiler.frontends.stablehlo.ops.composed import block_of, expansion
    from core_compiler.frontends.stablehlo.reading import NotSupported, context

    if not kind.startswith("chlo."):
        return MISSING, ()
    with context() as made:
        for arity in (1, 2, 3):
            try:
                module = expansion(made, kind, ["tensor<2xf32>"] * arity, ["tensor<2xf32>"])
            except NotSupported:
                continue
            names = [each.operation.name for each in block_of(module).operations]
            of = tuple(n for n in dict.fromkeys(names) if n != "func.return")
            return (COMPOSED if all(name in TABLE for name in of) else MISSING), of
    return MISSING, ()


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda e: (e.group, e.op.lower())))


GENERATED = (
    "<!-- Generated by `python -m core_compiler.frontends.coverage`; edit the tables of "
    "translations instead. -->"
)
ABOUT = (
    "*Supported* ops have a translation of their own; *composed* ones are put in place as the ops "
    "that their framework defines them by. A use of a supported op may still be refused: the error "
    "names the node, its line and why."
)
#: Frontend -> its coverage function, which imports the framework when it is called.
FRONTENDS: dict[str, Callable[[], Coverage]] = {
    "onnx": onnx,
    "pytorch": pytorch,
    "stablehlo": stablehlo,
}


#: Attributes of ONNX on which its specification, its reference evaluator and onnxruntime disagree:
#: the behaviour of each, and the one that the import follows.
DISAGREE = (
    ("a length of 0 in `sequence_lens` of `LSTM`, `GRU`, `RNN`", "nothing", "ignores lengths",
     "`Y_h` and `Y_c` are 0", "neither: the initial state, which no step has changed"),
    ("`mask` of a `Dropout` that drops nothing, before opset 12", "nothing", "true",
     "0, in the input's dtype before opset 10", "onnxruntime"),
    ("`clip` of `LSTM`, `GRU`, `RNN`", "bounds the input of activations", "ignores it",
     "bounds the sums of the gates, not the cell that an LSTM's last activation reads",
     "onnxruntime: models were trained and tested with it, and the text can be read so"),
    ("`Resize` with `align_corners` or `tf_crop_and_resize`, size times scale not whole",
     "divides by the resized length - 1, and does not say whether it is rounded",
     "takes the length with its fraction", "rounds the length down",
     "the reference evaluator: the standard's test data are its results"),
    ("`Resize` with `pytorch_half_pixel`, an axis that becomes 1 long", "position 0",
     "position 0 only where size times scale is 1", "position 0", "the text"),
    ("a float mask of `Attention` that hides every key of a query", "nothing",
     "0", "0", "both: the output of that query is 0"),
    ("`Sign` of NaN", "nothing", "NaN", "NaN", "both (PyTorch's `sign` gives 0, here too)"),
    ("`MeanVarianceNormalization` of equal elements", "adds 1e-9 to the deviation: 0",
     "the text's", "divides by the deviation itself: NaN", "the text"),
    ("`Clip` of an infinity towards a bound that is not given, from opset 11",
     "the largest finite value of the dtype", "the infinity", "the text's",
     "the reference evaluator: no bound is none"),
    ("`MaxPool` and `GlobalMaxPool` of a window of negative infinities", "nothing",
     "negative infinity", "the lowest finite number", "the reference evaluator"),
    ("`DynamicQuantizeLinear` of zeros", "a scale of 0", "1/255", "1", "onnxruntime"),
    ("`Div` and `Mod` of integers by 0, and of the lowest number by -1", "nothing",
     "NumPy's results", "ends the process",
     "the numerics contract: 0 for a divisor of 0, else the result wraps"),
)  # fmt: skip


def _disagreements() -> list[str]:
    head = "| attribute or case | the text | reference evaluator | onnxruntime | followed here |"
    rows = [f"| {' | '.join(row)} |" for row in DISAGREE]
    return ["", "### Where the sources of ONNX disagree", "", head, "|---|---|---|---|---|", *rows]


def page(found: Iterable[Coverage]) -> str:
    """Return the text of ``docs/coverage.md``."""
    lines = ["# Ops of the frameworks", "", GENERATED, "", ABOUT]
    for coverage in found:
        counts = ", ".join(f"{n} {status}" for status, n in coverage.counts.items())
        lines += ["", f"## {coverage.frontend} ({coverage.library}): {counts}"]
        for group in dict.fromkeys(entry.group for entry in coverage.entries):
            mine = [entry for entry in coverage.entries if entry.group == group]
            lines += ["", f"### {group}", ""]
            for status in STATUSES:
                named = [f"`{_local(e)}`" for e in mine if e.status == status]
                if named:
                    lines += [f"**{status}** ({len(named)}): {', '.join(named)}", ""]
            lines.pop()
        if coverage.frontend == "onnx":
            lines += _disagreements()
    return "\n".join(lines) + "\n"


def _local(entry: Entry) -> str:
    return entry.op.removeprefix(f"{entry.group}::").removeprefix("aten.")


def readme(text: str, found: Iterable[Coverage]) -> str:
    """Return ``text`` with the current counts between its marks."""
    rows = ["| ops of | supported | composed | missing |", "|---|---|---|---|"]
    for coverage in found:
        counts = " | ".join(str(n) for n in coverage.counts.values())
        rows.append(f"| {coverage.frontend} ({coverage.library}) | {counts} |")
    before, _, rest = text.partition(_MARKS[0])
    after = rest.partition(_MARKS[1])[2]
    return "\n".join([before + _MARKS[0], *rows, _MARKS[1]]) + after


if __name__ == "__main__":
    made = [make() for make in FRONTENDS.values()]
    PAGE.write_text(page(made))
    README.write_text(readme(README.read_text(), made))
