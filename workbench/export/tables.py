"""The tables of the page for export: every row, no limit, units in the names.

Each is made by the same functions as its view. The schema's own tables are `Recording.tables`;
names are unique across both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from core_compiler.record.tables import Table
from core_compiler.support.errors import UserError, nearest
from workbench.advice import advise
from workbench.advice.findings import problems
from workbench.export.shown_table import PageTable, Row
from workbench.queries import kernel_table, memory_plans, numeric_results, quantisation
from workbench.queries.run import Run
from workbench.state.view_state import ViewState
from workbench.views import (
    memory,
    overview,
    passes,
    pipeline,
    rewrites,
    source,
    timeline,
)

#: The number of iterations read at once.
_PAGE = 20_000


def tables(run: Run, other: Run | None = None) -> dict[str, list[Table]]:
    """Return all tables of a recording in two families, ``page`` and ``schema``.

    For two recordings also ``compare``.
    """
    found = {
        "page": [shown.table(name, run) for name, shown in PAGE.items()],
        "schema": run.recording.tables(),
    }
    if other is not None:
        from workbench.export import pair_tables

        found["compare"] = pair_tables.tables(run, other)
    return found


def find(run: Run, name: str, other: Run | None = None) -> Table:
    """Return the table of a name; UserError lists similar names, or all."""
    every = {table.name: table for family in tables(run, other).values() for table in family}
    if name not in every:
        if other is None and name.startswith("two_"):
            raise UserError(f"table {name} needs a second recording", "--table", "pass --other RUN")
        fix = nearest(name, every, f"tables: {', '.join(every)}")
        raise UserError(f"unknown table {name!r}", "--table", fix)
    return every[name]


# -- the passes -----------------------------------------------------------------------------------


def _passes(run: Run) -> Iterator[Row]:
    found = numeric_results.passes(run.stages(), run.figures())
    for row, number in zip(passes.data((run,), ViewState())["stages"], found, strict=True):
        counts = {v: number["verdicts"].get(v, 0) for v in numeric_results.ORDER}
        yield {**row, **number, **(counts if number["verdicts"] else {})}


def _rewrites(run: Run) -> Iterator[Row]:
    for stage in run.stages():
        for step in run.recording.rewrites(stage.index):
            yield {"stage": stage.index, "pass": stage.pass_name, **rewrites.row(run, step)}


def _checks(run: Run) -> Iterator[Row]:
    for stage in run.stages():
        if stage.verdicts:
            for row in numeric_results.checks(
                run.recording, stage.index, place=run.source_location
            ):
                yield {"stage": stage.index, "pass": stage.pass_name, **row}


def _pipeline(run: Run) -> Iterator[Row]:
    for at, row in enumerate(pipeline.data((run,), ViewState())["shown"]["rows"]):
        yield {**row, "position": at}


# -- the run --------------------------------------------------------------------------------------


def _figures(run: Run) -> Iterable[Row]:
    return overview.data((run,), ViewState())["figures"]


def _findings(run: Run) -> Iterator[Row]:
    for each in problems(run):
        yield vars(each)


def _advice(run: Run) -> Iterator[Row]:
    for each in advise(run):
        cost = {} if each.cost is None else {f"cost_{k}": v for k, v in vars(each.cost).items()}
        tries = [
            {"sentence": t.sentence, "edit": t.words, "command": t.command} for t in each.tries
        ]
        evidence = [fact.text for fact in each.evidence]
        yield {**vars(each), **cost, "evidence": evidence, "tries": tries}


def _phases(run: Run) -> Iterable[Row]:
    return overview.data((run,), ViewState())["phases"]


def _iterations(run: Run) -> Iterator[Row]:
    at, rows = run.recording.iterations(0, _PAGE)
    while rows:
        for row in rows:
            yield {
                name: getattr(row, name)
                for name in ("number", "loss", "seconds", "root", "rate", "loss_scale", "skipped")
            }
        at, rows = run.recording.iterations(at, _PAGE)


# -- kernels --------------------------------------------------------------------------------------


def _launches(run: Run) -> Iterator[Row]:
    found = timeline.data((run,), ViewState())
    columns, names = found["launches"], found["kernels"]
    categories = [found["categories"][at] for at in names["category"]]
    for at, kernel in enumerate(columns["kernel"].tolist()):
        yield {
            "launch": at,
            "kernel": names["name"][kernel],
            "category": categories[kernel],
            "op": None if columns["op"][at] < 0 else columns["op"][at],
            "place": found["places"][columns["place"][at]],
            **{name: _measured(columns[name][at]) for name in ("median", "min", "p95")},
            "flops": columns["flops"][at],
            "bytes": columns["bytes"][at],
            "percent": found["percent"][at] if "percent" in found else None,
        }


def _measured(value: float) -> float | None:
    """Return the value, or None for NaN: the timeline's mark of unmeasured values."""
    return None if value != value else value


def _spans(run: Run) -> Iterator[Row]:
    found = timeline.data((run,), ViewState())
    columns, launches, names = found["spans"], found["launches"], found["kernels"]["name"]
    for at, launch in enumerate(columns["launch"].tolist()):
        yield {
            "launch": launch,
            "kernel": names[launches["kernel"][launch]],
            "lane": found["lanes"][columns["lane"][at]],
            "start": columns["start"][at],
            "duration": columns["duration"][at],
            "recorded": found["recorded"],
        }


def _samples(run: Run) -> Iterator[Row]:
    for timing in run.timings():
        for repeat, us in enumerate(timing.samples_us.tolist()):
            yield {"launch": timing.launch, "kernel": timing.kernel, "repeat": repeat, "us": us}


# -- memory ---------------------------------------------------------------------------------------


def _buffers(run: Run) -> Iterator[Row]:
    found = memory.data((run,), ViewState())
    columns = found["buffers"]
    for at, key in enumerate(columns["key"].tolist()):
        yield {
            **{name: columns[name][at] for name in columns},
            "id": key,
            "tier": found["tiers"][columns["tier"][at]]["name"],
            "kind": found["categories"][columns["category"][at]],
            "op": None if columns["op"][at] < 0 else columns["op"][at],
        }


# -- the model's lines ----------------------------------------------------------------------------


def _lines(of_nodes: bool) -> Callable[[Run], Iterator[Row]]:
    def rows(run: Run) -> Iterator[Row]:
        for file in source.data((run,), ViewState(stage=max(0, run.version.stages - 1)))["files"]:
            if (file["path"] == source.NODES) != of_nodes:
                continue
            texts = (file["text"] or "").split("\n")
            for row in file["rows"]:
                line = texts[row["line"] - 1] if 0 < row["line"] <= len(texts) else ""
                check = {f"check_{name}": v for name, v in row.get("check", {}).items()}
                text = row["text"] if of_nodes else line.strip() or row["text"]
                yield {**row, **check, "file": file["path"], "text": text}

    return rows


def _values(run: Run) -> Iterable[Row]:
    return numeric_results.values(run.recording, place=run.source_location)


def _framework_values(run: Run) -> Iterable[Row]:
    return numeric_results.framework_values(run.recording, run.source_location)


def _quantised_values(run: Run) -> Iterable[Row]:
    return quantisation.losses(run.recording, run.source_location)


def _float_ops(run: Run) -> Iterable[Row]:
    return quantisation.left_in_floats(run.recording, run.source_location)


_AMOUNTS = (
    "own_us:r=us own_bytes:r=bytes own_flop:r=flops with_calls_us:r=all_us"
    " with_calls_bytes:r=all_bytes with_calls_flop:r=all_flops ops_at_import:i=import"
    " ops_at_end:i=now check_verdict:t check_worst_error:r=check_error checks:i=check_count"
    " check_stage:i check_rewrite:i op:i kernel:i"
)

#: The tables of the page by name, in the order of the views.
PAGE: Mapping[str, PageTable] = {
    "figures": PageTable("overview", "a figure of the run", "label:t value:r unit:t text:t hint:t",
                     _figures),
    "findings": PageTable("overview", "something to look at, worst first",
                      "severity:t title:t detail:t go:t", _findings),
    "advice": PageTable(
        "overview", "a hazard, the most severe first, then by cost (lists are JSON)",
        "severity:t hazard:t title:t detail:t cost:r=cost_value cost_unit:t cost_estimated:b"
        " cost_how:t cost_part:r evidence:t tries:t go:t", _advice),
    "phases": PageTable("overview", "a phase of a training step",
                    "phase:t stage:i ops:i launches:i time_us:r=us", _phases),
    "passes": PageTable(
        "rail", "a pass: ops after it, what it changed, its checks",
        "stage:i=index pass:t=name summary:t half:t changed:b exact:b ops:i ops_change:i=change"
        " rewrites:i time_s:r=seconds bitwise:i within:i failed:i unchecked:i worst_error:r=worst"
        " accumulated_error:r=accumulated", _passes),
    "rewrites": PageTable(
        "rewrites", "one rule application",
        "stage:i pass:t rewrite:i=n rule:t time_us:r=us verdict:t error:r ops_before:i=before"
        " ops_after:i=after note:t name:t place:t scope:t", _rewrites),
    "lines": PageTable("source", "a line of the model's source, with what it costs",
                   f"file:t line:i text:t {_AMOUNTS}", _lines(False)),
    "nodes": PageTable("source", "a node of the imported graph, with what it costs",
                   f"number:i=line name:t=text kind:t scope:t {_AMOUNTS}", _lines(True)),
    "kernels": PageTable(
        "kernels", "a kernel, the most expensive first",
        "id:i name:t launches:i=count core:b cached:b compile_s:r=compile_seconds"
        " schedule_steps:i=steps place:t op:i median_us:r min_us:r=min_us p95_us:r total_us:r"
        " share:r predicted_us:r predicted_share:r times_predicted:r=ratio"
        " percent_of_limit:r=percent bound:t work_flop:r=flops moved_bytes:r=bytes"
        " flop_per_byte:r=intensity gflop_per_s:r=gflops gb_per_s:r=gbytes_per_s"
        " threads_per_block:r=threads registers_per_thread:r=registers"
        " shared_bytes:r=shared spilled_bytes:r=spilled occupancy:r occupancy_limit:t",
        kernel_table.table),
    "launches": PageTable(
        "timeline", "a launch of one execution, in program order",
        "launch:i kernel:t category:t op:i place:t median_us:r=median min_us:r=min p95_us:r=p95"
        " work_flop:r=flops moved_bytes:r=bytes percent_of_limit:r=percent", _launches),
    "spans": PageTable(
        "timeline", "a launch on a thread or stream in one execution (recorded false: laid end to"
        " end)", "launch:i kernel:t lane:t start_us:r=start duration_us:r=duration recorded:b",
        _spans),
    "samples": PageTable("timeline", "one timed repeat of a launch",
                     "launch:i kernel:t repeat:i time_us:r=us", _samples),
    "buffers": PageTable(
        "memory", "a placed buffer; alive from step `first` to before step `end`",
        "id:i name:t tier:t kind:t offset_bytes:i=offset size_bytes:i=size"
        " unpadded_bytes:i=unpadded first:i=start end:i op:i type:t what:t place:t", _buffers),
    "peaks": PageTable("memory", "the most bytes alive after a pass",
                   "stage:i pass:t peak_bytes:i=bytes op:i changed:b", memory.passes),
    "planners": PageTable("memory", "the arena that a planner needs for the recorded buffers",
                      "planner:t arena_bytes:i=bytes lower_bound_bytes:i=bound time_ms:r=ms used:b",
                      memory_plans.planners),
    "recomputations": PageTable(
        "memory", "a plan of what a training step computes again",
        "held_bytes:i=held part_of_saved:r=part extra_work:r=extra extra_work_bound:r=bound"
        " peak_bytes:i=peak launches_again:i=again chosen:b", memory_plans.again),
    "checks": PageTable(
        "numerics", "a rewrite or kernel checked on tensors, the worst of each pass first",
        "stage:i pass:t rewrite:i rule:t verdict:t error:r tolerance:r absolute:r ulps:i old:r"
        " new:r value:t type:t element:t op:i kind:t file:t line:i time_s:r=seconds note:t",
        _checks),
    "values": PageTable(
        "numerics", "statistics of a value on the example inputs",
        "stage:i place:i value:i name:t type:t op:i kind:t kernel:t file:t line:i scope:t minimum:r"
        " maximum:r mean:r nan:i inf:i first_bad:b histogram:t=bins", _values),
    "framework_values": PageTable(
        "numerics", "a value of the import beside that of the model's framework",
        "place:i framework:t node:t name:t type:t same:b error:r absolute:r ulps:i element:t"
        " theirs:r ours:r op:i kind:t file:t line:i scope:t", _framework_values),
    "quantised_values": PageTable(
        "numerics", "what a value lost when it became integers, worst first (histograms are JSON)",
        "place:i stage:i value:i name:t type:t integers:t sqnr_db:r cosine:r saturated:r minimum:r"
        " maximum:r low:r high:r alone_db:r edges:t floats:t dequantised:t op:i kind:t file:t"
        " line:i scope:t", _quantised_values),
    "float_ops": PageTable(
        "numerics", "an op that stayed in floats when the model was quantised",
        "place:i name:t type:t reason:t op:i kind:t file:t line:i scope:t", _float_ops),
    "iterations": PageTable(
        "training", "an iteration of a training run",
        "iteration:i=number loss:r time_s:r=seconds receipt_root:t=root learning_rate:r=rate"
        " loss_scale:r updates_left_out:i=skipped", _iterations),
    "pipeline": PageTable(
        "pipeline", "a pass of the pipeline, skipped ones too",
        "position:i pass:t=label half:t mandatory:b exact:b tolerance:t skipped:b limit:i repeat:b"
        " own:b options:t requires:t ensures:t ends:t", _pipeline),
}  # fmt: skip
