"""Pipeline editing: a list of rows, the user's gestures on it, and their limits.

A *draft* is plain data: ``edit`` (see ``workbench.model.edits``), ``target`` (its options),
``check``, ``execute``, ``timeout`` (seconds a pass may take) and ``start``: the pass that the next
compile begins with; the passes before it stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from core_compiler import targets
from core_compiler.passes.base import Pass, with_options
from core_compiler.pipelines.edit_data import MAX_TEXT
from core_compiler.pipelines.pipeline import (
    INITIAL_FACTS,
    LEVEL,
    LEVELS,
    OPTIONAL,
    PipelineEdit,
    Step,
    arrange,
    build,
    entry_of,
    label_of_run,
    split_label,
)
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from workbench.model import edits, recorded_model, user_pass
from workbench.queries.run import Run

Draft = dict[str, Any]
#: The largest limit of rewrites, and the longest time of a pass (seconds).
MAX_NUMBER = 10**9


@dataclass(frozen=True, eq=False)
class Row:
    """A pass at its position with its settings; ``item`` describes a user pass that was inserted.

    ``pass_`` has the defaults; ``options`` are those that are set, as text.
    """

    label: str
    pass_: Pass
    options: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    skipped: bool = False
    repeat: bool = False
    cuts: tuple[int, ...] = ()
    item: Mapping[str, Any] | None = None
    half: str = ""

    @property
    def is_inserted(self) -> bool:
        return self.item is not None


@dataclass(frozen=True)
class EditBasis:
    """The basis of drafts: target, original draft, initial level, and training."""

    target: Any
    base: Draft
    level: str = "tensor"
    training: Training | None = None

    def _arranged(self, draft: Draft, edit: PipelineEdit = PipelineEdit()) -> list[Step]:
        return arrange(self.target, draft["target"], edit, self.level, self.training)

    def rows(self, draft: Draft) -> list[Row]:
        """Return the pipeline of ``draft``, including its skipped passes."""
        edit = edits.checked(draft["edit"])
        given_edit = edits.from_json(edit, user_pass.stand_in)
        steps = self._arranged(draft, replace(given_edit, cuts={}))
        plain = {s.label: s.pass_ for s in self._arranged(draft)}
        items = iter(_in_pipeline_order(steps, edit["insert"]))
        repeated = {step.label for step in steps if split_label(step.label)[1]}
        made = []
        for step in steps:
            if step.label in repeated:
                continue
            item = next(items) if step.own else None
            default = (
                plain[step.label] if item is None else user_pass.stand_in({**item, "options": {}})
            )
            given = {
                f.name: str(getattr(step.pass_, f.name))
                for f in fields(step.pass_)
                if getattr(step.pass_, f.name) != getattr(default, f.name)
            }
            if item is not None:
                given = {**item.get("options", {}), **given}
                item = {k: v for k, v in item.items() if k not in ("place", "options", "pass")}
            made.append(
                Row(
                    step.label,
                    default,
                    given,
                    step.limit,
                    step.skipped,
                    label_of_run(step.label, 1) in repeated,
                    entry_of(step, given_edit.cuts) or (),
                    item,
                    step.half,
                )
            )
        return made

    def edit(self, rows: Sequence[Row], draft: Draft) -> dict[str, Any]:
        """Return the edit that turns the target's pipeline into ``rows``."""
        plain = [s.label for s in self._arranged(draft)]
        rows = _labelled(rows, plain)
        builtin = [row.label for row in rows if not row.is_inserted]
        order = [new for old, new in zip(plain, builtin, strict=True) if old != new]
        return {
            "skip": list(_by_name(rows, lambda r: r.skipped)),
            "limits": _by_name(rows, lambda r: r.limit),
            "options": _by_name(rows, lambda r: None if r.is_inserted else dict(r.options)),
            "order": order,
            "repeat": list(_by_name(rows, lambda r: r.repeat)),
            "insert": _items(rows),
            "cuts": _by_name(rows, lambda r: list(r.cuts)),
        }

    def check(self, draft: Draft) -> None:
        """Raise UserError if the draft's pipeline cannot be compiled."""
        edit = edits.from_json(draft["edit"], user_pass.stand_in)
        build(self.target, draft["target"], edit, self.level, self.training)

    def locked(self, rows: Sequence[Row], draft: Draft) -> int:
        """Return the number of unchanged rows: those before the pass to begin with."""
        labels = [row.label for row in rows]
        return labels.index(draft["start"]) if draft["start"] in labels else 0


def _in_pipeline_order(
    steps: Sequence[Any], items: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the items of the inserted passes in pipeline order."""
    names: list[str] = []
    for item in items:
        name = edits.name_of(item)
        names.append(name)
    labels = [s.label for s in steps if s.own and not split_label(s.label)[1]]
    numbered: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        numbered.setdefault(name, []).append(number)
    # Labels count up in the order of the items, not of their positions.
    order = []
    for label in labels:
        name = label.partition("#")[0]
        same_name = sorted(s for s in labels if s.partition("#")[0] == name)
        same_name.sort(key=_count)
        order.append(items[numbered[name][same_name.index(label)]])
    return order


def _count(label: str) -> int:
    return int(label.partition("#")[2] or 1)


def _labelled(rows: Sequence[Row], plain: Sequence[str]) -> list[Row]:
    """Return ``rows`` with the labels that their inserted passes get in this order."""
    taken = list(plain)
    made = []
    for row in rows:
        if row.is_inserted:
            name = row.pass_.name()
            count = 1 + sum(t.partition("#")[0] == name for t in taken)
            row = replace(row, label=name if count == 1 else f"{name}#{count}")
            taken.append(row.label)
        made.append(row)
    return made


def _by_name(rows: Sequence[Row], value: Callable[[Row], Any]) -> dict[str, Any]:
    """Return the non-empty ``value`` of rows by name.

    The key is the name of a pass if all passes of that name have the same value, else their
    labels.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.pass_.name(), []).append(row)
    found: dict[str, Any] = {}
    for name, group in groups.items():
        values = [value(row) for row in group]
        if all(v == values[0] for v in values) and not _nothing(values[0]):
            found[name] = values[0]
            continue
        for row, each in zip(group, values, strict=True):
            if not _nothing(each):
                found[row.label if row.label != name else f"{name}#1"] = each
    return found


def _nothing(value: Any) -> bool:
    return value is None or value is False or value in ({}, [])


def _items(rows: Sequence[Row]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    before = ""
    for index, row in enumerate(rows):
        if row.item is None:
            before = row.label
            continue
        next_label = next((r.label for r in rows[index:] if not r.is_inserted), "")
        item = {"place": f"after:{before}" if before else f"before:{next_label}", **row.item}
        made.append(item | ({"options": dict(row.options)} if row.options else {}))
    return made


# -- drafts ----------------------------------------------------------------------------------------


def recorded(meta: Mapping[str, Any], executed: bool) -> Draft:
    """Return the draft that a recording was made with; UserError if its edit is invalid."""
    given = meta.get("target_options")
    return {
        "edit": edits.checked(meta.get("edit")),
        "target": dict(given or {}),
        "check": bool(meta.get("checked")),
        "execute": executed,
        "timeout": meta.get("pass_timeout") or None,
        "start": "",
    }


def plain(draft: Draft) -> Draft:
    """Return ``draft`` without edits: the target's own pipeline."""
    return {**draft, "edit": edits.checked({}), "target": {}, "start": ""}


def clean(draft: Any, default: Draft) -> Draft:
    """Return a draft from the browser, each part of its type; UserError if that is impossible."""
    given = draft if isinstance(draft, Mapping) else {}
    chosen = given.get("target", default["target"])
    seconds = given.get("timeout", default["timeout"])
    is_valid = type(seconds) in (int, float) and 0 < seconds <= MAX_NUMBER
    return {
        "edit": edits.checked(given.get("edit", default["edit"])),
        "target": edits.checked({"options": {"t": chosen}})["options"].get("t", {}),
        "check": bool(given.get("check", default["check"])),
        "execute": bool(given.get("execute", default["execute"])),
        "timeout": float(seconds) if is_valid else None,
        "start": str(given.get("start", ""))[: edits.MAX_SHORT],
    }


def make_basis(meta: Mapping[str, Any], executed: bool) -> EditBasis:
    """Return the basis of a recording's drafts.

    UserError if its target is not installed, or the recording does not state how its model is
    trained.
    """
    target = targets.target(str(meta.get("target") or "cpu"))
    level, training = recorded_model.level(meta), recorded_model.training(meta)
    as_recorded = EditBasis(target, recorded(meta, executed), level, training)
    base = as_recorded.base
    return replace(
        as_recorded, base={**base, "edit": as_recorded.edit(as_recorded.rows(base), base)}
    )


def basis_of(run: Run) -> EditBasis:
    """Return the basis of edits of a recording's pipeline; UserError if editing is impossible."""
    executed = bool({"digest", "not_executed"} & run.figures("run").keys())
    return make_basis(run.meta(), executed)


# -- gestures --------------------------------------------------------------------------------------


def change(basis: EditBasis, draft: Draft, gesture: Mapping[str, Any]) -> Draft:
    """Return ``draft`` after the gesture ``gesture`` (its kind is ``do``).

    UserError if it is rejected.
    """
    kind = str(gesture.get("do"))
    if kind in _OF_DRAFT:
        made = _OF_DRAFT[kind](basis, draft, gesture)
    elif kind in _OF_ROWS:
        rows = basis.rows(draft)
        at = _at(rows, str(gesture.get("label", "")))
        locked_count = basis.locked(rows, draft)
        changed = _OF_ROWS[kind](basis, rows, at, gesture)
        moves_start = locked_count and kind == "move" and rows[at].label == draft["start"]
        if (
            changed[:locked_count] != rows[:locked_count]
            or (kind == "insert" and at < locked_count)
            or moves_start
        ):
            raise UserError(
                f"passes before {draft['start']} cannot change: the compile begins with it",
                "edit of the pipeline",
                "begin with an earlier pass",
            )
        made = {**draft, "edit": basis.edit(changed, draft)}
    else:
        return draft
    basis.check(made)
    return made


def _at(rows: Sequence[Row], label: str) -> int:
    found = next((i for i, row in enumerate(rows) if row.label == label), None)
    if found is None:
        raise UserError(f"unknown pass {label!r}", "edit of the pipeline", "reload the page")
    return found


def _with(rows: Sequence[Row], at: int, **changes: Any) -> list[Row]:
    return [*rows[:at], replace(rows[at], **changes), *rows[at + 1 :]]


def _skip(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    return _with(rows, at, skipped=bool(gesture.get("on")))


def _repeat(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    return _with(rows, at, repeat=bool(gesture.get("on")))


def _limit(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    text = str(gesture.get("text", "")).strip()
    if text and not (text.isascii() and text.isdigit() and int(text) <= MAX_NUMBER):
        raise UserError(
            f"expected a number of rewrites, got {text[:40]!r}",
            f"limit of {rows[at].label}",
            "enter a whole number, or nothing for no limit",
        )
    return _with(rows, at, limit=int(text) if text else None)


def _cut(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    text = str(gesture.get("text", ""))
    return _with(rows, at, cuts=edits.read_cuts(text, f"parts of {rows[at].label}"))


def _option(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    row, name, text = rows[at], str(gesture.get("option", "")), str(gesture.get("text", "")).strip()
    options = {k: v for k, v in row.options.items() if k != name}
    read = with_options(row.pass_, {name: text})
    if getattr(read, name) != getattr(row.pass_, name):
        options[name] = str(getattr(read, name))
    return _with(rows, at, options=options)


def _move(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    """Move a pass by a number of rows (``by``), or ``before`` another ("": end of its half)."""
    row, rest = rows[at], [*rows[:at], *rows[at + 1 :]]
    if "before" in gesture:
        before = str(gesture["before"] or "")
        to = _at(rest, before) if before else _end_of_half(rest, row)
    else:
        to = at + (-1 if gesture.get("by") == -1 else 1)
    if not 0 <= to <= len(rest):
        raise UserError(
            f"{row.label} is already the {'first' if to < 0 else 'last'} pass",
            "edit of the pipeline",
            "move it the other way",
        )
    crossed = rest[min(at, to) : max(at, to)]
    if not row.is_inserted and any(not r.is_inserted and r.half != row.half for r in crossed):
        raise _wrong_half(row)
    return [*rest[:to], row, *rest[to:]]


def _wrong_half(row: Row) -> UserError:
    where = (
        "meaning half, where values may still change"
        if row.half == "meaning"
        else ("implementation half, which keeps every bit")
    )
    return UserError(
        f"{row.label} belongs to the {where}", "edit of the pipeline", "move it within its half"
    )


def _end_of_half(rows: Sequence[Row], row: Row) -> int:
    same = [i for i, r in enumerate(rows) if r.half == row.half]
    return same[-1] + 1 if same else len(rows)


def _ensured(rows: Sequence[Row]) -> set[str]:
    """Return the properties of the module that hold somewhere in a pipeline.

    A pass that requires others cannot be placed.
    """
    return {*INITIAL_FACTS, *(fact for row in rows for fact in row.pass_.ensures)}


def _insert(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    """Insert a pass after row ``at``: a built-in one (``pass``), else a user pass template."""
    name = str(gesture.get("pass") or "")
    if name and name not in OPTIONAL:
        raise UserError(
            f"unknown pass {name[:60]!r}",
            "edit of the pipeline",
            f"insert one of {', '.join(OPTIONAL)}",
        )
    item = {"source": name} if name else {"code": user_pass.TEMPLATE}
    made = Row("", user_pass.stand_in(item), item=item)
    return [*rows[: at + 1], made, *rows[at + 1 :]]


def _code(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    """Set the text (``code``) or the ``source`` of an inserted pass."""
    row = rows[at]
    if row.item is None:
        raise UserError(
            f"cannot edit built-in pass {row.label}",
            "edit of the pipeline",
            "insert a pass of your own",
        )
    if "code" in gesture:
        item: dict[str, Any] = {"code": str(gesture["code"])[: MAX_TEXT + 1]}
    else:
        item = {"source": str(gesture.get("source", "")).strip()[: edits.MAX_SHORT]}
    made = user_pass.stand_in(item)
    options = {k: v for k, v in row.options.items() if k in made.options()}
    return _with(rows, at, item=item, pass_=made, options=options)


def _remove(basis: EditBasis, rows: list[Row], at: int, gesture: Mapping[str, Any]) -> list[Row]:
    """Remove an inserted pass; for any other, reset all its settings."""
    if rows[at].is_inserted:
        return [*rows[:at], *rows[at + 1 :]]
    return _with(rows, at, options={}, limit=None, skipped=False, repeat=False, cuts=())


_OF_ROWS: Mapping[str, Callable[[EditBasis, list[Row], int, Mapping[str, Any]], list[Row]]] = {
    "skip": _skip,
    "repeat": _repeat,
    "limit": _limit,
    "cut": _cut,
    "option": _option,
    "move": _move,
    "insert": _insert,
    "code": _code,
    "remove": _remove,
}


def _target(basis: EditBasis, draft: Draft, gesture: Mapping[str, Any]) -> Draft:
    """Set an option of the target; an empty text means its default."""
    name, text = str(gesture.get("option", "")), str(gesture.get("text", "")).strip()
    chosen = {k: v for k, v in draft["target"].items() if k != name}
    return {**draft, "target": {**chosen, name: text} if text else chosen}


def _set(basis: EditBasis, draft: Draft, gesture: Mapping[str, Any]) -> Draft:
    """Set ``check`` or ``execute``, or the ``timeout`` in seconds ("": none)."""
    made = dict(draft)
    made |= {name: bool(gesture[name]) for name in ("check", "execute") if name in gesture}
    if "timeout" in gesture:
        text = str(gesture["timeout"]).strip()
        try:
            seconds = float(text) if text else None
        except ValueError:
            seconds = -1.0
        if seconds is not None and not 0 < seconds <= MAX_NUMBER:
            raise UserError(
                f"expected seconds above 0, got {text[:40]!r}",
                "time limit of a pass",
                "enter a number, or nothing for no limit",
            )
        made["timeout"] = seconds
    return made


def _undo(basis: EditBasis, draft: Draft, gesture: Mapping[str, Any]) -> Draft:
    """Restore the draft of the shown recording; ``plain``: the target's own pipeline."""
    kept = {name: draft[name] for name in ("check", "execute", "timeout")}
    return {**(plain(draft) if gesture.get("plain") else basis.base), **kept, "start": ""}


def _start(basis: EditBasis, draft: Draft, gesture: Mapping[str, Any]) -> Draft:
    """Set the pass to begin with ("": the first): passes before it stay as they were."""
    label = str(gesture.get("label") or "")
    if not label:
        return {**draft, "start": ""}
    base, rows = basis.rows(basis.base), basis.rows(draft)
    if label not in [row.label for row in base]:
        raise UserError(
            f"pass {label} not found in this recording",
            "edit of the pipeline",
            "begin with one of its passes",
        )
    if draft["target"] != basis.base["target"]:
        raise UserError(
            "a changed option of the target affects every pass",
            "edit of the pipeline",
            "begin with the first pass",
        )
    kept = base[: _at(base, label)]
    labels = {row.label for row in kept}
    early = [r for r in rows[: _at(rows, label)] if r.is_inserted and r.label not in labels]
    if early:
        raise UserError(
            f"{early[0].label} is inserted before {label}",
            "edit of the pipeline",
            "move it after that pass, or begin earlier",
        )
    edit = basis.edit([*kept, *(row for row in rows if row.label not in labels)], draft)
    return {**draft, "edit": edit, "start": label}


_OF_DRAFT: Mapping[str, Callable[[EditBasis, Draft, Mapping[str, Any]], Draft]] = {
    "target": _target,
    "set": _set,
    "undo": _undo,
    "start": _start,
}


# -- drafts for the browser ------------------------------------------------------------------------


def shown(basis: EditBasis, draft: Draft, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a draft for the browser: its ``rows``, whether it is ``edited``, its description."""
    rows = basis.rows(draft)
    base = {row.label: row for row in basis.rows(basis.base)}
    locked = basis.locked(rows, draft)
    edit = edits.checked(draft["edit"])
    level = dict.fromkeys([*basis.target.options, LEVEL])
    return {
        "draft": draft,
        "rows": [
            {**_row(row, base.get(row.label)), "locked": i < locked} for i, row in enumerate(rows)
        ],
        "edited": draft["edit"] != basis.base["edit"] or draft["target"] != basis.base["target"],
        "plain": not edits.words(edit, draft["target"]),
        "words": edits.words(edit, draft["target"]),
        "optional": [
            {"name": name, "summary": p.summary()}
            for name, p in OPTIONAL.items()
            if p.requires <= _ensured(rows)
        ],
        "target": [
            {
                "name": name,
                "text": str(draft["target"].get(name, "")),
                "what": basis.target.options.get(name, "where every bit is the same"),
                "choices": list(LEVELS) if name == LEVEL else [],
            }
            for name in level
        ],
        "command": edits.command(
            meta, edit, draft["target"], draft["check"], draft["execute"], draft["timeout"]
        ),
        "python": edits.python(meta, edit, draft["target"], draft["check"]),
    }


def _row(row: Row, base: Row | None) -> dict[str, Any]:
    pass_ = with_options(
        row.pass_, {k: v for k, v in row.options.items() if k in row.pass_.options()}
    )
    options = [
        {
            "name": f.name,
            "type": type(getattr(row.pass_, f.name)).__name__,
            "text": str(getattr(pass_, f.name)),
            "default": str(getattr(row.pass_, f.name)),
            "choices": list(f.metadata.get("choices", ())),
            "set": f.name in row.options,
        }
        for f in fields(row.pass_)
    ]
    made = {
        "label": row.label,
        "half": row.half,
        "mandatory": pass_.mandatory,
        "exact": pass_.exact,
        "tolerance": pass_.tolerance,
        "summary": pass_.summary(),
        "requires": sorted(pass_.requires),
        "ensures": sorted(pass_.ensures),
        "ends": sorted(pass_.invalidates),
        "options": options,
        "limit": row.limit,
        "skipped": row.skipped,
        "repeat": row.repeat,
        "own": row.is_inserted,
        "cuts": edits.format_cuts(row.cuts),
        "set": row.is_inserted
        or bool(row.skipped or row.repeat or row.cuts or row.options)
        or row.limit is not None,
        "changed": base is None or _state(row) != _state(base),
    }
    if row.item is not None:
        code = str(row.item.get("code") or "")
        found = user_pass.outline(code, str(row.item.get("class") or "")) if code else None
        made |= {
            "ours": user_pass.builtin_pass(row.item) is not None,
            "code": code,
            "source": str(row.item.get("source") or ""),
            "file": user_pass.file_name(found) if found else "",
            "problem": found.problem if found else "",
        }
    return made


def _state(row: Row) -> tuple:
    item = row.item or {}
    return (
        row.skipped,
        row.repeat,
        row.limit,
        row.cuts,
        tuple(sorted(row.options.items())),
        item.get("code"),
        item.get("source"),
    )
