"""A process that compiles kernels: ``python -m core_compiler.runtime.compile_worker``.

Reads pickled requests from standard input and writes pickled replies to standard output, each after
its length (8 bytes, little-endian).  It is spawned, never forked, and imports nothing of its
parent's main module, so that a script without ``if __name__ == "__main__"`` works.  An abort in
LLVM ends this process alone.  It exits when its input closes, so it cannot outlive its parent.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import struct
import sys
import time
import traceback
from typing import BinaryIO

from core_compiler.support.errors import UserError

#: Files of a cache entry: the one that is loaded, and intermediate stages for readers.
OBJECT, INTERMEDIATE, ASSEMBLY = "kernel.o", "kernel.ir", "kernel.s"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints go to the log, not into the replies
    while (request := read(requests)) is not None:
        write(replies, respond(request))


def respond(request: dict) -> dict:
    """Return ``{"files", "seconds"}`` of a compile request, or ``{"error", "trace"}``.

    The latter also has ``refused`` (what and fix) if the compiler cannot do it on this machine.
    """
    start = time.perf_counter()
    try:
        module, function = request["compiler"].split(":")
        home = importlib.import_module(module)
        compiler = getattr(home, function)
        if request["source"] is None:
            getattr(home, "warm_up", lambda: None)()
            return {"files": {}, "seconds": time.perf_counter() - start}
        files = files_of(compiler(request["source"], request["name"]))
    except UserError as error:
        return {"error": str(error), "trace": "", "refused": (error.what, error.fix)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    return {"files": files, "seconds": time.perf_counter() - start}


def files_of(compiled) -> dict[str, bytes]:
    """Return the files of a cache entry for a compiler's result.

    The result has ``object`` (bytes), and optionally ``intermediate``, ``assembly`` (text),
    ``lines``, ``intermediate_lines``, ``assembly_lines`` and ``facts`` (JSON values).
    """
    import json

    files = {OBJECT: bytes(compiled.object)}
    for name, attribute in ((INTERMEDIATE, "intermediate"), (ASSEMBLY, "assembly")):
        text = getattr(compiled, attribute, None)
        if text:
            files[name] = text.encode()
    for name, attribute in (
        ("lines.json", "lines"),
        ("intermediate.json", "intermediate_lines"),
        ("assembly.json", "assembly_lines"),
        ("facts.json", "facts"),
    ):
        rows = getattr(compiled, attribute, None)
        if rows is not None:
            files[name] = json.dumps(rows, sort_keys=True).encode()
    return files


def read(stream: BinaryIO) -> dict | None:
    """Return the next message, or None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack("<Q", head)
    body = stream.read(size)
    return pickle.loads(body) if len(body) == size else None


def write(stream: BinaryIO, message: dict) -> None:
    body = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(body)) + body)
    stream.flush()


if __name__ == "__main__":
    main()
