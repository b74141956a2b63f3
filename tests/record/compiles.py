"""Small compiles to record: stages of a chain of ops, with everything a compile can tell."""

from __future__ import annotations

import numpy as np

from core_compiler.ir import (
    Block,
    FrontendNode,
    Function,
    Module,
    Op,
    Origin,
    Rewrite,
    Rewriter,
    Value,
    WeightStore,
    tensor,
)
from core_compiler.ir.events import (
    BufferRecord,
    CheckRecord,
    Diagnostic,
    FloatOpRecord,
    FrameworkRecord,
    KernelRecord,
    Observer,
    QuantisationRecord,
    QuantisedRecord,
    StageRecord,
    TensorStats,
    TimingRecord,
)

TYPE = tensor((4, 8), "f32")


def chain(length: int) -> Module:
    """x -> exp -> exp ..., each op from its own line of model.py; one weight."""
    weights = WeightStore()
    handle = weights.add(np.arange(1000, dtype=np.float32))
    x, w = Value(TYPE, "x"), Value(handle.type, "w")
    origin = Origin.root(FrontendNode("w", "get_attr", "model.py", 1, "net"))
    ops, last = [Op("core.constant", (), (w,), {"value": handle}, (), origin)], x
    for number in range(length):
        node = FrontendNode(f"exp_{number}", "aten.exp", "model.py", number + 2, f"net/{number}")
        value = Value(TYPE, f"v{number}" if number % 2 else None)
        ops.append(Op("core.exp", (last,), (value,), {"axis": number}, (), Origin.root(node)))
        last = value
    return Module({"main": Function("main", Block((x,), tuple(ops), (last, w)))}, weights)


def step(module: Module, number: int, count: int = 3) -> tuple[Module, list[Rewrite]]:
    """A pass: ``count`` ops become others, some making the same value, some a new one."""
    rewriter = Rewriter(module.main.body)
    ops = [op for op in module.main.body.ops if op.operands]
    for k in range(count):
        op = ops[(number * 7 + k * 5) % len(ops)]
        if op not in rewriter:
            continue
        if k % 2:
            new = Value(TYPE)
            made = Op("core.tanh", op.operands, (new,))
            rewriter.replace(op, made, {op.result: new}, rule="other value", note="n")
        else:
            made = op.with_(kind="core.sin", origin=None)
            rewriter.replace(op, made, rule="same value", tolerance=1e-6)
    return module.with_main(rewriter.commit()), rewriter.events


def stages(length: int = 30, count: int = 25) -> list[StageRecord]:
    module = chain(length)
    made = [StageRecord(0, "import", module, doc="Read the model.", figures={"ops": length + 1})]
    for number in range(1, count):
        module, rewrites = step(module, number)
        warning = Diagnostic("warning", f"careful {number}", "main", module.main.body.ops[1])
        made.append(
            StageRecord(
                number,
                f"pass_{number % 4}",
                module,
                rewrites,
                0.5,
                {"ops": len(rewrites)},
                [warning],
                "implementation" if number > 10 else "meaning",
                number % 2 == 0,
                "elementwise",
                bool(rewrites),
                {"limit": number},
            )
        )
    return made


def record(observer: Observer, made: list[StageRecord], *, end: str = "finished") -> None:
    """A whole compile of these stages, as the compiler would tell it."""
    observer.begin(
        {"model": "chain", "versions": {"numpy": "2"}, "sources": {"model.py": "x = 1\n"}}
    )
    for stage in made:
        observer.progress("passes", stage.index, len(made))
        observer.stage(stage)
        verdicts = ["bitwise", "within", "failed"]
        results = [
            CheckRecord(
                r,
                verdicts[n % 3],
                n * 1e-7,
                1e-6,
                r.old[0].result,
                (n, 1),
                0.25,
                kind=("rewrite", "unlogged")[n == 1],
            )
            for n, r in enumerate(stage.rewrites)
        ]
        if results:
            observer.check(stage.index, results)
    last = made[-1].module.main.body
    op = next(op for op in last.ops if op.operands)
    observer.kernels(
        [
            KernelRecord(
                "exp_k",
                "def kernel(): ...\n" * 50,
                "define void",
                "vmulps",
                [(1, op)],
                [(2, 1)],
                [(3, 1)],
                [("plain", "loop"), ("vectorised", "vector loop")],
                0.7,
                [op],
                [op],
                "key",
                True,
                b"\x90\0\xff",
                {"registers": 12},
            )
        ]
    )
    observer.buffers(
        [BufferRecord(op.result, 64, 128, 100, "dram", 1, 5, "temporary", op, "b")],
        {"arena_bytes": 192, "lower_bound_bytes": 128},
    )
    observer.timings([TimingRecord(0, (3.0, 1.0, 2.0), 10, 20, "exp_k", op, 2)], {"total_ms": 0.5})
    observer.tensors(
        [
            TensorStats(
                op.result,
                -1.0,
                2.0,
                float("nan"),
                1,
                2,
                ([0, 1, 2], [3, 4]),
                2,
                np.arange(32, dtype=np.float32).reshape(4, 8),
            )
        ]
    )
    observer.framework(
        [
            FrameworkRecord(op.operands[0], "torch", "exp_0"),
            FrameworkRecord(op.result, "torch", "exp_1", False, 1e-6, (1, 2), 0.5, 0.25),
        ]
    )
    value, infinite, nan = op.result, float("inf"), float("nan")
    histogram = ([0.0, 0.5, 1.0], [3, 4], [2, 5])
    lost = [
        QuantisedRecord(value, op.operands[0], 2, -3.5, 0.5, 0.25, (0, 1), (-1, 2), histogram, 9.0),
        QuantisedRecord(op.operands[0], value, 1, infinite, nan, 0.0, (0, 1), (-1, 2)),
    ]
    observer.quantisation(QuantisationRecord(7, 41.5, lost, [FloatOpRecord(op, "why\0 not")]))
    observer.figures({"identity": "abc", "worst": 1.5, "huge": 2**70})
    observer.end(end)
