"""Import of program files in a subprocess.

Damaged programs make MLIR (which jaxlib contains) overflow its stack, abort or run forever: text,
bytecode and portable artifacts, during parsing and later (``python -m tests.fuzz stablehlo`` finds
such files).  So a file, which is untrusted, is imported by a subprocess with limits, which returns
the finished module.  A program that JAX passes in memory is not a file and is read in this process.
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
    REWRITE_FIX,
    check_file,
    need_jax,
)
from core_compiler.ir import Op
from core_compiler.support import subprocesses
from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError

#: The CPU time limit of an import in seconds: a base, and seconds per MiB of the file.
SECONDS, SECONDS_A_MIB = 20, 60
#: The limit of address space in bytes beyond the initial size of the process: a base, and a factor
#: per byte of the file (for MLIR's objects, ours, and constants in both).
MEMORY, MEMORY_A_BYTE = 2 << 30, 32


def import_isolated(
    path: Path, inputs: Sequence[np.ndarray] | None, sizes: Mapping[str, int] | None
) -> Imported:
    """Return :func:`~core_compiler.frontends.stablehlo.importer.import_program` of a file.

    Raise UserError as it does, and if the subprocess crashes or reaches a limit.
    """
    shapes = None if inputs is None else [each.shape for each in inputs]  # nothing else is used
    request = pickle.dumps((path, shapes, None if sizes is None else dict(sizes)))
    with tempfile.TemporaryFile() as stderr_file:
        child = subprocesses.start(__name__, stderr_file)
        with child:
            try:
                reply, _ = child.communicate(request)
            except BaseException:  # Ctrl-C ends the subprocess too
                child.kill()
                raise
        stderr_file.seek(0)
        child_output = stderr_file.read().decode(errors="replace")
    if child.returncode:
        raise exit_error(child.returncode, path, child_output)
    found = pickle.loads(reply)
    if isinstance(found, UserError):
        raise found
    return _read_only(found)


def exit_error(code: int, path: Path, child_output: str) -> Exception:
    """Return the error for a subprocess that died."""
    if code > 0:
        return InternalError(f"{path} could not be imported:\n{child_output[-4000:]}")
    name = signal.Signals(-code).name
    if name == "SIGXCPU":
        seconds = _seconds(path.stat().st_size)
        return UserError(
            f"reading takes more than {seconds} s of CPU time",
            str(path),
            "the file is damaged; " + REWRITE_FIX,
        )
    return UserError(
        f"MLIR's parser crashed ({name})",
        str(path),
        "the file is damaged or nested too deep; " + REWRITE_FIX,
    )


def _read_only(found: Imported) -> Imported:
    """Return ``found`` with read-only weights."""
    for digest in found.module.weights:
        found.module.weights[digest].flags.writeable = False
    return found


def _seconds(size: int) -> int:
    return SECONDS + SECONDS_A_MIB * size // (1 << 20)


# -- the subprocess --------------------------------------------------------------------------------


def _pickle(held: Any) -> memoryview:
    """Return ``held`` as bytes; ops are immutable, so they are rebuilt from their parts."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.dispatch_table = {
        Op: lambda op: (
            Op,
            (op.kind, op.operands, op.results, dict(op.attributes), op.regions, op.origin),
        ),
        MappingProxyType: lambda each: (MappingProxyType, (dict(each),)),
    }
    pickler.dump(held)
    return stream.getbuffer()


def main() -> None:
    """Answer the request on standard input."""
    path, shapes, sizes = pickle.loads(sys.stdin.buffer.read())
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    with output:
        output.write(_pickle(answer(path, shapes, sizes)))
    os._exit(0)  # the answer is complete: skip the shutdown of the libraries


def answer(
    path: Path, shapes: Sequence | None, sizes: Mapping[str, int] | None
) -> Imported | UserError:
    """Return the import of a file within the limits, or its error."""
    try:
        need_jax()
        check_file(path)
        size = path.stat().st_size
        import jax.interpreters.mlir  # noqa: F401  (what libraries take is not the file's)

        subprocesses.hold_to(MEMORY + MEMORY_A_BYTE * size, _seconds(size))
        inputs = (
            None
            if shapes is None
            else [np.broadcast_to(np.zeros((), np.int8), shape) for shape in shapes]
        )
        return import_in_process(path, inputs, sizes)
    except UserError as error:
        return error
    except MemoryError:
        return UserError(
            "the import exceeds the memory limit for a file of this size",
            str(path),
            "pass weights as arguments",
            CANNOT_HERE,
        )


def import_in_process(
    path: Path, inputs: Sequence[np.ndarray] | None, sizes: Mapping[str, int] | None
) -> Imported:
    """Return the import of a file in this process, which a damaged file may end."""
    from core_compiler.frontends.stablehlo.importer import import_program
    from core_compiler.frontends.stablehlo.nodes import run_file

    made = import_program(path.read_bytes(), name=str(path), inputs=inputs, sizes=sizes)
    if made.nodes is None or made.facts["bound"]:
        return made
    # The process that asked for the import has the file too.
    again = partial(run_file, path, list(made.nodes.values))
    return replace(made, nodes=replace(made.nodes, run=again))


def import_file(
    path: Path | str,
    inputs: Sequence[np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Imported:
    """Import a ``.mlir`` file in a subprocess.

    It holds StableHLO text, its bytecode or a portable artifact; see
    :func:`~core_compiler.frontends.stablehlo.importer.import_program`.
    """
    path = Path(path)
    check_file(path)
    return import_isolated(path, inputs, sizes)


if __name__ == "__main__":
    try:
        main()
    except Exception:  # an internal error, which the parent reports
        traceback.print_exc()
        sys.exit(1)
