"""Comparison tables of two recordings for export: every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial

from core_compiler.record.tables import Table
from workbench.export.shown_table import PageTable, Row
from workbench.queries import buffer_pairs, compared, line_pairs, rule_counts, value_pairs
from workbench.queries.pairs import pairs
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import compare


def tables(run: Run, other: Run) -> list[Table]:
    """Return the tables of two recordings.

    In their columns ``a`` is ``run`` and ``b`` is ``other``.
    """
    made = []
    for name, (view, what, columns, rows) in _TABLES.items():
        made.append(PageTable(view, what, columns, partial(rows, other=other)).table(name, run))
    return made


def _with_sides(row: Row) -> Row:
    """Return a row with the entries of its sides as columns: ``a_x``, ``b_x``."""
    sides = {
        f"{side}_{name}": value for side in ("a", "b") for name, value in (row[side] or {}).items()
    }
    return {**{k: v for k, v in row.items() if k not in ("a", "b")}, **sides}


def _listed(section: str) -> Callable[[Run, Run], Iterable[Row]]:
    return lambda run, other: compare.data((run, other), ViewState())[section]


def _passes(run: Run, other: Run) -> Iterator[Row]:
    yield from map(_with_sides, compare.data((run, other), ViewState())["passes"])


def _rewrites(run: Run, other: Run) -> Iterator[Row]:
    yield from map(_with_sides, rule_counts.rules(run, other))


def _lines(run: Run, other: Run) -> Iterator[Row]:
    yield from map(_with_sides, line_pairs.lines(run, other)["rows"])


def _kernels(run: Run, other: Run) -> Iterator[Row]:
    for row in compared.kernels_of(run, other)["kernels"]:
        yield _named(row)


def _launches(run: Run, other: Run) -> Iterator[Row]:
    for pair in pairs(run, other):
        yield _named(compared.launch(run, other, pair))


def _named(row: Row) -> Row:
    """Return a pair of kernels or launches, with kernels by name."""
    return _with_sides(
        {
            **row,
            **{
                side: row[side]
                and {**row[side], "kernels": [k["name"] for k in row[side]["kernels"]]}
                for side in ("a", "b")
            },
        }
    )


def _buffers(run: Run, other: Run) -> Iterator[Row]:
    ones, twos = ({b.id: asdict(b) for b in each.buffers()} for each in (run, other))
    for same in buffer_pairs.same_buffers(run, other):
        sides = {"a": ones[same.first], "b": twos[same.second]}
        yield {"how": same.how, "why": same.why, **_with_sides(sides)}


def _values(run: Run, other: Run) -> Iterator[Row]:
    yield from map(_with_sides, value_pairs.values(run, other)[0])


def _iterations(run: Run, other: Run) -> Iterator[Row]:
    a, b = run.iterations(), other.iterations()
    for number in sorted(a.keys() | b.keys()):
        one, two = a.get(number), b.get(number)
        yield {
            "iteration": number,
            "a_loss": one and one.loss,
            "b_loss": two and two.loss,
            "a_root": one and one.root,
            "b_root": two and two.root,
        }


def _both(columns: str) -> str:
    """Return columns for each side, ``name:kind`` or ``name:kind=key``, those of ``a`` first."""
    made = []
    for side in ("a", "b"):
        for text in columns.split():
            name, _, kind = text.partition(":")
            kind, _, key = kind.partition("=")
            made.append(f"{side}_{name}:{kind}={side}_{key or name}")
    return " ".join(made)


_WORK = _both(
    "kernels:t launches:i=count time_us:r=us measured:b predicted_us:r gflop_per_s:r=gflops"
    " registers_per_thread:r=registers shared_bytes:r=shared spilled_bytes:r=spilled occupancy:r"
)
_BUFFER = _both(
    "id:i name:t tier:t kind:t offset_bytes:i=offset size_bytes:i=size first:i=start end:i op:i"
)
_VALUE = _both(
    "stage:i value:i name:t type:t op:i kind:t kernel:t file:t line:i minimum:r maximum:r mean:r"
    " nan:i inf:i"
)
_RULE = _both("stage:i count:i removed_ops:i=removed time_us:r=us error:r failed:i")
_LINE = _both(
    "line:i op:i kernel:i own_us:r=us with_calls_us:r=all_us own_bytes:r=bytes"
    " ops_at_import:i=import ops_at_end:i=now"
)
_MATCH = "how:t why:t"

#: Name -> view, description of a row, columns, rows.
_TABLES: Mapping[str, tuple[str, str, str, Callable[..., Iterable[Row]]]] = {
    "two_facts": ("compare", "what the two recordings are", "name:t a:t b:t equal:b hint:t",
                  _listed("facts")),
    "two_figures": ("compare", "a figure of both", "section:t name:t unit:t a:r b:r hint:t",
                    _listed("figures")),
    "two_passes": ("compare", "a pass of either pipeline",
                   f"pass:t=name {_both('stage:i=index ops:i rewrites:i time_ms:r=ms error:r')}",
                   _passes),
    "two_rewrites": (
        "rewrites", "a rule of a pass, as it applied in both",
        f"pass:t rule:t {_RULE}", _rewrites),
    "two_lines": (
        "source", "a line of the model that both have, or one",
        f"file:t line:i text:t {_LINE}", _lines),
    "two_kernels": ("kernels", "kernels that compute the same (lists are JSON)",
                    f"title:t place:t op:i {_WORK}", _kernels),
    "two_launches": ("timeline", "launches that compute the same (lists are JSON)",
                     f"title:t place:t op:i {_WORK}", _launches),
    "two_buffers": (
        "memory", "a buffer that both have, and how it was matched",
        f"{_MATCH} {_BUFFER}", _buffers),
    "two_values": (
        "numerics", "a value that both have, how it was matched, and how far apart it is",
        f"part:t {_MATCH} differs:b exact:b difference:r relative:r ulps:i unequal:i {_VALUE}",
        _values),
    "two_iterations": ("training", "an iteration of either training run",
                       "iteration:i a_loss:r b_loss:r a_root:t b_root:t", _iterations),
}  # fmt: skip
