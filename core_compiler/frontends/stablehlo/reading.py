"""Reading of program files and of MLIR's types and attributes: all uses of the bindings."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.ir import DType, TensorType, WeightStore, as_array, dtype, tensor
from core_compiler.ir.attribute_parser import AttributeParser
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import open_regular

#: The first bytes of MLIR bytecode (StableHLO's portable artifacts are bytecode too).
MAGIC = b"ML\xefR"
#: The maximum size of a program in bytes; weights should be arguments.
LIMIT = 1 << 31
#: The maximum number of ops that an import translates (calls count each time).
OPS = 500_000
#: An op with a result in a program's text.
_LINE = re.compile(rb"\n\s*%")
#: Shorter texts (bytes) are parsed without counting their ops first.
COUNT_OPS_ABOVE = 1 << 25


class NotSupported(Exception):
    """This use of an op has no translation; the message states the reason."""


def need_jax() -> None:
    """Raise UserError (exit code 3) if jax is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise UserError(
            "jax is not installed", "frontend", "pip install 'compiler-workbench[jax]'", 3
        )


def context() -> Any:
    """Return an MLIR context with the dialects of JAX's programs."""
    need_jax()
    from jax.interpreters import mlir

    made = mlir.make_ir_context()
    # So that an unknown op is reported by name instead of being rejected by the parser.
    made.allow_unregistered_dialects = True
    return made


def check_file(path: Path) -> None:
    """Raise UserError if a program's file cannot be read or is too large."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
    if size > LIMIT:
        raise UserError(
            f"the file has {size} bytes, at most {LIMIT} are read",
            str(path),
            "pass weights as arguments",
        )
    if size > COUNT_OPS_ABOVE:
        _check_length(path)


def _check_length(path: Path) -> None:
    """Raise UserError if a text has too many ops, which MLIR's parser only finds after minutes."""
    data = path.read_bytes()
    if not data.startswith(MAGIC) and (count := sum(1 for _ in _LINE.finditer(data))) > OPS:
        raise UserError(
            f"the program has {count:,} ops, at most {OPS:,} are read",
            str(path),
            "pass a part of it",
        )


@contextmanager
def parsed(program: str | bytes, where: str) -> Iterator[Any]:
    """Parse a program to a verified MLIR module: text, bytecode or a portable artifact.

    Raise UserError if it is none of these, or violates a rule of its dialects.
    """
    need_jax()
    from jaxlib.mlir import ir

    if isinstance(program, bytes) and not program.startswith(MAGIC):
        try:
            program = program.decode()
        except UnicodeDecodeError:
            raise UserError("neither StableHLO text nor bytecode", where, REWRITE_FIX) from None
    with context() as made:
        made.enable_multithreading(False)
        try:
            if isinstance(program, bytes):
                module = _deserialised(made, program)
            else:
                module = ir.Module.parse(program)
            if not module.operation.verify():
                raise UserError("the program fails MLIR verification", where, REWRITE_FIX)
        except UserError:
            raise
        except Exception as problem:  # any exception of the bindings concerns the text
            raise UserError(
                f"not a StableHLO program: {first_message(problem)}", where, REWRITE_FIX
            ) from None
        yield module


def _deserialised(made: Any, program: bytes) -> Any:
    """Return the module of an artifact.

    Raise ValueError with MLIR's diagnostics, which the bindings would print.
    """
    from jaxlib.mlir.dialects import stablehlo

    told: list[str] = []

    def keep(diagnostic: Any) -> bool:
        told.append(str(diagnostic.message))
        return True

    handler = made.attach_diagnostic_handler(keep)
    try:
        return stablehlo.deserialize_portable_artifact(made, program)
    except Exception:
        raise ValueError(told[0] if told else "not a portable artifact") from None
    finally:
        handler.detach()


REWRITE_FIX = "write it again with jax.export or stablehlo-translate --serialize"


def first_message(problem: Exception) -> str:
    """Return MLIR's first message on one line, without the source excerpt that it repeats."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    first_message = next((line for line in lines if "error:" in line), lines[0] if lines else "")
    return " ".join(first_message.split())[:300] or type(problem).__name__


# -- types and attributes --------------------------------------------------------------------------


def dtype_of(element: Any) -> DType:
    """Return the dtype of an MLIR element type; NotSupported for complex and quantised ones."""
    try:
        return dtype(str(element))
    except (KeyError, TypeError):
        raise NotSupported(f"elements of type {str(element)[:60]}") from None


def type_of(value: Any) -> TensorType:
    """Return the type of an MLIR value.

    Raise NotSupported if it is not a ranked tensor of static sizes.
    """
    from jaxlib.mlir import ir

    if not isinstance(value, ir.RankedTensorType):
        raise NotSupported(f"a value of type {str(value)[:60]}")
    if not value.has_static_shape:
        raise NotSupported(f"a size that depends on data, in {str(value)[:60]}")
    return tensor(tuple(value.shape), dtype_of(value.element_type))


def array_of(attribute: Any) -> np.ndarray:
    """Return the array of a constant's attribute."""
    kind: Any = type_of(attribute.type)  # its sizes are static
    if str(attribute).startswith("dense_resource"):
        raise NotSupported(
            "its values are a resource of the file (dense_resource): write them "
            "inline, or pass them as an argument"
        )
    if attribute.is_splat and kind.elements > 1:
        one = tensor((), kind.dtype)
        text = str(attribute).partition(">")[0] + f"> : {one}"
        return np.broadcast_to(_parsed(text), kind.shape)
    try:
        return np.array(attribute).astype(kind.dtype.numpy, copy=False).reshape(kind.shape)
    except TypeError:  # the bindings have no buffer for narrow floats and integers
        return _parsed(str(attribute))


def _parsed(text: str) -> np.ndarray:
    return as_array(AttributeParser(text, "a constant").attribute(), WeightStore())


def python_of(attribute: Any) -> Any:
    """Return an attribute as a Python value: numbers, strings, lists; enums as their keyword."""
    from jaxlib.mlir import ir

    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
        return attribute.value
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        return attribute.value
    if isinstance(attribute, ir.DenseElementsAttr):
        return array_of(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return [python_of(each) for each in attribute]
    if isinstance(attribute, ir.DictAttr):
        held: Any = attribute
        return {each.name: python_of(each.attr) for each in held}
    if type(attribute) is not ir.Attribute:
        return list(attribute)  # dense arrays of numbers
    text = str(attribute)
    if text.startswith(("#stablehlo<", "#chlo<")):
        return text.rstrip(">").rpartition(" ")[2]  # an enum: `#stablehlo<fft_type FFT>`
    return attribute


def attribute_of(operation: Any, name: str) -> Any:
    """Return an MLIR attribute, or None if it is absent."""
    return operation.operation.attributes.get(name, None)


def symbol(function: Any) -> str:
    """Return the name of a function."""
    return str(attribute_of(function, "sym_name").value)


def functions_of(module: Any) -> dict[str, Any]:
    """Return the functions of a program by name."""
    return {symbol(f): f for f in module.body.operations if f.operation.name == "func.func"}


def model_function(functions: Mapping[str, Any], where: str) -> Any:
    """Return the function that is the model: ``main``, or the only public one.

    Raise UserError if there is no such function.
    """
    if "main" in functions:
        return functions["main"]
    found = [
        f
        for f in functions.values()
        if str(attribute_of(f, "sym_visibility")) in ("None", '"public"')
    ]
    if len(found) != 1:
        names = ", ".join(map(symbol, found[:8])) or "none"
        raise UserError(
            f"expected a function main or one public function, got: {names}",
            where,
            "name one of them main",
        )
    return found[0]
