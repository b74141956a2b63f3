"""Products and convolutions of BERT-base and ResNet-50, ours beside torch, in one run.

``python -m benchmarks.kernels_contraction [--threads N] [matmul attention convolution]`` prints,
for each shape, GFLOP/s of both and torch's time over ours (above 1: ours is faster).
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.kernels_common import Compiled, group, race, report
from core_compiler.ir import tensor

NHWC = (0, 2, 3, 1)
#: (channels, filters, kernel, stride, height): the distinct convolutions of ResNet-50.
RESNET50 = (
    (3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56),
    (256, 64, 1, 1, 56), (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28),
    (256, 512, 1, 2, 56), (512, 128, 1, 1, 28), (128, 128, 3, 1, 28), (512, 256, 1, 1, 28),
    (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28), (1024, 256, 1, 1, 14),
    (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7),
    (1024, 2048, 1, 2, 14), (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7),
)  # fmt: skip


def f32(*shape, order=None):
    return tensor(shape, "f32", order)


def numbers(*shape, scale=1.0) -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(np.float32)


def matmul(rows: int, terms: int, columns: int, epilogue: str, threads: int) -> str:
    def build(b, x, w, bias, *rest):
        y = b.add(b.matmul(x, w), b.broadcast(bias, shape=(rows, columns), dims=(1,)))
        if epilogue == "gelu":
            return b.gelu(y, approximate="none")
        return b.add(y, rest[0]) if rest else y

    residual = [f32(rows, columns)] if epilogue == "residual" else []
    op = group([f32(rows, terms), f32(terms, columns), f32(columns), *residual], build)
    x, w, bias = numbers(rows, terms), numbers(terms, columns, scale=terms**-0.5), numbers(columns)
    rest = [numbers(rows, columns) for _ in residual]
    made = Compiled(op, {1: w, 2: bias}, threads)
    tx, tw, tb = torch.from_numpy(x), torch.from_numpy(w.T.copy()), torch.from_numpy(bias)

    def theirs():
        y = F.linear(tx, tw, tb)
        if epilogue == "gelu":
            return F.gelu(y)
        return y + torch.from_numpy(rest[0]) if rest else y

    mine, other = race(lambda: made.run(x, *rest), theirs)
    error = difference(made.run(x, *rest)[0], theirs().numpy())
    flops = 2.0 * rows * terms * columns
    return report(f"{rows}x{terms}x{columns} {epilogue}", flops, mine, other, error)


def attention(which: str, threads: int) -> str:
    def scores(b, q, k):
        q = b.transpose(b.reshape(q, shape=(1, 128, 12, 64)), permutation=(0, 2, 1, 3))
        k = b.transpose(b.reshape(k, shape=(1, 128, 12, 64)), permutation=(0, 2, 3, 1))
        return b.matmul(q, k)

    def mixed(b, p, v):
        v = b.transpose(b.reshape(v, shape=(1, 128, 12, 64)), permutation=(0, 2, 1, 3))
        return b.reshape(b.transpose(b.matmul(p, v), permutation=(0, 2, 1, 3)), shape=(1, 128, 768))

    heads = f32(1, 128, 768)
    first = heads if which == "scores" else f32(1, 12, 128, 128)
    op = group([first, heads], scores if which == "scores" else mixed)
    x, y = numbers(*first.shape), numbers(1, 128, 768, scale=0.3)
    made = Compiled(op, {}, threads)
    split = [
        torch.from_numpy(a).view(1, 128, 12, 64).transpose(1, 2)
        if a.ndim == 3
        else torch.from_numpy(a)
        for a in (x, y)
    ]

    def theirs():
        if which == "scores":
            return split[0] @ split[1].transpose(2, 3)
        return (split[0] @ split[1]).transpose(1, 2).reshape(1, 128, 768)

    mine, other = race(lambda: made.run(x, y), theirs)
    error = difference(made.run(x, y)[0], theirs().numpy())
    return report(f"attention {which}", 24.0 * 128 * 128 * 64, mine, other, error)


def convolution(
    c: int, o: int, k: int, stride: int, size: int, residual: bool, threads: int
) -> str:
    pad = k // 2
    out = (size + 2 * pad - k) // stride + 1
    shape = (1, o, out, out)

    def build(b, x, w, bias, *rest):
        y = b.conv(
            x,
            w,
            strides=(stride, stride),
            low=(pad, pad),
            high=(pad, pad),
            dilations=(1, 1),
            groups=1,
        )
        y = b.add(y, b.broadcast(bias, shape=shape, dims=(1,)))
        y = b.add(y, rest[0]) if rest else y
        return b.max(y, b.expand(b.constant(0.0, "f32"), shape))

    extra = [f32(*shape, order=NHWC)] if residual else []
    op = group([f32(1, c, size, size, order=NHWC), f32(o, c, k, k), f32(o), *extra], build, NHWC)
    x, w, bias = (
        numbers(1, size, size, c),
        numbers(o, c, k, k, scale=(c * k * k) ** -0.5),
        numbers(o),
    )
    rest = [numbers(1, out, out, o) for _ in extra]
    made = Compiled(op, {1: w, 2: bias}, threads)

    def run():  # the program's arrays are in memory order
        return made.run(x.reshape(1, c, size, size), *(r.reshape(shape) for r in rest))[0]

    best = None
    for form in (torch.contiguous_format, torch.channels_last):
        tx = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=form)
        tw, tb = torch.from_numpy(w).contiguous(memory_format=form), torch.from_numpy(bias)
        tr = [torch.from_numpy(r).permute(0, 3, 1, 2).contiguous(memory_format=form) for r in rest]

        def theirs(tx=tx, tw=tw, tb=tb, tr=tr):
            y = F.conv2d(tx, tw, tb, stride, pad)
            return F.relu_(y.add_(tr[0]) if tr else y)

        times = race(run, theirs, 0.3)
        best = times if best is None else (min(best[0], times[0]), min(best[1], times[1]))
    reference = theirs().permute(0, 2, 3, 1).numpy()
    error = difference(run().reshape(-1), reference.reshape(-1))
    what = f"conv {c}->{o} {k}x{k}/{stride} at {size}{' +residual' if residual else ''}"
    return report(what, 2.0 * out * out * o * c * k * k, *best, error)


def difference(ours: np.ndarray, reference: np.ndarray) -> float:
    """Largest difference, relative to the reference's largest element."""
    return float(np.abs(ours - reference).max() / np.abs(reference).max())


def lines(what: list[str], threads: int):
    if "matmul" in what:
        for epilogue in ("bias", "gelu", "residual"):
            for terms, columns in ((768, 768), (768, 3072), (3072, 768)):
                yield matmul(128, terms, columns, epilogue, threads)
        for rows, terms, columns in ((1, 2048, 1000), (1, 64, 128), (13, 300, 77), (37, 513, 70)):
            yield matmul(rows, terms, columns, "bias", threads)
    if "attention" in what:
        for which in ("scores", "mixed"):
            yield attention(which, threads)
    if "convolution" in what:
        for shape in RESNET50:
            yield convolution(*shape, residual=False, threads=threads)
        yield convolution(64, 256, 1, 1, 56, residual=True, threads=threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["matmul", "attention", "convolution"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads; ours, torch, torch's time over ours")
    with torch.no_grad():
        for line in lines(arguments.what, arguments.threads):
            print(line, flush=True)


if __name__ == "__main__":
    main()
