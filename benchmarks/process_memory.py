"""Memory of a fresh process that executes one model, for ``benchmarks/models.py --memory``.

    python benchmarks/process_memory.py MODEL DTYPE BATCH THREADS ours|torch [decode]

Prints ``peak_bytes`` of the whole process (the model's construction and compile too), and, after
what only these need was released, ``execute_peak_bytes`` while it executes three times. Both
contain the interpreter and its libraries. Linux.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import decode
from benchmarks.model_variants import built, of_module, variant

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main() -> None:
    name, dtype, batch, threads, contender, *more = sys.argv[1:]
    call, inputs = _contender(name, dtype, int(batch), int(threads), contender, bool(more))
    call(*inputs)
    whole = peak_bytes()
    gc.collect()
    _RESET.write_text("5")  # proc(5): the peak is the present size from now on
    for _ in range(3):
        call(*inputs)
    print(json.dumps({"peak_bytes": whole, "execute_peak_bytes": peak_bytes()}))


def _contender(
    name: str, dtype: str, batch: int, threads: int, contender: str, decoding: bool
) -> tuple[Any, Any]:
    if decoding and contender == "ours":
        made, _, inputs = decode.compiled(name, threads)
        return made, inputs
    found = of_module(*built(name, batch, True), name) if decoding else variant(name, dtype, batch)
    assert found is not None
    run = found.compile(threads) if contender == "ours" else found.peers[contender](threads)
    return run, found.inputs


def peak_bytes() -> int:
    """The most memory that the process had at once, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
