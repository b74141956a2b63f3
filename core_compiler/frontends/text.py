"""Import of our own IR as a model: the text of a stage, printed, exported or written by hand.

It has ``core.*`` ops of the tensor level in MLIR's generic form (:mod:`core_compiler.ir.text`).
The text of a recorded stage names its weights without their contents: seeded values replace them,
and ``facts["stand_ins"]`` is their number.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from core_compiler.frontends.base import Imported
from core_compiler.frontends.stand_ins import fill_missing_weights
from core_compiler.ir import WeightStore
from core_compiler.ir.parser import parse
from core_compiler.ir.types import TensorType
from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import open_regular, read_regular

#: The maximum number of ops of a text, and of its bytes without the weights at its end.
OPS = 500_000
LIMIT = 1 << 28
#: The maximum offset of the first op in a file (bytes): long lists of digests come before it.
HEAD = 1 << 22
_OWN = re.compile(rb'"core\.\w+"\s*\(')
_OP = re.compile(rb'"core\.\w+"\s*\((?!\)\s*\(\{)')
_WEIGHTS = b"{-#"


def contains_core_ir(path: Path) -> bool:
    """Return whether a file holds our IR and not another dialect."""
    try:
        with open_regular(path) as stream:
            return _OWN.search(stream.read(HEAD)) is not None
    except (OSError, UserError):
        return False


def import_file(path: Path) -> Imported:
    """Return the module of a text file.

    Raise UserError if it is too large or not a module of the tensor level with a function
    ``main``.  Ops without a location get their lines in the file as origins.
    """
    data = read_regular(path)
    name = path.name
    ops = sum(1 for _ in _OP.finditer(data))
    end = data.find(_WEIGHTS)
    size = len(data) if end < 0 else end
    if ops > OPS or size > LIMIT:
        raise UserError(
            f"the text has {ops:,} ops in {size / 1e6:,.0f} MB, at most {OPS:,} in "
            f"{LIMIT / 1e6:,.0f} MB are read",
            name,
            "pass a part of it",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UserError("the text is not valid UTF-8", name, "export the stage again") from None
    try:
        module = parse(text, weights=WeightStore(), where=name, lines=True, stand_in=_digest)
    except UserError as error:
        fix = error.fix or "fix the text there, or export the stage again"
        raise UserError(error.what, error.where, fix) from None
    if "main" not in module.functions:
        raise UserError("function main not found", name, 'name one main: sym_name = "main"')
    if module.main.level != "tensor":
        raise UserError(
            f"expected main at the tensor level, got {module.main.level!r}",
            name,
            "export a stage before the kernels",
        )
    module, stand_ins = fill_missing_weights(module, "the text")
    body = module.main.body
    inputs = tuple(v.name or f"input_{i}" for i, v in enumerate(body.arguments))
    outputs = tuple(v.name or f"output_{i}" for i, v in enumerate(body.outputs))
    facts = {"frontend": "ir", "stand_ins": stand_ins}
    listing = text if end < 0 else data[:end].decode()
    return Imported(module, inputs, outputs, {name: listing}, facts)


def _digest(name: str, type_: TensorType) -> str:
    """Return the digest of weights that are missing in the text."""
    return hashlib.sha256(f"{name}: {type_}".encode()).hexdigest()
