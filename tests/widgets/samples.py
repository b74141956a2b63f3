"""Data for the diff, code and memory views: small enough to read, or as large as asked."""

from __future__ import annotations

from typing import Any

import numpy as np

TYPE = "tensor<1x128x768xf32>"


def diff_data(ops: int = 60) -> dict[str, Any]:
    """Two stages as aligned lines: every tenth op changed, some added, some removed."""
    lines: list[dict[str, Any]] = []
    for i in range(ops):
        text = (
            f'    %{i} = "tensor.add"(%{max(0, i - 1)}, %{max(0, i - 2)}) {{axis = {i % 4} : i64}}'
            f' : ({TYPE}, {TYPE}) -> {TYPE} loc(fused<"rule">["model.py":{i}:0])'
        )
        if i % 10 == 3:
            after = text.replace("tensor.add", "tensor.multiply").replace("f32", "bf16", 1)
            lines.append(
                {"left": text, "right": after, "kind": "changed", "leftKey": i, "rightKey": i}
            )
        elif i % 10 == 6:
            lines.append(
                {"left": text, "right": None, "kind": "removed", "leftKey": i, "rightKey": None}
            )
            lines.append(
                {
                    "left": None,
                    "right": f'    %f{i} = "tensor.gelu"(%{i - 1}) : ({TYPE}) -> {TYPE}',
                    "kind": "added",
                    "leftKey": None,
                    "rightKey": f"f{i}",
                }
            )
        else:
            lines.append({"left": text, "kind": "equal", "leftKey": i, "rightKey": i})
    return {
        "left": {"title": "07 fold_constants"},
        "right": {"title": "08 recompose"},
        "language": "mlir",
        "lines": lines,
    }


PYTHON = """@njit(fastmath=False)
def kernel_add_gelu(args, lo, hi):
    # out = gelu(a + b), one element a step
    a = carray(args[0], (hi,), dtype=float32)
    b = carray(args[1], (hi,), dtype=float32)
    out = carray(args[2], (hi,), dtype=float32)
    for i in range(lo, hi):
        x = a[i] + b[i]
        y = 0.5 * x * (1.0 + erf(x * 0.70710678))
        out[i] = y
"""

LLVM = """; Function Attrs: nofree norecurse nounwind
define i32 @kernel_add_gelu(ptr noalias nocapture %.args, i64 %lo, i64 %hi) {
entry:
  %a = load ptr, ptr %.args, align 8
  %.p1 = getelementptr inbounds ptr, ptr %.args, i64 1
  %b = load ptr, ptr %.p1, align 8
  %.p2 = getelementptr inbounds ptr, ptr %.args, i64 2
  %out = load ptr, ptr %.p2, align 8
  br label %loop
loop:                                             ; preds = %loop, %entry
  %i = phi i64 [ %lo, %entry ], [ %next, %loop ]
  %pa = getelementptr inbounds float, ptr %a, i64 %i
  %va = load <8 x float>, ptr %pa, align 4
  %pb = getelementptr inbounds float, ptr %b, i64 %i
  %vb = load <8 x float>, ptr %pb, align 4
  %x = fadd <8 x float> %va, %vb
  %s = fmul <8 x float> %x, splat (float 0x3FE6A09E60000000)
  %e = call <8 x float> @cw_erf8(<8 x float> %s)
  %h = fmul <8 x float> %x, splat (float 5.000000e-01)
  %y = fmul <8 x float> %h, %e
  %po = getelementptr inbounds float, ptr %out, i64 %i
  store <8 x float> %y, ptr %po, align 4
  %next = add nuw nsw i64 %i, 8
  %done = icmp uge i64 %next, %hi
  br i1 %done, label %exit, label %loop
exit:
  ret i32 0
}
"""

ASM = """kernel_add_gelu:
	pushq	%rbp
	movq	(%rdi), %r12
	movq	8(%rdi), %r13
	movq	16(%rdi), %r14
.LBB0_1:
	vmovups	(%r12,%rbx,4), %ymm0
	vaddps	(%r13,%rbx,4), %ymm0, %ymm1
	vmovups	%ymm1, 32(%rsp)
	vmulps	.LCPI0_0(%rip), %ymm1, %ymm0
	callq	cw_erf8@PLT
	vmovups	32(%rsp), %ymm1
	vmulps	.LCPI0_1(%rip), %ymm1, %ymm1
	vmulps	%ymm0, %ymm1, %ymm0
	vmovups	%ymm0, (%r14,%rbx,4)
	addq	$8, %rbx
	cmpq	%rbp, %rbx
	jb	.LBB0_1
	xorl	%eax, %eax
	retq
"""


def code_data(repeat: int = 1) -> dict[str, Any]:
    """Numba source, LLVM IR and assembly of one kernel; `repeat` makes the texts longer."""
    groups = [
        {"lines": [[4], [4], [3]], "label": "a"},
        {"lines": [[5], [5, 6], [4]], "label": "b"},
        {"lines": [[6], [7, 8], [5]], "label": "out"},
        {"lines": [[7], [11, 23, 24, 25], [16, 17, 18]], "label": "loop"},
        {"lines": [[8], [12, 13, 14, 15, 16], [7, 8]], "label": "add", "op": 11},
        {"lines": [[9], [17, 18, 19, 20], [9, 10, 11, 12, 13, 14]], "label": "gelu", "op": 12},
        {"lines": [[10], [21, 22], [15]], "label": "store", "op": 12},
    ]
    texts = [PYTHON, LLVM, ASM]
    sizes = [text.count("\n") for text in texts]
    all_groups = [
        {
            **group,
            "lines": [
                [n + r * size for n in lines]
                for lines, size in zip(group["lines"], sizes, strict=True)
            ],
        }
        for r in range(repeat)
        for group in groups
    ]
    heat = np.full(sizes[2] * repeat, np.nan, np.float32)
    heat[6:15] = [3.1, 12.5, 1.2, 4.4, 38.0, 2.2, 6.1, 5.9, 9.8]
    return {
        "title": "kernel add_gelu, 98,304 elements, 2 threads",
        "kernel": "add_gelu",
        "panes": [
            {"title": "Numba source", "language": "python", "text": PYTHON * repeat},
            {"title": "LLVM IR", "language": "llvm", "text": LLVM * repeat},
            {
                "title": "x86-64 assembly",
                "language": "asm",
                "text": ASM * repeat,
                "heat": {"name": "samples", "unit": "%", "values": heat},
            },
        ],
        "groups": all_groups,
    }


def memory_data(buffers: int = 120, seed: int = 3, aligned: int = 4096) -> dict[str, Any]:
    """A plan made by first fit over random lifetimes; no two live buffers overlap."""
    random = np.random.default_rng(seed)
    steps = buffers
    start = np.sort(random.integers(0, steps, buffers))
    length = np.minimum(1 + random.geometric(0.12, buffers), steps - start)
    long = random.random(buffers) < 0.06
    length[long] = steps - start[long]
    end = start + np.maximum(1, length)
    unpadded = (random.lognormal(12.5, 1.3, buffers)).astype(np.int64) + 1
    size = -(-unpadded // aligned) * aligned
    offset = np.zeros(buffers, np.int64)
    live: list[int] = []
    for b in range(buffers):
        live = [other for other in live if end[other] > start[b]]
        at = 0
        for other in sorted(live, key=lambda other: offset[other]):
            if offset[other] - at >= size[b]:
                break
            at = max(at, offset[other] + size[other])
        offset[b] = at
        live.append(b)
    usage = np.zeros(steps + 1, np.int64)
    np.add.at(usage, start, size)
    np.add.at(usage, np.minimum(end, steps), -size)
    return {
        "title": "plan: first fit",
        "steps": steps,
        "step_label": [f"%{i} add" for i in range(steps)],
        "tiers": [
            {"name": "DRAM", "lower_bound": int(np.cumsum(usage).max())},
            {"name": "scratchpad", "capacity": 1 << 20},
        ],
        "categories": ["activation", "weight", "temporary"],
        "buffers": {
            "key": [f"b{i}" for i in range(buffers)],
            "name": [f"%{i} activation" for i in range(buffers)],
            "tier": np.zeros(buffers, np.int32),
            "offset": offset.astype(np.float64),
            "size": size.astype(np.float64),
            "unpadded": unpadded.astype(np.float64),
            "start": start.astype(np.int32),
            "end": end.astype(np.int32),
            "category": np.where(long, 1, random.integers(0, 2, buffers) * 2).astype(np.int32),
            "op": np.arange(buffers, dtype=np.int32),
        },
    }


def timeline_data(launches: int = 60, lanes: int = 2, seed: int = 5) -> dict[str, Any]:
    """An execution on threads that mostly share each launch and sometimes leave it to the first."""
    random = np.random.default_rng(seed)
    length = random.lognormal(3, 1, launches)
    begin = np.concatenate(([0.0], np.cumsum(length + 2.0)[:-1]))
    shared = random.random(launches) < 0.7
    spans = [
        (n, lane, begin[n] + 0.3 * lane, length[n] - 0.3 * lane)
        for n in range(launches)
        for lane in range(lanes if shared[n] else 1)
        if length[n] > 0.3 * lane
    ]
    launch, lane, start, duration = (np.array(column) for column in zip(*spans, strict=True))
    order = np.argsort(start, kind="stable")
    numbers = np.arange(launches)
    return {
        "title": "sample",
        "target": "cpu",
        "note": "execution 3 of 10, the one nearest the median",
        "recorded": True,
        "total": float((start + duration).max()),
        "lanes": [f"thread {i}" for i in range(lanes)],
        "categories": ["contraction", "reduction", "elementwise", "data movement"],
        "kernels": {
            "name": ["matmul_add", "softmax", "copy"],
            "key": [7, 8, 9],
            "category": [0, 1, 3],
        },
        "places": ["", "model.py:12"],
        "launches": {
            "op": (1000 + numbers).astype(np.int32),
            "kernel": (numbers % 3).astype(np.int32),
            "place": (numbers % 2).astype(np.int32),
            "median": length * 1.01,
            "min": length * 0.9,
            "p95": length * 1.2,
            "flops": length * 1e3,
            "bytes": length * 50,
        },
        "spans": {
            "launch": launch[order].astype(np.int32),
            "lane": lane[order].astype(np.int32),
            "start": start[order],
            "duration": duration[order],
        },
        "live": (random.integers(1, 64, launches) * 4096).astype(np.float64),
        "percent": random.uniform(1, 100, launches),
    }
