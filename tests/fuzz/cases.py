"""One input: how it is made from seed and number, how it is given to the compiler, what came of
it."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz import damage_bytes, damage_text
from tests.fuzz.seeds import DATA_FILE, Seed

FRONTENDS = ("onnx", "onnx-passes", "stablehlo")
SUFFIX = {"onnx": ".onnx", "onnx-passes": ".onnx", "stablehlo": ".mlir"}
#: What an input may come to; the last four are findings.
IMPORTED, REFUSED = "imported", "refused"
#: Refused, too: what ends the process that reads it (StableHLO is read in one of its own).
CONTAINED = "contained"
FINE = (IMPORTED, REFUSED, CONTAINED)
EXCEPTION, INVALID, CRASH, TIME, MEMORY = "exception", "invalid", "crash", "time", "memory"


@dataclass(frozen=True)
class Case:
    """One input; ``made_from`` says how."""

    frontend: str
    number: int
    data: bytes
    made_from: str
    inputs: tuple[Any, ...] | None


@dataclass(frozen=True)
class Outcome:
    """What came of an input: ``key`` is equal for findings of one cause, ``text`` what was said."""

    kind: str
    key: str = ""
    text: str = ""


class Cases:
    """The inputs of one run: equal for equal frontend, corpus and seed."""

    def __init__(self, frontend: str, corpus: Sequence[Seed], seed: int):
        self.frontend, self.corpus, self.seed = frontend, corpus, seed
        # Half of the draws are from the small files that a person wrote to hold what is rare.
        self._first = [s for s in corpus if len(s.data) < 4096][:14]

    @cached_property
    def _structured(self) -> Callable[[bytes, bytes, Random], bytes]:
        if self.frontend == "stablehlo":
            return _text_damaged
        from onnx import ModelProto

        from tests.fuzz.damage_onnx import Damage

        nodes = (n for s in self.corpus for n in ModelProto.FromString(s.data).graph.node)
        return Damage(sorted({(n.domain, n.op_type) for n in nodes})).damaged

    def case(self, number: int) -> Case:
        """The input of this number."""
        random = Random(f"{self.frontend} {self.seed} {number}")
        seed = self._seed(random)
        other = random.choice(
            [s for s in (self._seed(random) for _ in range(8)) if s.form == seed.form] or [seed]
        )
        data, chance = seed.data, random.random()
        how = []
        if seed.form in ("onnx", "text") and chance < 0.75:
            data = self._structured(data, other.data, random)
            how.append("structure")
        if not how or chance < 0.1:
            data = damage_bytes.damaged(data, other.data, random)
            how.append("bytes")
        inputs = seed.inputs if random.random() < 0.5 else None
        return Case(self.frontend, number, data, f"{seed.name}: {' and '.join(how)}", inputs)

    def _seed(self, random: Random) -> Seed:
        pool = self._first if self.frontend != "stablehlo" and random.random() < 0.3 else None
        return random.choice(pool or self.corpus)


def _text_damaged(data: bytes, other: bytes, random: Random) -> bytes:
    made = damage_text.damaged(data.decode(), other.decode(errors="replace"), random)
    return made.encode(errors="surrogatepass")


def folder(root: Path) -> Path:
    """A folder for models, with data beside them and links that lead away."""
    made = root / "models"
    (made / "folder").mkdir(parents=True)
    (made / DATA_FILE).write_bytes(np.arange(64, dtype=np.float32).tobytes())
    (root / "secret.bin").write_bytes(bytes(4096))
    os.symlink("../secret.bin", made / "link.bin")
    os.symlink("loop.bin", made / "loop.bin")
    return made


def outcome(case: Case, where: Path) -> Outcome:
    """What comes of compiling ``case`` as far as the tensor level, written into ``where``."""
    import core_compiler as cc
    from core_compiler.driver.compilation import InvalidModule
    from core_compiler.support.errors import CANNOT_HERE, UserError

    path = where / f"model{SUFFIX[case.frontend]}"
    path.write_bytes(case.data)
    try:
        made = _READ[case.frontend](cc, path, case.inputs)
        while made.level != "tensor" and made.module.main.level != "tensor":
            made.step()
    except InvalidModule as error:
        return Outcome(INVALID, _at_heart(error.what), str(error))
    except UserError as error:
        if "memory" in error.what and error.exit_code == CANNOT_HERE:
            return Outcome(MEMORY, _place(error), str(error))
        if not error.what or not error.where or "\n" in str(error):
            return Outcome(EXCEPTION, f"an error without a place: {error.what[:40]}", str(error))
        return Outcome(REFUSED, error.what[:60])
    except MemoryError as error:
        return Outcome(MEMORY, _place(error), _told(error))
    except Exception as error:
        return Outcome(EXCEPTION, f"{type(error).__name__} {_place(error)}", _told(error))
    return Outcome(IMPORTED)


def _onnx(cc, path: Path, inputs):
    from core_compiler.frontends.onnx import import_file

    return cc.compile(import_file(path, inputs=inputs), finish=False)


def _onnx_passes(cc, path: Path, inputs):
    return cc.compile(path, inputs, finish=False, frontend="onnx-passes")


def _stablehlo(cc, path: Path, inputs):
    """What the compiler does in a process of its own, in this one; see :func:`contained`."""
    from core_compiler.frontends.stablehlo import import_program

    program = path.read_bytes()
    return cc.compile(import_program(program, name=str(path), inputs=inputs), finish=False)


_READ: dict[str, Callable] = {
    "onnx": _onnx,
    "onnx-passes": _onnx_passes,
    "stablehlo": _stablehlo,
}


def contained(case: Case) -> Outcome:
    """What a user sees of a program that ends the process it is read in."""
    import core_compiler as cc
    from core_compiler.support.errors import UserError

    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / f"model{SUFFIX[case.frontend]}"
        path.write_bytes(case.data)
        try:
            cc.compile(path, case.inputs, finish=False)
        except UserError as error:
            return Outcome(CONTAINED, error.what, str(error))
    return Outcome(IMPORTED)


def _at_heart(text: str) -> str:
    return "".join(c for c in text if not c.isdigit())[:120]


def _place(error: BaseException) -> str:
    """The innermost line of ours, and the one that raised."""
    chain = error
    while chain.__context__ is not None:
        chain = chain.__context__
    frames = traceback.extract_tb(chain.__traceback__) or traceback.extract_tb(error.__traceback__)
    if not frames:
        return "?"
    own = [f for f in frames if "core_compiler" in f.filename]
    return " < ".join(
        f"{Path(f.filename).name}:{f.lineno}" for f in (frames[-1], (own or frames)[-1])
    )


def _told(error: BaseException) -> str:
    lines = traceback.format_exception(error, limit=-12)
    return "".join(lines)[-4000:]
