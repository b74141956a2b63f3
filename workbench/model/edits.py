"""A pipeline edit as plain data: in a recording, from the page, as a command, as Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from core_compiler.passes.base import Pass
from core_compiler.pipelines.edit_data import MAX_TEXT
from core_compiler.pipelines.pipeline import MAX_PARTS, PipelineEdit
from core_compiler.support.errors import UserError
from workbench.model import user_pass
from workbench.support import units

#: The most entries of an edit, and the longest short text in it.
MAX_ENTRIES, MAX_SHORT = 500, 300
_NAMES = ("skip", "order", "repeat")
_CUTS = re.compile(r"((?P<times>[1-9][0-9]{0,3})x)?(?P<count>[1-9][0-9]{0,8})")


def from_json(
    data: Any, load: Callable[[Mapping[str, Any]], Pass] = user_pass.load
) -> PipelineEdit:
    """Return the edit that ``data`` describes; UserError if it is malformed.

    ``load`` makes an inserted pass of its item (the default executes its code,
    ``user_pass.stand_in`` does not).
    """
    clean = checked(data)
    insert = tuple((item["place"], load(item)) for item in clean["insert"])
    return PipelineEdit(
        tuple(clean["skip"]),
        clean["options"],
        clean["limits"],
        insert,
        tuple(clean["order"]),
        tuple(clean["repeat"]),
        {name: tuple(cuts) for name, cuts in clean["cuts"].items()},
    )


def checked(data: Any) -> dict[str, Any]:
    """Return ``data`` with every part of its type and nothing else.

    UserError if that is impossible.
    """
    given = data if isinstance(data, Mapping) else {}
    found: dict[str, Any] = {name: [_short(n) for n in _list(given, name)] for name in _NAMES}
    limits = _mapping(given, "limits")
    if not all(type(n) is int for n in limits.values()):
        raise _malformed("limits")
    found["limits"] = {_short(k): int(v) for k, v in limits.items()}
    cuts = _mapping(given, "cuts")
    for parts in cuts.values():
        if (
            not isinstance(parts, list | tuple)
            or len(parts) > MAX_PARTS
            or not all(type(count) is int for count in parts)
        ):
            raise _malformed("cuts")
    found["cuts"] = {_short(k): list(v) for k, v in cuts.items() if v}
    found["options"] = {
        _short(k): {_short(o): _short(t) for o, t in _mapping({"options": v}, "options").items()}
        for k, v in _mapping(given, "options").items()
    }
    found["insert"] = [_item(item) for item in _list(given, "insert")]
    return found


def _item(item: Any) -> dict[str, Any]:
    if isinstance(item, list) and len(item) == 3:  # the form in recordings of earlier versions
        item = dict(zip(("place", "pass", "file"), item, strict=True))
    if not isinstance(item, Mapping):
        raise _malformed("insert")
    place = item.get("place", 0)
    made: dict[str, Any] = {"place": place if type(place) is int else _short(place)}
    for name in ("pass", "source", "class", "file"):
        if item.get(name):
            made[name] = _short(item[name])
    if item.get("code"):
        made["code"] = str(item["code"])[: MAX_TEXT + 1]
    if item.get("options"):
        options = _mapping(item, "options")
        made["options"] = {_short(k): _short(v) for k, v in options.items()}
    return made


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name) or []
    if not isinstance(found, list | tuple) or len(found) > MAX_ENTRIES:
        raise _malformed(name)
    return list(found)


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name) or {}
    if not isinstance(found, Mapping) or len(found) > MAX_ENTRIES:
        raise _malformed(name)
    return found


def _short(value: Any) -> str:
    text = str(value)
    if not isinstance(value, str | int | float) or len(text) > MAX_SHORT:
        raise UserError(
            f"expected a text of at most {MAX_SHORT} characters, got {text[:60]!r}",
            "edit of the pipeline",
            "shorten it",
        )
    return text


def _malformed(name: str) -> UserError:
    return UserError(
        f"invalid value for {name}", "edit of the pipeline", "undo the edit and edit again"
    )


# -- text ------------------------------------------------------------------------------------------


def words(edit: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Return ``skip fold_constants; fuse_elementwise stops after 3 rewrites``; "" for no edit."""
    parts = []
    if edit["skip"]:
        parts.append(f"skip {', '.join(edit['skip'])}")
    for name, options in edit["options"].items():
        parts.append(", ".join(f"{name}.{k} = {v}" for k, v in options.items()))
    for name, limit in edit["limits"].items():
        parts.append(f"{name} stops after {units.counted(limit, 'rewrite')}")
    for name, cuts in edit["cuts"].items():
        parts.append(f"{name} split into steps of {format_cuts(cuts)} rewrites and the rest")
    if edit["repeat"]:
        parts.append(f"{', '.join(edit['repeat'])} twice")
    if edit["order"]:
        parts.append(f"in the order {', '.join(edit['order'])}")
    for item in edit["insert"]:
        parts.append(f"{name_of(item)} inserted {_position_text(item['place'])}")
    parts += [f"{name} = {value}" for name, value in target.items()]
    return "; ".join(parts)


def format_cuts(cuts: Sequence[int]) -> str:
    """Return ``1,1,1,5`` as ``3x1,5``, the form that users write."""
    runs = [(len(list(same)), count) for count, same in groupby(cuts)]
    return ",".join(str(count) if times == 1 else f"{times}x{count}" for times, count in runs)


def read_cuts(text: str, where: str) -> tuple[int, ...]:
    """Return the cuts of a text in the form of :func:`format_cuts`; UserError if it is invalid."""
    made: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        found = _CUTS.fullmatch(part)
        times = int(found["times"] or 1) if found else 0
        if found is None or len(made) + times > MAX_PARTS:
            fix = f"write numbers of rewrites, as in 1,1,5 or 20x1 (at most {MAX_PARTS:,})"
            raise UserError(f"cannot parse {text[:40]!r} as parts of a pass", where, fix)
        made += times * [int(found["count"])]
    return tuple(made)


def _position_text(place: int | str) -> str:
    return f"at {place}" if isinstance(place, int) else place.replace(":", " ", 1)


def name_of(item: Mapping[str, Any]) -> str:
    """Return the display name of an inserted pass."""
    return user_pass.stand_in({**item, "options": {}}).name()


def command(
    meta: Mapping[str, Any],
    edit: Mapping[str, Any],
    target: Mapping[str, Any],
    check: bool,
    execute: bool,
    seconds: float | None,
) -> str:
    """Return the command line that compiles the model in ``meta`` (recorded) with this edit."""
    flags = (["--check"] if check else []) + (["--execute"] if execute else [])
    return _wrapped([*compile_arguments(meta, edit, target, seconds), *flags, "-o", "edited.run"])


def compile_arguments(
    meta: Mapping[str, Any],
    edit: Mapping[str, Any],
    target: Mapping[str, Any],
    seconds: float | None,
) -> list[str]:
    """Return the arguments of such a command, except those for actions besides compiling."""
    sizes = dict(meta.get("sizes") or {})
    flags: list[str] = [str(meta.get("spec") or meta.get("model") or "MODEL")]
    if meta.get("kind") == "sample" and meta.get("frontend") not in (None, "", "torch"):
        flags += ["--frontend", str(meta["frontend"])]
    for name in ("width", "depth", "batch", "seed"):
        if name in sizes:
            flags += [f"--{name}", str(sizes.pop(name))]
    for name, value in sizes.items():
        flags += ["--size", f"{name}={value}"]
    if (meta.get("target") or "cpu") != "cpu":
        flags += ["-t", str(meta["target"])]
    flags += _pairs("--target-option", target.items())
    for name in edit["skip"]:
        flags += ["--skip", name]
    for name, options in edit["options"].items():
        flags += _pairs("--set", ((f"{name}.{k}", v) for k, v in options.items()))
    flags += _pairs("--limit", edit["limits"].items())
    flags += _pairs("--cut", ((name, format_cuts(cuts)) for name, cuts in edit["cuts"].items()))
    for name in edit["repeat"]:
        flags += ["--repeat", name]
    if edit["order"]:
        flags += ["--order", ",".join(edit["order"])]
    for item in edit["insert"]:
        flags += ["--insert", f"{_reference(item)}@{item['place']}"]
        made = name_of(item)
        flags += _pairs("--set", ((f"{made}.{k}", v) for k, v in item.get("options", {}).items()))
    flags += ["--pass-timeout", f"{seconds:g}"] if seconds else []
    return ["workbench", "compile", *flags]


def _pairs(flag: str, pairs: Any) -> list[str]:
    return [text for name, value in pairs for text in (flag, f"{name}={value}")]


def _reference(item: Mapping[str, Any]) -> str:
    if item.get("source"):
        return str(item["source"])
    found = user_pass.outline(str(item.get("code") or ""), str(item.get("class") or ""))
    return f"{item.get('file') or user_pass.file_name(found)}:{found.name or 'OwnPass'}"


def _wrapped(parts: Sequence[str]) -> str:
    """Return a shell command in lines; each flag stays with its value."""
    lines = [" ".join(map(shlex.quote, parts[:3]))]
    for part in parts[3:]:
        text = shlex.quote(part)
        joined = f"{lines[-1]} {text}"
        flag = part.startswith("-")
        if (flag and len(joined) > 76) or len(joined) > 110:
            lines.append(f"  {text}")
        else:
            lines[-1] = joined
    return " \\\n".join(lines)


def python(
    meta: Mapping[str, Any], edit: Mapping[str, Any], target: Mapping[str, Any], check: bool
) -> str:
    """Return the Python that compiles with this edit, given ``model`` and ``inputs``.

    ``training``: for a training step.
    """
    lines = ["import core_compiler as cc"]
    inserts = []
    for item in edit["insert"]:
        module, name = _import_path(item)
        lines.append(f"from {module} import {name}")
        options = ", ".join(f"{k}={_literal(v)}" for k, v in item.get("options", {}).items())
        inserts.append(f"({item['place']!r}, {name}({options}))")
    parts = [f"{n}=({', '.join(map(repr, edit[n]))},)" for n in ("skip",) if edit[n]]
    parts += [f"{n}={edit[n]!r}" for n in ("options", "limits", "cuts") if edit[n]]
    parts += [f"insert=({', '.join(inserts)},)"] if inserts else []
    parts += [f"{n}=({', '.join(map(repr, edit[n]))},)" for n in ("order", "repeat") if edit[n]]
    inner = "".join(f"    {part},\n" for part in parts)
    lines += ["", f"edit = cc.PipelineEdit(\n{inner})" if parts else "edit = cc.PipelineEdit()"]
    call = ["model", "inputs", f'target="{meta.get("target", "cpu")}"', "edit=edit"]
    call += [f"options={dict(target)!r}"] if target else []
    call += ["training=training"] if meta.get("mode") == "training" else []
    call += ["check=True"] if check else []
    return "\n".join([*lines, f"made = cc.compile({', '.join(call)})"]) + "\n"


def _import_path(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return the module that an inserted pass is imported from, and its class."""
    builtin = user_pass.builtin_pass(item)
    if builtin is not None:
        return type(builtin).__module__, type(builtin).__name__
    file, _, name = _reference(item).rpartition(":")
    return file.removesuffix(".py").replace("/", ".").strip("."), name


def _literal(text: str) -> str:
    """Return an option's text as Python: numbers and booleans as literals."""
    if text in ("True", "False"):
        return text
    try:
        float(text)
    except ValueError:
        return repr(text)
    return text
