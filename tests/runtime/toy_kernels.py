"""Kernels written in LLVM IR, so that the runtime is tested without the code generator."""

from __future__ import annotations

from core_compiler.runtime.kernel_cache import KernelSource

#: out[i] = a[i] * b[i] + 1 for i in [lo, hi); the argument block is (a, b, out).
MULTIPLY_ADD = """
define void @NAME(i64 %block, i64 %lo, i64 %hi, i64 %scratch) {
entry:
  %p = inttoptr i64 %block to ptr
  %b.p = getelementptr i64, ptr %p, i64 1
  %o.p = getelementptr i64, ptr %p, i64 2
  %a = load ptr, ptr %p
  %b = load ptr, ptr %b.p
  %o = load ptr, ptr %o.p
  %any = icmp slt i64 %lo, %hi
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ %lo, %entry ], [ %next, %loop ]
  %ai = getelementptr float, ptr %a, i64 %i
  %bi = getelementptr float, ptr %b, i64 %i
  %oi = getelementptr float, ptr %o, i64 %i
  %x = load float, ptr %ai
  %y = load float, ptr %bi
  %xy = fmul float %x, %y
  %z = fadd float %xy, 1.0
  store float %z, ptr %oi
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %hi
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

#: Every thread writes its slice into its scratch, then from there to out (args: in, out).
THROUGH_SCRATCH = """
define void @NAME(i64 %block, i64 %lo, i64 %hi, i64 %scratch) {
entry:
  %p = inttoptr i64 %block to ptr
  %o.p = getelementptr i64, ptr %p, i64 1
  %a = load ptr, ptr %p
  %o = load ptr, ptr %o.p
  %s = inttoptr i64 %scratch to ptr
  %from = getelementptr float, ptr %a, i64 %lo
  %to = getelementptr float, ptr %o, i64 %lo
  %n = sub i64 %hi, %lo
  %bytes = mul i64 %n, 4
  call void @llvm.memcpy.p0.p0.i64(ptr %s, ptr %from, i64 %bytes, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %s, i64 %bytes, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def kernel(name: str, text: str = MULTIPLY_ADD) -> KernelSource:
    return KernelSource(name, text.replace("NAME", name), name)
