"""Program files in a process of their own.

Damaged programs make MLIR (which jaxlib brings) overflow its stack, abort or run for ever: text,
bytecode and portable artifacts, while they are parsed and later (``python -m tests.fuzz stablehlo``
finds such files).  So a file, which anybody may have written, is imported by a child process with
limits, and what comes back is the finished module.  A program that JAX hands over in memory is no
file and is read in place.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from core_compiler.frontends.base import Imported
from core_compiler.frontends.stablehlo.reading import (
    AGAIN,
    check_file,
    need_jax,
)
from core_compiler.ir import Op
from core_compiler.support import subprocesses
from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError

#: Seconds of processor time that an import may take, and more of it for each MiB of the file.
SECONDS, SECONDS_A_MIB = 20, 60
#: Bytes of address space beyond what the process begins with: at least, and for each byte of the
#: file (MLIR's objects, ours, constants in both).
MEMORY, MEMORY_A_BYTE = 2 << 30, 32


def imported(
    path: Path, inputs: Sequence[np.ndarray] | None, sizes: Mapping[str, int] | None
) -> Imported:
    """What :func:`~core_compiler.frontends.stablehlo.importer.import_program` makes of a file.

    UserError as there, and where the process that reads it dies or reaches a limit.
    """
    shapes = None if inputs is None else [each.shape for each in inputs]  # more is not looked at
    request = pickle.dumps((path, shapes, None if sizes is None else dict(sizes)))
    with tempfile.TemporaryFile() as said:
        child = subprocesses.start(__name__, said)
        with child:
            try:
                reply, _ = child.communicate(request)
            except BaseException:  # Ctrl-C is the child's end, too
                child.kill()
                raise
        said.seek(0)
        told = said.read().decode(errors="replace")
    if child.returncode:
        raise ended(child.returncode, path, told)
    found = pickle.loads(reply)
    if isinstance(found, UserError):
        raise found
    return _read_only(found)


def ended(code: int, path: Path, told: str) -> Exception:
    """The error for a child that died."""
    if code > 0:
        return InternalError(f"{path} could not be imported:\n{told[-4000:]}")
    name = signal.Signals(-code).name
    if name == "SIGXCPU":
        seconds = _seconds(path.stat().st_size)
        return UserError(f"reading takes more than {seconds} s of CPU time", str(path),
                         "the file is damaged; " + AGAIN)  # fmt: skip
    return UserError(f"MLIR's parser crashed ({name})", str(path),
                     "the file is damaged or nested too deep; " + AGAIN)  # fmt: skip


def _read_only(found: Imported) -> Imported:
    """``found`` with weights that nobody writes to."""
    for digest in found.module.weights:
        found.module.weights[digest].flags.writeable = False
    return found


def _seconds(size: int) -> int:
    return SECONDS + SECONDS_A_MIB * size // (1 << 20)


# -- the child -------------------------------------------------------------------------------------


def _pickled(held: Any) -> memoryview:
    """``held`` as bytes; ops are immutable, so they are made again from their parts."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.dispatch_table = {
        Op: lambda op: (Op, (op.kind, op.operands, op.results, dict(op.attributes), op.regions,
                             op.origin)),
        MappingProxyType: lambda each: (MappingProxyType, (dict(each),)),
    }  # fmt: skip
    pickler.dump(held)
    return stream.getbuffer()


def main() -> None:
    """Answer the request on standard input."""
    path, shapes, sizes = pickle.loads(sys.stdin.buffer.read())
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print
    with output:
        output.write(_pickled(answer(path, shapes, sizes)))
    os._exit(0)  # all is said: the libraries need not be taken down


def answer(
    path: Path, shapes: Sequence | None, sizes: Mapping[str, int] | None
) -> Imported | UserError:
    """What the file holds, imported within the limits, or what is wrong with it."""
    from core_compiler.frontends.stablehlo.importer import import_program
    from core_compiler.frontends.stablehlo.nodes import run_file

    try:
        need_jax()
        check_file(path)
        program = path.read_bytes()
        import jax.interpreters.mlir  # noqa: F401  (what libraries take is not the file's)

        subprocesses.hold_to(MEMORY + MEMORY_A_BYTE * len(program), _seconds(len(program)))
        inputs = None if shapes is None else [
            np.broadcast_to(np.zeros((), np.int8), shape) for shape in shapes]  # fmt: skip
        made = import_program(program, name=str(path), inputs=inputs, sizes=sizes)
        if made.nodes is None or made.facts["bound"]:
            return made
        again = partial(run_file, path, list(made.nodes.values))  # the file is at hand there too
        return replace(made, nodes=replace(made.nodes, run=again))
    except UserError as error:
        return error
    except MemoryError:
        return UserError("the import exceeds the memory limit for a file of this size", str(path),
                         "pass weights as arguments", CANNOT_HERE)  # fmt: skip


def import_file(
    path: Path | str, inputs: Sequence[np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Imported:  # fmt: skip
    """Import a ``.mlir`` file of StableHLO text, its bytecode or a portable artifact, in a process
    of its own; see :func:`~core_compiler.frontends.stablehlo.importer.import_program`."""
    path = Path(path)
    check_file(path)
    return imported(path, inputs, sizes)


if __name__ == "__main__":
    try:
        main()
    except Exception:  # a bug of ours: the parent tells it
        traceback.print_exc()
        sys.exit(1)
