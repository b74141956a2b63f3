"""Reading of a recording: its stages as IR, and everything else in it.

A recording can be opened while it is being written and shows what is there so far; ``stages()``
grows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.ir.core import Function, Module, Op, Value
from core_compiler.ir.diff import ModuleDiff, diff
from core_compiler.ir.events import (
    CheckRecord,
    Diagnostic,
    FloatOpRecord,
    FrameworkRecord,
    IterationRecord,
    QuantisationRecord,
    QuantisedRecord,
    TensorStats,
)
from core_compiler.ir.line_diff import AlignedLines, diff_lines
from core_compiler.ir.rewriter import Rewrite
from core_compiler.ir.text import LineTable, line_table, print_module
from core_compiler.ir.weights import WeightStore
from core_compiler.record.encoding import inflate, read_ids, read_json_rows
from core_compiler.record.file import QueryResult, RecordingFile, is_running
from core_compiler.record.history import OpHistory, op_history, presence
from core_compiler.record.links import Links, carriers
from core_compiler.record.loader import Loader
from core_compiler.record.recorder import machine_id
from core_compiler.record.schema import MAX_LENGTH, OF_TENSORS, VERSION
from core_compiler.record.tables import Table, tables
from core_compiler.support.errors import UserError


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage without its module.

    ``rewrites`` and ``ops`` are counts (``ops`` as the compile reported them, if it did);
    ``verdicts`` counts checks by verdict; ``worst_error`` is the largest one of tensors (None:
    unchecked).
    """

    index: int
    pass_name: str
    summary: str
    options: Mapping[str, Any]
    half: str
    exact: bool
    tolerance_class: str
    changed: bool
    seconds: float
    figures: Mapping[str, float]
    rewrites: int
    ops: int
    verdicts: Mapping[str, int]
    worst_error: float | None


@dataclass(frozen=True, eq=False, slots=True)
class RecordedRewrite:
    """A rewrite with its id, its number within the stage, and its check (None: unchecked)."""

    id: int
    stage: int
    number: int
    rewrite: Rewrite
    check: CheckRecord | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel without its texts (see ``Recording.kernel_text``).

    ``ops`` and ``launches`` are op ids; ``line_map`` has (source line, op id), ``intermediate_map``
    and ``assembly_map`` (its line, source line); ``facts`` name their formats (``LLVM IR``,
    ``PTX``...).
    """

    id: int
    name: str
    key: str
    cached: bool
    compile_seconds: float
    line_map: list[tuple[int, int]]
    intermediate_map: list[tuple[int, int]]
    assembly_map: list[tuple[int, int]]
    facts: Mapping[str, Any]
    ops: tuple[int, ...]
    launches: tuple[int, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A placed buffer, as in ``events.BufferRecord``; ``value`` and ``op`` are ids."""

    id: int
    value: int | None
    op: int | None
    name: str
    kind: str
    tier: str
    offset: int
    size: int
    unpadded_size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured launch; times in microseconds; ``op`` is an id."""

    launch: int
    kernel: str
    op: int | None
    threads: int
    flops: int
    bytes: int
    median_us: float | None
    min_us: float | None
    p95_us: float | None
    samples_us: np.ndarray


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution of the recorded program.

    The start (Unix time), the machine, the digest of its outputs ("" if seeded values stood in for
    weights), and the total times in microseconds (``samples_us``: [] in older recordings).
    """

    id: int
    began: float
    machine: str
    threads: int
    digest: str
    median_us: float | None
    samples_us: np.ndarray


class Recording:
    """A recording opened for reading.

    Ops, values and origins are real IR objects, and an id is the same object in every stage.  All
    methods raise UserError if the file is damaged.
    """

    def __init__(self, path: str | Path, weights: WeightStore | None = None):
        self._file = RecordingFile(path)
        self.path = self._file.path
        self.weights = WeightStore() if weights is None else weights
        self._loader = Loader(self._file, self.weights)
        self._links = Links(self._rows)

    @staticmethod
    def open(path: str | Path, weights: WeightStore | None = None) -> Recording:
        """Open a recording; ``weights`` is the store that its modules' weights come from."""
        return Recording(path, weights)

    def close(self) -> None:
        self._file.close()

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """A value that changes when the file is written, or None if the file is gone.

        It consists of inode, size in bytes, and modification time in ns.
        """
        return self._file.stamp

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_old(self) -> bool:
        """True if it has an older schema: it can be read, but nothing can be added to it."""
        with self._reading():
            return self._file.version < VERSION

    @contextmanager
    def _reading(self) -> Iterator[Loader]:
        with self._file.connection():
            yield self._loader

    def _rows(self, columns: str, statement: str, parameters: tuple = ()) -> list[tuple]:
        return self._file.rows(columns, statement, parameters)

    # -- the run ---------------------------------------------------------------------------------

    def meta(self) -> dict[str, Any]:
        """Return facts about the run: model, target, versions, machine, ``status``..."""
        with self._reading():
            return {key: json.loads(value) for key, value in self._rows("tt", "SELECT * FROM meta")}

    @property
    def status(self) -> str:
        """Return ``recording``, ``finished``, ``failed``, ``cancelled``, or ``interrupted``.

        The last means that the writer is gone without having finished.
        """
        meta = self.meta()
        status = str(meta.get("status", "recording"))
        if status == "recording" and not is_running(str(meta.get("writer", "")), machine_id()):
            return "interrupted"
        return status

    def progress(self) -> dict[str, Any] | None:
        """Return the last progress event, ``{what, done, total, seconds}``."""
        statement = (
            "SELECT seconds, payload FROM event WHERE kind = 'progress' ORDER BY id DESC LIMIT 1"
        )
        with self._reading():
            rows = self._rows("ft", statement)
            return {"seconds": rows[0][0], **json.loads(rows[0][1])} if rows else None

    def sources(self) -> dict[str, str]:
        """Return the text of the model's source files."""
        with self._reading():
            rows = self._rows("ti", "SELECT name, text FROM source_file ORDER BY name")
            return {name: self._blob(blob).decode() for name, blob in rows}

    def figures(self, section: str = "run") -> dict[str, Any]:
        """Return figures of the ``run``, the ``memory`` plan or the ``timing``; later ones win."""
        statement = (
            "SELECT name, value FROM figure WHERE section = ? AND stage IS NULL ORDER BY rowid"
        )
        return dict(self._rows("tv", statement, (section,)))

    # -- stages ----------------------------------------------------------------------------------

    def stages(self) -> list[Stage]:
        """Return all stages so far, with their figures and the counts of rewrites and checks."""
        with self._reading():
            figures: dict[int, dict[str, float]] = {}
            for stage, name, value in self._rows(
                "itv", "SELECT stage, name, value FROM figure WHERE section = 'stage'"
            ):
                if isinstance(value, int | float) and math.isfinite(value):
                    figures.setdefault(stage, {})[name] = value
            rewrites = dict(self._rows("ii", "SELECT stage, count(*) FROM rewrite GROUP BY stage"))
            deltas = dict(
                self._rows(
                    "ii",
                    "SELECT id, json_array_length(added) - json_array_length(removed) FROM stage",
                )
            )
            verdicts: dict[int, dict[str, int]] = {}
            errors: dict[int, float | None] = {}
            for stage, verdict, count, worst in self._rows(
                "itiF",
                f"SELECT stage, verdict, count(*), max(iif({OF_TENSORS}, worst_error, 0))"
                " FROM check_result"
                " GROUP BY stage, verdict ORDER BY stage, verdict",
            ):
                verdicts.setdefault(stage, {})[verdict] = count
                if verdict != "unchecked":
                    errors[stage] = max(errors.get(stage) or 0.0, worst or 0.0)
            out, ops = [], 0
            for row in self._rows(
                "ittttitif",
                "SELECT id, pass, summary, options, half, exact, tolerance_class, changed, seconds"
                " FROM stage ORDER BY id",
            ):
                index = row[0]
                ops += deltas.get(index, 0)
                own = figures.get(index, {})
                out.append(
                    Stage(
                        index,
                        row[1],
                        row[2],
                        json.loads(row[3]),
                        row[4],
                        bool(row[5]),
                        row[6],
                        bool(row[7]),
                        row[8],
                        own,
                        rewrites.get(index, 0),
                        int(own.get("ops", ops)),
                        verdicts.get(index, {}),
                        errors.get(index),
                    )
                )
            return out

    def stage_count(self) -> int:
        return self._rows("i", "SELECT count(*) FROM stage")[0][0]

    def module(self, stage: int) -> Module:
        """Return the module of a stage; equal ids are the same objects in every stage."""
        with self._reading() as loader:
            functions, symbols = self._stage_row(stage, "tt", "functions, symbols")
            return loader.module(read_ids(functions), json.loads(symbols))

    def attributes(self, stage: int, function: str = "main") -> Mapping[str, Any]:
        """Return the attributes of a function of a stage, without reading its ops."""
        with self._reading() as loader:
            (functions,) = self._stage_row(stage, "t", "functions")
            return loader.facts(read_ids(functions), function)

    def _stage_row(self, stage: int, types: str, columns: str) -> tuple:
        rows = self._rows(types, f"SELECT {columns} FROM stage WHERE id = ?", (int(stage),))
        if not rows:
            what = f"stage {stage} not found (the recording has {self.stage_count()})"
            raise UserError(what, str(self.path), "count stages from 0, the import")
        return rows[0]

    def rewrites(self, stage: int) -> list[RecordedRewrite]:
        """Return the rewrites that made a stage, in order, with their checks."""
        with self._reading() as loader:
            self._stage_row(stage, "i", "id")
            rows = self._rows(
                "iiiitFtfttt",
                "SELECT id, number, rule, source, function, tolerance, note, microseconds,"
                " old, new, mapped FROM rewrite WHERE stage = ? ORDER BY number",
                (stage,),
            )
            before, after, maps = (read_json_rows([row[k] for row in rows]) for k in (8, 9, 10))
            loader.load_ops([op for some in (*before, *after) for op in some])
            loader.load_values(v for pairs in maps for pair in pairs for v in pair)
            names = loader.names({k for row in rows for k in row[2:4]})
            made: dict[int, Rewrite] = {}
            for row, *sides, pairs in zip(rows, before, after, maps, strict=True):
                key, _, rule, source, function, tolerance, note, microseconds = row[:8]
                old, new = (tuple([loader.ops[op] for op in some]) for some in sides)
                values = {loader.values[a]: loader.values[b] for a, b in pairs}
                made[key] = Rewrite(
                    names[rule],
                    names[source],
                    old,
                    new,
                    values,
                    function,
                    tolerance,
                    note,
                    microseconds,
                )
            checks = {c.rewrite: c for c in self._checks(stage, made)}
            return [
                RecordedRewrite(row[0], stage, row[1], made[row[0]], checks.get(made[row[0]]))
                for row in rows
            ]

    def checks(
        self, stage: int, rewrites: Sequence[RecordedRewrite] | None = None
    ) -> list[CheckRecord]:
        """Return the check results of a stage; those of whole stages have no rewrite.

        ``rewrites``: the stage's, if known.
        """
        with self._reading():
            known = self.rewrites(stage) if rewrites is None else rewrites
            return self._checks(stage, {r.id: r.rewrite for r in known})

    def _checks(self, stage: int, rewrites: Mapping[int, Rewrite]) -> list[CheckRecord]:
        rows = self._rows(
            "ItFFItfti",
            "SELECT rewrite, verdict, worst_error, tolerance, value, element, seconds, note, id"
            " FROM check_result WHERE stage = ? ORDER BY id",
            (stage,),
        )
        figure_rows = self._rows(
            "ttt",
            "SELECT section, name, value FROM figure"
            " WHERE section IN ('check', 'check_kind') AND stage = ?",
            (stage,),
        )
        numbers: dict[int, Sequence[float | None]] = {
            int(check): [float(number) for number in text.split(" ")]
            for section, check, text in figure_rows
            if section == "check"
        }
        kinds = {
            int(check): text for section, check, text in figure_rows if section == "check_kind"
        }
        self._loader.load_values(row[4] for row in rows if row[4] is not None)
        nan = float("nan")
        return [
            CheckRecord(
                rewrites.get(row[0]),
                row[1],
                nan if row[2] is None else row[2],
                nan if row[3] is None else row[3],
                None if row[4] is None else self._loader.values[row[4]],
                tuple(read_ids(row[5])),
                row[6],
                row[7],
                old,
                new,
                kinds.get(row[8], "rewrite"),
            )
            for row in rows
            for old, new in [numbers.get(row[8], (None, None))]
        ]

    def diagnostics(self, stage: int | None = None) -> list[Diagnostic]:
        """Return the diagnostics of a stage, or of all."""
        with self._reading() as loader:
            rows = self._rows(
                "tttIt",
                "SELECT severity, message, function, op, place FROM diagnostic"
                " WHERE ?1 IS NULL OR stage = ?1 ORDER BY id",
                (stage,),
            )
            loader.load_ops([row[3] for row in rows if row[3] is not None])
            return [Diagnostic(r[0], r[1], r[2], loader.ops.get(r[3]), r[4]) for r in rows]

    # -- text and differences --------------------------------------------------------------------

    def text(self, stage: int, *, locations: str = "") -> str:
        """Return the stage's MLIR text; unnamed values are numbered by id, alike in all stages."""
        with self._reading():  # forged blocks may use values that are not defined around them
            module = self.module(stage)
            return print_module(module, locations=locations, numbers=self._loader.value_ids)

    def lines(self, stage: int, *, locations: str = "") -> LineTable:
        """Return the lines of :meth:`text` with the ops that each shows."""
        with self._reading():
            module = self.module(stage)
            return line_table(module, locations=locations, numbers=self._loader.value_ids)

    def diff(self, a: int, b: int) -> ModuleDiff:
        """Return the changes from stage ``a`` to ``b`` (either order), by the rewrites between."""
        with self._reading():
            low, high = min(a, b), max(a, b)
            steps = [r.rewrite for s in range(low + 1, high + 1) for r in self.rewrites(s)]
            found = diff(self.module(low), self.module(high), steps)
            return found if a <= b else found.reversed()

    def diff_lines(
        self,
        a: int,
        b: int,
        *,
        changed_only: bool = True,
        context: int = 3,
        found: ModuleDiff | None = None,
        spans: bool = True,
    ) -> list[dict[str, Any]]:
        """Return the texts of two stages side by side (``line_diff.diff_lines``).

        Keys are op ids, or ``@name`` for a function's own lines.  ``found``: the stages' ``diff``,
        if known.
        """
        with self._reading():
            found = self.diff(a, b) if found is None else found
            return diff_lines(
                self.module(a),
                self.module(b),
                changed_only=changed_only,
                context=context,
                key=self.key,
                numbers=self._loader.value_ids,
                found=found,
                spans=spans,
            )

    def births(self, stage: int) -> dict[int, int]:
        """Map each op id up to ``stage`` to the first stage that has the op."""
        with self._reading():
            rows = self._rows(
                "it", "SELECT id, added FROM stage WHERE id <= ? ORDER BY id DESC", (int(stage),)
            )
            entered = read_json_rows([added for _, added in rows])
            return {
                op: number for (number, _), ops in zip(rows, entered, strict=True) for op in ops
            }

    def aligned_lines(self, a: int, b: int, found: ModuleDiff | None = None) -> AlignedLines:
        """Return all rows of :meth:`diff_lines`, each printed on demand."""
        with self._reading():
            found = self.diff(a, b) if found is None else found
            numbers = self._loader.value_ids
            return AlignedLines(
                self.module(a), self.module(b), found=found, key=self.key, numbers=numbers
            )

    def carriers(self, stage: int) -> dict[int, int]:
        """Map each value id replaced up to ``stage`` to the id that carries its meaning there."""
        with self._reading():
            return carriers(self._rows, stage)

    # -- ops -------------------------------------------------------------------------------------

    def op(self, op_id: int) -> Op:
        """Return the op of an id, of any stage."""
        known = self._loader.ops.get(op_id)
        if known is not None:
            return known
        with self._reading() as loader:
            if not self._rows("i", "SELECT 1 FROM op WHERE id = ?", (int(op_id),)):
                raise UserError(f"op {op_id} not found", str(self.path), "use an id of this file")
            return loader.load_ops([int(op_id)])[0]

    def op_id(self, op: Op) -> int:
        """Return the id of an op of this recording; KeyError for other ops."""
        return self._loader.op_ids[op]

    def value(self, value_id: int) -> Value:
        with self._reading() as loader:
            if not self._rows("i", "SELECT 1 FROM value WHERE id = ?", (int(value_id),)):
                what = f"value {value_id} not found"
                raise UserError(what, str(self.path), "use an id of this file")
            loader.load_values([int(value_id)])
            return loader.values[int(value_id)]

    def value_id(self, value: Value) -> int:
        """Return the id of a value of this recording; KeyError for other values."""
        return self._loader.value_ids[value]

    def key(self, thing: Op | Function) -> int | str:
        """Return the key of an op (its id) or a function (``@name``) in views."""
        return self.op_id(thing) if isinstance(thing, Op) else f"@{thing.name}"

    def op_history(self, op_id: int) -> OpHistory:
        """Return an op's sources and successors through all stages, kernels and buffers."""
        with self._reading() as loader:
            self.op(op_id)
            self._links.update()
            return op_history(self._rows, loader, self._links, int(op_id))

    def op_stages(self, op_id: int) -> tuple[int, int | None] | None:
        """Return the first and the last stage that has an op (last None: it is still there).

        None for an op that only occurs in a rewrite, or nowhere.
        """
        with self._reading():
            self._links.update()
            return presence(self._links, int(op_id))

    def makers(self, value_id: int) -> list[int]:
        """Return the ids of all ops, of any stage, that define a value."""
        with self._reading():
            self._links.update()
            return list(self._links.makers.get(int(value_id), ()))

    # -- kernels, memory, measurements -----------------------------------------------------------

    def kernels(self) -> list[Kernel]:
        with self._reading():
            ops: dict[tuple[int, str], list[int]] = {}
            for kernel, role, op in self._rows(
                "iti", "SELECT kernel, role, op FROM kernel_op ORDER BY kernel, role, position"
            ):
                ops.setdefault((kernel, role), []).append(op)
            steps: dict[int, list[str]] = {}
            for kernel, name in self._rows(
                "it", "SELECT kernel, name FROM kernel_step ORDER BY kernel, number"
            ):
                steps.setdefault(kernel, []).append(name)
            rows = self._rows(
                "ittiftttt",
                "SELECT id, name, key, cached, compile_seconds, line_map, intermediate_map,"
                " assembly_map, facts FROM kernel ORDER BY id",
            )
            return [
                Kernel(
                    row[0],
                    row[1],
                    row[2],
                    bool(row[3]),
                    row[4],
                    _pairs(row[5]),
                    _pairs(row[6]),
                    _pairs(row[7]),
                    dict(json.loads(row[8])),
                    tuple(ops.get((row[0], "computes"), ())),
                    tuple(ops.get((row[0], "launch"), ())),
                    tuple(steps.get(row[0], ())),
                )
                for row in rows
            ]

    def kernel_text(self, kernel: int, what: str = "source") -> str:
        """Return a kernel's ``source``, ``intermediate`` (LLVM IR, PTX) or ``assembly`` (SASS)."""
        if what not in ("source", "intermediate", "assembly"):
            raise ValueError(f"kernels have no text {what!r}")
        return self._kernel_blob(kernel, what).decode()

    def kernel_machine_code(self, kernel: int) -> bytes:
        return self._kernel_blob(kernel, "machine_code")

    def kernel_step_text(self, kernel: int, number: int) -> str:
        """Return the kernel's IR after step ``number`` (from 0) of its schedule."""
        statement = "SELECT text FROM kernel_step WHERE kernel = ? AND number = ?"
        with self._reading():
            return self._one_blob(statement, (kernel, number)).decode()

    def _kernel_blob(self, kernel: int, column: str) -> bytes:
        with self._reading():
            return self._one_blob(f"SELECT {column} FROM kernel WHERE id = ?", (kernel,))

    def _one_blob(self, statement: str, parameters: tuple) -> bytes:
        rows = self._rows("i", statement, parameters)
        if not rows:
            what = f"kernel (or step) {parameters} not found"
            raise UserError(what, str(self.path), "use an id of this file")
        return self._blob(rows[0][0])

    def _blob(self, key: int) -> bytes:
        rows = self._rows("ib", "SELECT size, data FROM blob WHERE id = ?", (key,))
        if not rows or not 0 <= rows[0][0] <= MAX_LENGTH:
            raise ValueError(f"blob {key}")
        return inflate(rows[0][1], rows[0][0])

    def buffers(self) -> list[Buffer]:
        rows = self._rows(
            "iIItttiiiii",
            'SELECT id, value, op, name, kind, tier, "offset", size, unpadded_size, first, last'
            " FROM buffer ORDER BY id",
        )
        return [Buffer(*row) for row in rows]

    def executions(self) -> list[Execution]:
        """Return the executions of the program, the newest last."""
        with self._reading():
            rows = self._rows(
                "iftitFb",
                "SELECT id, began, machine, threads, digest, median, samples"
                " FROM execution ORDER BY id",
            )
            return [Execution(*(*row[:6], np.frombuffer(row[6], "<f8"))) for row in rows]

    def timings(self, execution: int | None = None) -> list[Timing]:
        """Return the launches of an ``execution`` (None: of the newest), in order."""
        table, of = ("timing", "") if execution is None else ("launch_time", " WHERE execution = ?")
        parameters = () if execution is None else (int(execution),)
        with self._reading():
            rows = self._rows(
                "itIiiiFFFb",
                "SELECT launch, kernel, op, threads, flops, bytes, median, minimum, p95, samples"
                f" FROM {table}{of} ORDER BY id",
                parameters,
            )
            return [Timing(*(*row[:9], np.frombuffer(row[9], "<f8"))) for row in rows]

    def iterations(self, after: int = 0, most: int = -1) -> tuple[int, list[IterationRecord]]:
        """Return a cursor, and the iterations of a training run since the cursor ``after``.

        They are in the order in which they were written, at most ``most`` of them.
        """
        rows = self._rows(
            "iifftFFI",
            "SELECT id, number, loss, seconds, root, rate, loss_scale, skipped FROM iteration"
            " WHERE id > ? ORDER BY id LIMIT ?",
            (after, most),
        )
        return rows[-1][0] if rows else after, [IterationRecord(*row[1:]) for row in rows]

    def tensors(self, value_ids: Sequence[int] | None = None) -> list[TensorStats]:
        """Return statistics of values (of all by default) in the order they were taken."""
        with self._reading() as loader:
            rows = self._rows(
                "iFFFiittittI",
                "SELECT value, minimum, maximum, mean, nan, inf, edges, counts, stage, data_type,"
                " data_shape, data FROM tensor_stats ORDER BY id",
            )
            if value_ids is not None:
                wanted = set(value_ids)
                rows = [row for row in rows if row[0] in wanted]
            loader.load_values(row[0] for row in rows)
            return [self._tensor_stats(row) for row in rows]

    def _tensor_stats(self, row: tuple) -> TensorStats:
        value = self._loader.values[row[0]]
        low, high, mean = (float("nan") if n is None else n for n in row[1:4])
        histogram = json.loads(row[6]), json.loads(row[7])
        data = None
        if row[11] is not None:
            kind = getattr(value.type, "dtype").numpy  # noqa: B009 (tensors and buffers have one)
            data = np.frombuffer(self._blob(row[11]), kind).reshape(read_ids(row[10]))
        return TensorStats(value, low, high, mean, row[4], row[5], histogram, row[8], data)

    def quantisation(self) -> QuantisationRecord | None:
        """Return what quantisation lost; None if it was not recorded."""
        figures = self.figures()
        if "quantised_results" not in figures:
            return None
        results, ratio = figures["quantised_results"], figures.get("quantised_sqnr_db")
        with self._reading() as loader:
            rows = self._rows(
                "iiifFffffftttF",
                "SELECT value, integers, stage, sqnr, cosine, saturated, minimum, maximum, low,"
                " high, edges, floats, dequantised, alone FROM quantised_value ORDER BY id",
            )
            loader.load_values(value for row in rows for value in row[:2])
            left = self._rows("it", "SELECT op, reason FROM float_op ORDER BY op")
            loader.load_ops([op for op, _ in left])
            return QuantisationRecord(
                int(results),
                None if ratio is None else float(ratio),
                [self._quantised(row) for row in rows],
                [FloatOpRecord(loader.ops[op], reason) for op, reason in left],
            )

    def _quantised(self, row: tuple) -> QuantisedRecord:
        value, integers = (self._loader.values[v] for v in row[:2])
        edges, floats, dequantised = (json.loads(text) for text in row[10:13])
        return QuantisedRecord(
            value,
            integers,
            row[2],
            row[3],
            float("nan") if row[4] is None else row[4],
            row[5],
            row[6:8],
            row[8:10],
            (edges, floats, dequantised),
            row[13],
        )

    def framework_values(self) -> list[FrameworkRecord]:
        """Return values of the import compared with the framework's own, in its order."""
        with self._reading() as loader:
            rows = self._rows(
                "ittiftFF",
                "SELECT value, framework, node, same, worst_error, element, theirs, ours"
                " FROM framework_value ORDER BY id",
            )
            loader.load_values(row[0] for row in rows)
            return [
                FrameworkRecord(
                    loader.values[row[0]],
                    row[1],
                    row[2],
                    bool(row[3]),
                    row[4],
                    tuple(read_ids(row[5])),
                    *row[6:],
                )
                for row in rows
            ]

    def weight_digests(self) -> dict[str, str]:
        """Map digests to type texts of the stages' weights; their bytes are not in the file."""
        return dict(self._rows("tt", "SELECT digest, type FROM weight ORDER BY digest"))

    def missing_weights(self) -> list[str]:
        """Return the digests missing in ``weights``: without them a stage cannot be run again."""
        return [d for d in self.weight_digests() if d not in self.weights]

    # -- tables, SQL and copies ------------------------------------------------------------------

    def tables(self) -> list[Table]:
        """Return every table and view, with its rows as a stream (see `record/tables.py`)."""
        return tables(self._file)

    def query(self, sql: str, *, timeout: float = 5.0, max_rows: int = 10_000) -> QueryResult:
        """Run one read-only statement; UserError if it is wrong, writes, or takes too long."""
        return self._file.query(sql, timeout=timeout, max_rows=max_rows)

    def export(self, target: str | Path) -> None:
        """Write a complete single-file copy, also of a recording that is being written."""
        self._file.export(target)


def _pairs(text: str) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in json.loads(text)]
