"""Tensor-level modules as MLIR in standard dialects, for MLIR's own tools.

``tosa`` is TOSA 1.0, with its extensions for 64-bit integers, bf16 and 8-bit floats (1.1 draft) if
the model has these types.  ``linalg`` is linalg on tensors with arith, math, tensor and scf.
``docs/mlir.md`` documents the translation of each op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from core_compiler.exporters.base import replacing, write_arrays
from core_compiler.exporters.integers import with_integer_borders
from core_compiler.exporters.mlir.context import Context, Shared, plain, refusal
from core_compiler.exporters.mlir.linalg import Linalg
from core_compiler.exporters.mlir.literals import resources, resources_in, type_text
from core_compiler.exporters.mlir.locations import Locations
from core_compiler.exporters.mlir.text import Names, Ref, printed
from core_compiler.exporters.mlir.tosa import IntegerTosa, Tosa
from core_compiler.exporters.narrow_integers import with_narrow_integers
from core_compiler.ir import Function, Module, TensorType
from core_compiler.ir.types import quoted
from core_compiler.support.errors import UserError, nearest

__all__ = ["DIALECTS", "WEIGHTS", "export", "write"]

DIALECTS: dict[str, type[Context]] = {"tosa": Tosa, "linalg": Linalg}
#: Dialects with a profile without floats.
INTEGER_DIALECTS: dict[str, type[Context]] = {"tosa": IntegerTosa}
#: Possible locations of the large constants.
WEIGHTS = ("embedded", "arguments")
#: The attribute that holds the model's name of an argument or a result.
_NAME = "ml_program.identifier"


def export(
    module: Module,
    *,
    dialect: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: str = "embedded",
    integer_only: bool = False,
) -> str:
    """Return the module as MLIR text.

    ``dialect``   ``tosa`` or ``linalg``.
    ``inputs``, ``outputs``  the model's names of main's arguments and results.
    ``weights``   ``embedded`` in the file, or ``arguments`` after the model's own, with the names
                  that they have in the model.
    ``integer_only``  write TOSA's integer profile: main takes and returns the integers that a
                  quantised model computes with; comments give their scales and zero points.

    Raise UserError if a function is not at the tensor level, if sizes are symbolic, and for ops
    that the dialect does not support (all of them at once).
    """
    return "".join(_File(module, dialect, inputs, outputs, weights, integer_only).pieces())


def write(
    module: Module,
    path: Path | str,
    *,
    dialect: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: str = "embedded",
    integer_only: bool = False,
) -> list[Path]:
    """Write the text of :func:`export` to ``path``; return the files written.

    Weights that are arguments go to ``<name>.npz`` next to it, in the order of the arguments; types
    that NumPy does not have are stored as unsigned integers with the same bits.  Memory use does
    not grow with the weights, and existing files are replaced only when the new ones are complete.
    """
    path = Path(path)
    file = _File(module, dialect, inputs, outputs, weights, integer_only)
    files = [path]
    with replacing(path) as stream:
        stream.writelines(piece.encode("utf-8") for piece in file.pieces())
        stream.flush()
        if file.parameters is not None:
            files.append(path.with_suffix(".npz"))
            write_arrays(files[1], file.parameters)
    return files


class _File:
    """A module written as one file; its functions are translated on construction."""

    def __init__(
        self,
        module: Module,
        dialect: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        weights: str,
        integer_only: bool,
    ):
        if dialect not in DIALECTS:
            fix = nearest(dialect, DIALECTS, f"choose one of {', '.join(DIALECTS)}")
            raise UserError(f"unknown dialect {dialect!r}", "export to MLIR", fix)
        if integer_only and dialect not in INTEGER_DIALECTS:
            raise UserError(f"{dialect} has no integer profile", "export to MLIR", "export to TOSA")
        if weights not in WEIGHTS:
            raise UserError(
                f"invalid value {weights!r} for weights",
                "export to MLIR",
                f"choose {' or '.join(WEIGHTS)}",
            )
        _need_tensors(module)
        context = (INTEGER_DIALECTS if integer_only else DIALECTS)[dialect]
        self._notes: list[str] = []
        if integer_only and "main" in module.functions:
            module, self._notes = _in_integers(module, inputs, outputs)
        self.parameters: dict[str, np.ndarray] | None = {} if weights == "arguments" else None
        self._shared = Shared(module.weights, self.parameters)
        self._functions: list[_Translated] = []
        for function in module.functions.values():
            if function.level == "tensor":
                main = function is module.functions.get("main")
                names = (inputs, outputs) if main else _own_names(function)
                _need_names(function, *names)
                made = _Translated(context(self._shared), function, *names)
                self._functions.append(made)
        if self._shared.missing:
            fix = "replace them in the model"
            other = "leave integer_only out" if integer_only else "export to linalg"
            fix = f"{other}, or {fix}" if dialect == "tosa" else fix
            raise refusal(self._shared.missing, context.NAME, fix)

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces."""
        for note in self._notes:
            yield f"{note}\n"
        for text, alias in self._shared.maps.items():
            yield f"{alias} = {text}\n"
        yield "module {\n"
        locations, read = Locations(), set()
        for function in self._functions:
            text = "\n".join(function.lines(locations)) + "\n"
            read.update(resources_in(text))
            yield text
        yield "}\n"
        for line in locations.table():
            yield line + "\n"
        arrays = self._shared.arrays
        yield from resources({name: arrays[name] for name in arrays if name in read})


def _in_integers(
    module: Module, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[Module, list[str]]:
    """Return the module with integers at main's borders, and comments that say what they mean."""
    _need_names(module.main, inputs, outputs)
    made, given, results = with_integer_borders(module, inputs, outputs)
    sides = [("input", border) for border in given] + [("output", border) for border in results]
    return with_narrow_integers(made), [f"// {side} {border}" for side, border in sides]


class _Translated:
    """A translated function whose values have not been named yet."""

    def __init__(
        self, context: Context, function: Function, inputs: Sequence[str], outputs: Sequence[str]
    ):
        name = function.name
        self._symbol = name if name.isidentifier() and name.isascii() else quoted(name)
        arguments = [
            Ref(plain(value.type), name)
            for value, name in zip(function.arguments, inputs, strict=True)
        ]
        made = context.body(function.body, arguments)
        self._arguments = [*arguments, *context.parameters.values()]
        self._results = list(zip([type_text(plain(v.type)) for v in made], outputs, strict=True))
        self._writer = context.writer
        self._writer.origin = None
        types = ", ".join(text for text, _ in self._results)
        self._writer.end(
            f"return {', '.join(f'{v}' for v in made)} : {types}" if made else "return"
        )

    def lines(self, locations: Locations) -> list[str]:
        names = Names()
        head = ", ".join(
            f"{names.define(v)}: {type_text(v.type)} {_named(v.name)}" for v in self._arguments
        )
        results = ", ".join(f"{text} {_named(name)}" for text, name in self._results)
        lines = [*self._writer.constants.lines, *self._writer.body.lines]
        body = printed(lines, names, "    ", type_text, locations.of)
        return [f"  func.func @{self._symbol}({head}) -> ({results}) {{", *body, "  }"]


def _named(name: str | None) -> str:
    return f"{{{_NAME} = {quoted(name or '')}}}"


def _own_names(function: Function) -> tuple[Sequence[str], Sequence[str]]:
    return (
        [v.name or f"input{i}" for i, v in enumerate(function.arguments)],
        [v.name or f"output{i}" for i, v in enumerate(function.outputs)],
    )


def _need_names(function: Function, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Check that there are as many names as arguments and results."""
    for what, names, values in (
        ("inputs", inputs, function.arguments),
        ("outputs", outputs, function.outputs),
    ):
        if len(names) != len(values):
            raise UserError(
                f"expected {len(values)} names for the {what}, got {len(names)}",
                f"function {function.name}",
                "pass one name for each, in order",
            )


def _need_tensors(module: Module) -> None:
    """Check that the module has a function on tensors and that all sizes are static."""
    levels = {f.name: f.level for f in module.functions.values()}
    if levels.get("main", "tensor") != "tensor" or "tensor" not in levels.values():
        level = levels.get("main", "unknown")
        raise UserError(
            f"expected a module at the tensor level, got the {level} level (launches on buffers)",
            "export to MLIR",
            "export an earlier stage",
        )
    symbols: dict[str, None] = {}
    for function in module.functions.values():
        if function.level == "tensor":
            ops = function.body.walk()
            values = [*function.arguments, *(v for op in ops for v in op.results)]
            symbols |= dict.fromkeys(
                size
                for v in values
                if isinstance(v.type, TensorType)
                for size in v.type.shape
                if isinstance(size, str)
            )
    if symbols:
        raise UserError(
            f"symbolic sizes are not supported: {', '.join(symbols)}",
            "export to MLIR",
            "bind them to numbers first (--size name=number)",
        )
