"""Helpers shared by the exporters of tensor-level modules: checks, names, origins and files.

A stage can be exported as long as its main function holds ``core`` ops on tensors of known sizes.
Groups, layouts and accumulation orders do not change the meaning and do not prevent an export.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from core_compiler.ir import Block, FrontendNode, Module, Op, Value
from core_compiler.support.errors import UserError

#: The maximum number of locations that a message lists for one gap.
SHOWN = 3


# -- checks ----------------------------------------------------------------------------------------


def entry(module: Module, inputs: Sequence[str], outputs: Sequence[str]) -> Block:
    """Return the body of main, after checking that the module and the names can be exported.

    ``inputs`` and ``outputs`` name the arguments and results of main, in order.  Raise UserError
    for a stage below the tensor level, for symbolic sizes, and for names that are missing, empty or
    repeated.
    """
    main = module.functions.get("main")
    if main is None:
        raise UserError("function main not found", "export", "export a stage of a compile")
    body = main.body
    below = [op.kind for op in body.walk() if not op.kind.startswith("core.")]
    if main.level != "tensor" or below:
        what = f"it contains {below[0]}" if below else f"its level is {main.level}"
        raise UserError(
            f"this stage is below the tensor level: {what}",
            "export",
            "choose a stage before outline_kernels",
        )
    _need_numbers(body)
    for what, names, values in (
        ("inputs", inputs, body.arguments),
        ("outputs", outputs, body.outputs),
    ):
        _need_names(what, names, values)
    both = [name for name in inputs if name in set(outputs)]
    if both:
        raise UserError(
            f"{both[0]!r} names both an input and an output", "export", "use different names"
        )
    return body


def _need_names(what: str, names: Sequence[str], values: Sequence[Value]) -> None:
    if isinstance(names, str):
        raise UserError(
            f"expected {what} to be a list, got the string {names!r}",
            "export",
            "pass a list of names",
        )
    if len(names) != len(values):
        raise UserError(
            f"expected {len(values)} names for the {what} of main, got {len(names)}",
            "export",
            "pass a name for each, in order",
        )
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name or not _is_text(name):
            raise UserError(
                f"invalid name {name!r} for one of the {what}", "export", "pass non-empty strings"
            )
        if name in names[:place]:
            raise UserError(
                f"duplicate name {name!r} in {what}", "export", "give each its own name"
            )


def _is_text(name: str) -> bool:
    """Return whether a name can be stored: it has no NUL and can be encoded as UTF-8."""
    return "\0" not in name and not any(0xD800 <= ord(c) <= 0xDFFF for c in name)


def _need_numbers(body: Block) -> None:
    found: dict[str, None] = {}
    for value in (*body.arguments, *(v for op in body.walk() for v in op.results)):
        found |= dict.fromkeys(d for d in value.type.shape if isinstance(d, str))
    if found:
        shown = ", ".join(list(found)[:SHOWN])
        raise UserError(
            f"symbolic sizes are not supported: {shown}", "export", "bind them to numbers first"
        )


# -- unsupported ops -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """An op that the format does not support, and the reason."""

    op: Op
    reason: str


def unsupported_ops_error(gaps: Sequence[Gap], form: str) -> UserError:
    """Return one error that lists each kind and reason once, with its count and locations."""
    groups: dict[tuple[str, str], list[Op]] = {}
    for gap in gaps:
        groups.setdefault((gap.op.kind, gap.reason), []).append(gap.op)
    parts = []
    for (kind, reason), ops in groups.items():
        places = list(dict.fromkeys(filter(None, map(place, ops))))
        where = ", ".join(places[:SHOWN])
        where += f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
        times = f"{len(ops)} times" if len(ops) > 1 else "once"
        parts.append(f"{kind} ({'; '.join(filter(None, (times, reason, where)))})")
    count = len({kind for kind, _ in groups})
    return UserError(
        f"{count} kind{'s' if count > 1 else ''} of op not supported by {form}: {'; '.join(parts)}",
        "export",
        "replace them in the model, or export an earlier stage",
    )


# -- origins of ops --------------------------------------------------------------------------------


def nodes(op: Op) -> tuple[FrontendNode, ...]:
    """Return the framework nodes that an op comes from."""
    return op.origin.nodes() if op.origin is not None else ()


def line(op: Op) -> str:
    """Return ``file:line`` of the model's source line that an op comes from, or "" if unknown."""
    return next((f"{n.file}:{n.line}" for n in nodes(op) if n.file), "")


def place(op: Op) -> str:
    """Return the model's source line that an op comes from, else the node's name, or ""."""
    return line(op) or next((n.name for n in nodes(op) if n.name), "")


def scope(op: Op) -> str:
    """Return the module path that an op comes from (``encoder/layer.0``), or "" if unknown."""
    return op.origin.scope if op.origin is not None else ""


def short(op: Op) -> str:
    """Return the kind without its dialect: ``add`` for ``core.add``."""
    return op.kind.partition(".")[2]


def is_uniform(array: np.ndarray) -> bool:
    """Return whether several elements all have the same bits, as in a folded broadcast."""
    if array.size < 2 or not array.ndim:
        return False
    flat = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    return bool(flat[0] == flat[-1] and (flat == flat[0]).all())


class Names:
    """A generator of unique names."""

    def __init__(self, taken: Iterable[str] = (), spell: Callable[[str], str] = str):
        """Avoid the names in ``taken``; ``spell`` turns a text into a legal name."""
        self._taken = set(taken)
        self._spell = spell
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """Return ``wanted``, with a number appended if that name is taken."""
        base = made = self._spell(wanted)
        while made in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            made = f"{base}_{self._next[base]}"
        self._taken.add(made)
        return made


# -- files -----------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` once it is complete; the old contents stay until then.

    Raise UserError if it cannot be written.
    """
    draft = path.with_name(f".{path.name[:80]}.{os.getpid()}")
    try:
        with draft.open("wb") as stream:
            yield stream
        draft.replace(path)
    except OSError as problem:
        raise UserError(
            f"cannot be written: {problem.strerror or problem}", str(path), "choose another path"
        ) from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a text file piece by piece."""
    with replacing(path) as stream:
        stream.writelines(piece.encode("utf-8") for piece in pieces)


def archived(name: str) -> str:
    """Return ``name`` in a form that is valid for an array in a ``.npz`` file.

    NUL and lone surrogates become question marks.  NumPy strips a trailing ``.npy`` because it
    takes it for the file extension.
    """
    text = name.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")
    while text.endswith(".npy"):
        text = text.removesuffix(".npy")
    return text


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a ``.npz`` file without copying any array; equal arrays produce equal bytes.

    Arrays of dtypes that NumPy does not have are stored as unsigned integers with the same bits.
    """
    with replacing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            # Without a date, so that equal arrays produce equal bytes.
            zip_entry = zipfile.ZipInfo(f"{name}.npy")
            stored = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
            with archive.open(zip_entry, "w", force_zip64=True) as part:
                np.lib.format.write_array(part, stored, allow_pickle=False)
