"""ONNX's shape inference in a subprocess.

To propagate the values of small tensors, ONNX 1.23 creates an object for each element of any vector
of known size that an Add or a Gather uses: petabytes for a size that a file merely declares, and no
option limits it.  A memory limit on the current process would also affect everything else in it.
The subprocess handles one model after the other until this process ends.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from core_compiler.support import subprocesses
from core_compiler.support.errors import one_line

#: The memory limit of an inference in bytes: a base, and a factor per byte of the model without its
#: weights.
MEMORY, MEMORY_A_BYTE = 1 << 28, 16
#: The CPU time limit of an inference in seconds: a base, and seconds per MiB of the model.
SECONDS, SECONDS_A_MIB = 20, 20
_INFERRED, _REFUSED = b"+", b"-"
_LENGTH = struct.Struct("<cQ")


class NotInferred(Exception):
    """ONNX's inference failed; the message says why."""


class _Subprocess:
    """The subprocess, started with the first model and restarted after a crash."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._owner = 0  # a forked process starts its own subprocess

    def infer(self, model: bytes) -> tuple[bytes, bytes]:
        """Return the kind and content of the answer; raise NotInferred if there is none."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None or self._owner != os.getpid():
                process = self._process = subprocesses.start(__name__)
                self._owner = os.getpid()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(_LENGTH.pack(_INFERRED, len(model)) + model)
                process.stdin.flush()
                head = process.stdout.read(_LENGTH.size)
                if len(head) == _LENGTH.size:
                    kind, length = _LENGTH.unpack(head)
                    content = process.stdout.read(length)
                    if len(content) == length:
                        return kind, content
            except OSError:
                pass  # it crashed before it had read everything
            except BaseException:  # Ctrl-C: discard its answer
                process.kill()
                raise
            raise NotInferred(_exit_reason(process.wait()))


def _exit_reason(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return "it takes too long" if name == "SIGXCPU" else f"the model crashes it ({name})"
    return f"its process exited with {code}"


_subprocess = _Subprocess()


def infer_types(model: bytes) -> bytes:
    """Return a serialised model with the types that ONNX infers; others stay unknown.

    Inference is not strict.  Raise NotInferred if it fails.
    """
    kind, content = _subprocess.infer(model)
    if kind == _REFUSED:
        raise NotInferred(content.decode())
    return content


# -- the subprocess --------------------------------------------------------------------------------


def main() -> None:
    """Answer models from standard input until it ends."""
    import onnx
    import onnx.shape_inference

    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    stream = sys.stdin.buffer
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        size = _LENGTH.unpack(head)[1]
        model = stream.read(size)
        subprocesses.hold_to(MEMORY + MEMORY_A_BYTE * size, SECONDS + SECONDS_A_MIB * (size >> 20))
        try:
            made: Any = onnx.shape_inference.infer_shapes(model, data_prop=True)
            kind, answer = _INFERRED, made if isinstance(made, bytes) else made.SerializeToString()
        except onnx.shape_inference.InferenceError as problem:
            kind, answer = _REFUSED, one_line(str(problem), 300).encode()
        except MemoryError:
            kind, answer = _REFUSED, b"it takes too much memory"
        output.write(_LENGTH.pack(kind, len(answer)) + answer)
        output.flush()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        main()
