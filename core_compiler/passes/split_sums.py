"""Split sums: different blocks of a GPU compute the chunks of a long sum of products."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Value
from core_compiler.ir.refusal import refuse
from core_compiler.lowering.element_expressions import CHUNK
from core_compiler.ops.rules import accumulator
from core_compiler.ops.typed import Matmul
from core_compiler.passes.replacement import ReplaceOps
from core_compiler.scheduling.schedules.gpu.product import TILINGS, Work

#: The most chunks whose sums one launch adds.
MOST = 32
#: Bytes that the second cache moves in a cycle.
MOVED = 4000


@dataclass(frozen=True)
class SplitSums(ReplaceOps):
    """Compute the chunks of a long sum of products side by side, and add their sums in order.

    It does so where the threads of the product alone would keep less than half of the
    multiprocessors busy, and the estimated time of both launches is shorter.  A chunk's sum starts
    from +0, is not rounded, and is added to those before it, as in one launch: the bits are the
    same.

    ``processors``: multiprocessors of the GPU; ``launch``: cycles that one more launch takes.
    """

    half = "implementation"

    processors: int = 132
    launch: int = 8000

    @override
    def refused(self, op):
        found = Matmul.match(op)
        if found is None:
            return refuse("a product", "{0} is none", op)
        a, b = found.a.type, found.b.type
        if a.rank != 2 or not a.dtype.is_float:
            return refuse("a matrix product of floats", "{0} multiplies {1:shape}", op, found.a)
        (rows, terms), columns = a.shape, b.shape[1]
        if rows < 2 or columns < 2:
            return refuse("a matrix product of floats", "{0} multiplies a vector", op)
        if terms % CHUNK or not 2 <= terms // CHUNK <= MOST:
            return refuse("whole chunks", "{0} adds {1} products", op, terms)
        whole = self._work(1, rows, columns, terms)
        if whole.share(self.processors) >= 0.5:
            return refuse("few blocks", "{0} has {1}", op, whole.blocks)
        chunks = terms // CHUNK
        split = self._work(chunks, rows, columns, CHUNK).cycles(self.processors) + self.launch
        split += 2 * chunks * rows * columns * accumulator(a.dtype).bytes / MOVED
        if split >= whole.cycles(self.processors):
            return refuse("less time", "{0} takes too little time to split it", op)
        return None

    def _work(self, batch: int, rows: int, columns: int, terms: int) -> Work:
        works = [Work.of(t, batch, rows, columns, terms) for t in TILINGS["default"]]
        return min(works, key=lambda work: work.cycles(self.processors))

    @override
    def replacement(self, b, op):
        found = Matmul.match(op)
        assert found is not None
        (rows, terms), columns = found.a.type.shape, found.b.type.shape[1]
        chunks = terms // CHUNK
        left = b.reshape(found.a, shape=(rows, chunks, CHUNK))
        right = b.reshape(found.b, shape=(chunks, CHUNK, columns))
        sums = b.contract(
            left,
            right,
            batch_a=(1,),
            batch_b=(0,),
            contract_a=(2,),
            contract_b=(1,),
            accumulate=accumulator(found.a.type.dtype),
        )

        def part(chunk: int) -> Value:
            limits = (chunk + 1, rows, columns)
            one = b.slice(sums, starts=(chunk, 0, 0), limits=limits, strides=(1, 1, 1))
            return b.reshape(one, shape=(rows, columns))

        total = part(0)
        for chunk in range(1, chunks):
            total = b.add(total, part(chunk))
        kind = op.result.type.dtype
        return total if total.type.dtype is kind else b.cast(total, dtype=kind)

    @override
    def rule(self, op):
        return "the chunks of a sum side by side"
