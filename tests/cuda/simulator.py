"""Generated CUDA source run as Python by numba-cuda's simulator, one Python thread a CUDA thread.

The simulator checks what the source says (which thread does what, barriers, shared memory) apart
from NVVM and PTX.  It knows none of the names that generated source calls, and its own ``fma``
rounds twice: :class:`Namespace` provides them, every operation rounded once.

``NUMBA_ENABLE_CUDASIM`` changes numba-cuda for the whole process, so :func:`launch` starts one:
``python -m tests.cuda.simulator FOLDER`` runs what lies in the folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from math import inf, nan
from pathlib import Path

import numpy as np

from core_compiler.codegen.entry import entry_of
from core_compiler.numerics.functions import instantiate_functions
from tests.kernels.exact_scalars import Scalar

#: Bytes between the addresses of two buffers.
_APART = 1 << 40
_MEMORY = re.compile(r"(buffer|shared|registers|offset)_([a-z]+\d*)((?:_\d+)*)$")
_VALUE = re.compile(r"((?:load|store)(?:_some)?|splat|gather|scatter)_([a-z]+\d*)(?:x(\d+))?$")
_COPY = re.compile(r"copy(_some)?_[a-z]+\d*$")
_LANE = re.compile(r"lane_[a-z]+\d*x\d+_(\d+)$")
_LANES = re.compile(r"(\w+_[a-z]+\d*)x(\d+)$")


def launch(
    source: str, grid: int, arguments: Sequence[np.ndarray | int], timeout: int = 240
) -> list[np.ndarray]:
    """The buffers among ``arguments`` as the kernel leaves them, run over ``grid`` blocks."""
    buffers = [a for a in arguments if isinstance(a, np.ndarray)]
    numbers = [None if isinstance(a, np.ndarray) else int(a) for a in arguments]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "source.py").write_text(source)
        (place / "launch.json").write_text(json.dumps({"grid": grid, "numbers": numbers}))
        np.savez(place / "buffers.npz", *buffers)
        done = subprocess.run(
            [sys.executable, "-m", "tests.cuda.simulator", folder],
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
            timeout=timeout,
            cwd=Path(__file__).resolve().parents[2],
        )
        assert done.returncode == 0, done.stderr
        with np.load(place / "made.npz") as made:
            return [made[f"arr_{n}"] for n in range(len(buffers))]


# -- in the simulator's process --------------------------------------------------------------------


def main(folder: Path) -> None:
    from numba import config, cuda

    assert config.ENABLE_CUDASIM
    sys.setswitchinterval(1e-3)  # the simulator polls its threads: it must not keep the lock long
    wanted = json.loads((folder / "launch.json").read_text())
    with np.load(folder / "buffers.npz") as given:
        buffers = [given[name] for name in given.files]
    names = Namespace(buffers)
    function, facts = entry_of((folder / "source.py").read_text(), "simulated", lambda *_: names)
    # The simulator replaces `cuda` among a kernel's globals while the kernel runs.
    names.kernel = function.__globals__
    names.kernel["cuda"] = cuda
    addresses = iter(range(_APART, _APART * (len(buffers) + 1), _APART))
    values = [next(addresses) if n is None else n for n in wanted["numbers"]]
    with np.errstate(all="ignore"):
        cuda.jit(function)[wanted["grid"], facts["THREADS"]](*values)
    np.savez(folder / "made.npz", *buffers)


class Memory:
    """A place in an array: what generated source calls a buffer."""

    def __init__(self, array: np.ndarray, start: int = 0):
        self.array, self.start = array, start

    def at(self, index: int, width: int = 1) -> slice:
        place = self.start + index
        assert place >= 0 and place + width <= self.array.size, "an access outside a buffer"
        return slice(place, place + width)

    def load(self, index: int):
        return self.array[self.at(index)][0]

    def load_lanes(self, index: int, width: int) -> np.ndarray:
        assert (self.start + index) % width == 0, "an unaligned access"
        return self.array[self.at(index, width)].copy()

    def store(self, index: int, value) -> None:
        assert np.asarray(value).dtype == self.array.dtype
        self.array[self.at(index)] = value

    def store_lanes(self, index: int, value: np.ndarray, width: int) -> None:
        assert (self.start + index) % width == 0, "an unaligned access"
        self.array[self.at(index, width)] = value

    def gather(self, index: int, step: int, count: int, width: int) -> np.ndarray:
        made = np.zeros(width, self.array.dtype)
        for lane in range(min(width, count)):
            made[lane] = self.load(index + lane * step)
        return made

    def scatter(self, index: int, value: np.ndarray, step: int, count: int) -> None:
        for lane in range(min(value.size, count)):
            self.store(index + lane * step, value[lane])


class Namespace(dict):
    """The names of one generated module, over ``buffers`` as NumPy arrays of bytes."""

    def __init__(self, buffers: Sequence[np.ndarray]):
        scalars = Scalar.names()
        scalars["fma_f32"] = fma
        super().__init__(scalars | instantiate_functions(lambda f: f, scalars))
        self.update(range=range, min=min, max=max, abs=abs, inf=inf, nan=nan)
        self.update(
            thread=lambda: self.kernel["cuda"].threadIdx.x,
            block=lambda: self.kernel["cuda"].blockIdx.x,
            barrier=lambda: self.kernel["cuda"].syncthreads(),
            commit_copies=lambda: None,
            wait_for_copies=lambda: None,
            quotient=lambda a, b: _counted(a, b) // b,
            remainder=lambda a, b: _counted(a, b) % b,
            fma_f32x4=fma,
            and_bool=np.logical_and,
            or_bool=np.logical_or,
            not_bool=np.logical_not,
        )
        self.bytes = [b.reshape(-1).view(np.uint8) for b in buffers]
        self.kernel: dict = {}

    def __missing__(self, name: str) -> Callable:
        self[name] = made = self._make(name)
        return made

    def _make(self, name: str) -> Callable:
        if found := _MEMORY.match(name):
            kind, code, numbers = found.groups()
            return getattr(self, f"_{kind}")(_dtype(code), *map(int, numbers.split("_")[1:]))
        if found := _VALUE.match(name):
            return _moved(found[1], found[2], int(found[3] or 0))
        if _COPY.match(name):
            return lambda q, i, p, j, some=True: q.store(i, p.load(j) if some else _zero(q))
        if found := _LANE.match(name):
            return lambda vector: vector[int(found[1])]
        if found := _LANES.match(name):
            return _lane_by_lane(self[found[1]], int(found[2]))
        raise KeyError(f"the simulator's namespace has no {name}")

    def _buffer(self, dtype: np.dtype, number: int) -> Callable:
        def buffer(address: int) -> Memory:
            memory, start = divmod(address, _APART)
            assert start % dtype.itemsize == 0
            whole = self.bytes[memory - 1]
            return Memory(
                whole[: whole.size // dtype.itemsize * dtype.itemsize].view(dtype),
                start // dtype.itemsize,
            )

        return buffer

    def _offset(self, dtype: np.dtype) -> Callable:
        return lambda memory, elements: Memory(memory.array, memory.start + elements)

    def _shared(self, dtype: np.dtype, elements: int, number: int) -> Callable:
        # The simulator tells shared arrays apart by the file and line that ask for them.
        code = compile("lambda shared: shared.array(elements, dtype)", f"<shared {number}>", "eval")
        array = eval(code, {"elements": elements, "dtype": dtype})
        return lambda: Memory(array(self.kernel["cuda"].shared))

    def _registers(self, dtype: np.dtype, elements: int, number: int) -> Callable:
        return lambda: Memory(np.full(elements * dtype.itemsize, 0xFF, np.uint8).view(dtype))


def _dtype(code: str) -> np.dtype:
    if code == "bool":
        return np.dtype(np.bool_)
    return np.dtype(f"{code[0]}{int(code[1:]) // 8}")


def _zero(memory: Memory):
    return memory.array.dtype.type(0)


def _counted(a: int, b: int) -> int:
    assert 0 <= a < 1 << 32 and 0 < b < 1 << 32, "a 32-bit division of other numbers"
    return a


def _moved(kind: str, code: str, width: int) -> Callable:
    return {
        "load": lambda p, i: p.load_lanes(i, width) if width else p.load(i),
        "store": lambda p, i, v: p.store_lanes(i, v, width) if width else p.store(i, v),
        "load_some": lambda p, i, count: p.gather(i, 1, count, width),
        "store_some": lambda p, i, v, count: p.scatter(i, v, 1, count),
        "gather": lambda p, i, step, count: p.gather(i, step, count, width),
        "scatter": lambda p, i, v, step, count: p.scatter(i, v, step, count),
        "splat": lambda x: np.full(width, x, _dtype(code)),
    }[kind]


def _lane_by_lane(function: Callable, width: int) -> Callable:
    def run(*values):
        spread = [np.broadcast_to(v, width) for v in values]
        return np.array([function(*lane) for lane in zip(*spread, strict=True)])

    return run


def fma(a, b, c):
    """a * b + c of f32 values or arrays, rounded once.

    The product of two f32 is exact in f64.  The sum is rounded to odd there (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008), so that rounding it to f32 is right.
    """
    x = np.float64(a) * np.float64(b)
    y = np.float64(c)
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    even = np.asarray(total).view(np.int64) & 1 == 0
    inexact = np.isfinite(total) & (error != 0) & even
    outward = np.where((error > 0) == (total > 0), 1, -1)
    odd = (np.asarray(total).view(np.int64) + np.where(inexact, outward, 0)).view(np.float64)
    made = odd.astype(np.float32)
    return made if made.ndim else made[()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
