"""The table of words in docs/mlir.md is what the exporters write."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from core_compiler.exporters.mlir.linalg import Linalg
from core_compiler.exporters.mlir.tosa import Tosa
from core_compiler.ir import Block, Function, Module, WeightStore, dtype
from core_compiler.ops import REGISTRY, Builder
from core_compiler.support.errors import UserError
from tests.exporters.iree import of_samples, text_of
from tests.ops.samples import SAMPLES, Sample

DOCUMENT = Path(__file__).parents[2] / "docs" / "mlir.md"
_MARK = "<!-- words: written by tests/exporters/test_mlir_words.py -->\n"
_WORD = re.compile(r"(?<![!#])\b(?:tosa|linalg|math|arith|tensor|scf)\.[a-z0-9_]+")
#: What stands around the words of nearly every op.
_COMMON = frozenset(
    (
        "tosa.const",
        "tosa.const_shape",
        "tosa.yield",
        "tosa.reshape",
        "arith.constant",
        "linalg.fill",
        "linalg.yield",
        "linalg.index",
        "tensor.empty",
        "tensor.yield",
        "scf.yield",
        "tensor.collapse_shape",
        "tensor.expand_shape",
    )
)


#: Ops whose operands but the first are constants in TOSA.
_OF_CONSTANTS = ("core.rescale", "core.table")


def words(kind: str, dialect: str) -> str:
    """The ops of a dialect that say an op, in f32 if it can be; none for constants, and for what is
    only read otherwise. Of forms of a rescale or a table the shortest."""
    samples = [s for s in SAMPLES if s.kind == kind]
    forms = []
    for sample in sorted(samples, key=lambda s: not _is_f32(s)):
        with suppress(UserError):
            text = text_of(_module(sample), dialect)
            forms.append(sorted(set(_WORD.findall(text)) - _COMMON))
            if forms[-1] and kind not in _OF_CONSTANTS:
                break
    chosen = min(filter(None, forms), key=len, default=())
    return ", ".join(f"`{word.removeprefix('tosa.')}`" for word in chosen) or "as it is"


def _module(sample: Sample) -> Module:
    """The sample as a function; what a rescale or a table reads beside its integers is constant."""
    if sample.kind not in _OF_CONSTANTS:
        return of_samples([sample])
    op, store = sample.op(), WeightStore()
    builder = Builder(store)
    held = [builder.constant(array) for array in sample.operands[1:]]
    made = op.with_(operands=(op.operands[0], *held))
    block = Block(op.operands[:1], (*builder.ops, made), made.results)
    return Module({"s0": Function("s0", block)}, store)


def _is_f32(sample: Sample) -> bool:
    return any(dtype(a.dtype).name == "f32" for a in sample.operands)


def table() -> str:
    """One row for each op that a dialect has a row for."""
    listed = [k for k in REGISTRY if k in {**Tosa.TABLE, **Linalg.TABLE, **Tosa.COMPOSED}]
    rows = [f"| `{k}` | {words(k, 'linalg')} | {words(k, 'tosa')} |" for k in listed]
    return "\n".join(["| op | linalg | TOSA |", "|---|---|---|", *rows]) + "\n"


def test_the_table_is_what_is_written():
    text = DOCUMENT.read_text(encoding="utf-8")
    head, mark, _ = text.partition(_MARK)
    assert mark
    wanted = f"{head}{mark}\n{table()}"
    if os.environ.get("UPDATE_GOLDEN"):
        DOCUMENT.write_text(wanted, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == wanted
