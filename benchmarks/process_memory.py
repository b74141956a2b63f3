"""Memory of a fresh process that executes one model, for ``benchmarks/models.py --memory``.

    python benchmarks/process_memory.py MODEL DTYPE BATCH THREADS ours|torch [decode]

Prints ``peak_bytes`` of the whole process, and, after what is only needed before was released,
``execute_peak_bytes`` while it executes three times. Both contain the interpreter and its
libraries. Ours executes a recording with its weights, which another process made: no framework is
imported. Torch's process constructs the model. Linux.
"""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main() -> None:
    name, dtype, batch, threads, contender, *more = sys.argv[1:]
    if contender == "record":
        recorded(name, dtype, int(batch), int(threads), *more)
        return
    with tempfile.TemporaryDirectory() as folder:
        if contender == "ours":
            path = Path(folder) / "x.run"
            case = (name, dtype, batch, threads, "record", str(path), *more)
            subprocess.run([sys.executable, __file__, *case], check=True, stdout=sys.stderr)
            call, inputs = of_recording(path, int(threads))
        else:
            call, inputs = torch_call(name, dtype, int(batch), int(threads), bool(more))
        call(*inputs)
        whole = peak_bytes()
        gc.collect()
        _RESET.write_text("5")  # proc(5): the peak is the present size from now on
        for _ in range(3):
            call(*inputs)
        print(json.dumps({"peak_bytes": whole, "execute_peak_bytes": peak_bytes()}))


def recorded(
    name: str, dtype: str, batch: int, threads: int, path: str, decoding: str = ""
) -> None:
    """Write the recording of a model and its weights."""
    from benchmarks import decode
    from benchmarks.model_variants import variant

    if decoding:
        made, _, _ = decode.compiled(name, threads, dtype)
    else:
        found = variant(name, dtype, batch)
        assert found is not None
        made = found.compile(threads)
    made.record(path, weights=True)


def of_recording(path: Path, threads: int) -> tuple[Any, Any]:
    """Return the compiled model of a recording, and inputs for it."""
    from core_compiler.driver.compilation import Options
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    model = models.load(read_spec(str(path)))
    return jobs.compile(model, "cpu", Options(threads=threads)), model.inputs


def torch_call(name: str, dtype: str, batch: int, threads: int, decoding: bool) -> tuple[Any, Any]:
    """Return the model in torch, and inputs for it."""
    from benchmarks.model_variants import built, of_module, variant, with_int8_weights

    if decoding:
        module, inputs = built(name, batch, True)
        module = with_int8_weights(module) if dtype == "int8-weights" else module
        found = of_module(module, inputs, name)
    else:
        found = variant(name, dtype, batch)
    assert found is not None
    return found.peers["torch"](threads), found.inputs


def peak_bytes() -> int:
    """The most memory that the process had at once, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
