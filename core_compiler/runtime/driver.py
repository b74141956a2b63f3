"""The native driver: runs a list of launches on a team of threads in one call.

It is native because a launch from Python costs 70 us through a thread pool and 2.6 us through a
compiled Numba trampoline, which needs Numba (1 s to import) and its threading layer (which aborts
when two Python threads run kernels).  Here one call runs all launches of a program: every thread
walks the same list. Written as LLVM IR, it needs only llvmlite, and its object code is cached.

A launch is split into one equal slice per thread.  A thread claims its own slice first, then
unclaimed slices, and continues when all slices are *done*: a preempted thread delays no other
unless it stopped inside a slice, and one that wakes up late finds its work done.  The assignment of
slices to threads changes no bits (numerics contract).

Threads are POSIX threads.  Between runs they spin for a moment, for the next call of a loop, then
sleep on a condition variable: an idle team costs nothing.

Floating point: the *calling* thread's control register (MXCSR, FPCR) is checked at entry, and a run
is rejected if it flushes subnormals or does not round to nearest even (numerics contract); it is
never changed behind the caller's back.  The team's own threads set theirs to the default before
each run, since a thread inherits the register of its creator.
"""

from __future__ import annotations

import platform
import time
from string import Template

#: Words of a launch record: kernel address, argument block address, work items, maximum number of
#: threads (0: all), and whether the threads wait for it to be done.
RECORD = ("kernel", "arguments", "work_items", "max_threads", "wait")

#: Status codes of ``cw_run``.
OK, FLUSH_TO_ZERO, ROUNDING = 0, 1, 2

#: How long a thread waits for the next run before it sleeps.  To wake it takes 30 us.
IDLE_NANOSECONDS = 100_000

#: Bytes of a team's shared block, and the offsets of the fields that the host sets.
TEAM_BYTES = 512

#: Chunk of the built-in copy and zero kernels: bytes per work item.
COPY_CHUNK = 1 << 16

# Team block:   0 generation   8 stop   16 program   24 count   32 threads   40 scratch
#              48 scratch stride   56 times   64 threads inside   128 open   136 claims
#             144 claims stride   192 mutex   320 condition
# Claims of a launch (``claims stride`` bytes): 0 slices done, 64 on: one i64 a slice, 1 if claimed.
_DRIVER = Template("""
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_trylock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
$declarations

define internal i64 @now() {
  %spec = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 $clock, ptr %spec)
  %seconds = load i64, ptr %spec
  %fraction.p = getelementptr i64, ptr %spec, i64 1
  %fraction = load i64, ptr %fraction.p
  %whole = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %whole, %fraction
  ret i64 %nanoseconds
}

; Wait until *counter equals `wanted`.
define internal void @wait(ptr %counter, i64 %wanted) {
entry:
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ %more, %spin ], [ %more, %yield ]
  %seen = load atomic i64, ptr %counter acquire, align 8
  %reached = icmp eq i64 %seen, %wanted
  br i1 %reached, label %done, label %spin
spin:
  $pause
  %more = add i64 %spins, 1
  %tired = icmp ugt i64 %more, $wait_spins
  br i1 %tired, label %yield, label %look
yield:
  %ignored = call i32 @sched_yield()
  br label %look
done:
  ret void
}

; Run slice [items * s / n, items * (s + 1) / n) of a launch; `slot` (or null) gets start and end.
define internal void @slice(ptr %record, i64 %s, i64 %n, i64 %scratch, ptr %slot) {
entry:
  %arguments.p = getelementptr i64, ptr %record, i64 1
  %items.p = getelementptr i64, ptr %record, i64 2
  %kernel = load ptr, ptr %record
  %arguments = load i64, ptr %arguments.p
  %items = load i64, ptr %items.p
  %lo.n = mul i64 %items, %s
  %s.next = add i64 %s, 1
  %hi.n = mul i64 %items, %s.next
  %lo = udiv i64 %lo.n, %n
  %hi = udiv i64 %hi.n, %n
  %some = icmp ult i64 %lo, %hi
  br i1 %some, label %start, label %out
start:
  %timed = icmp ne ptr %slot, null
  br i1 %timed, label %time, label %plain
plain:
  call void %kernel(i64 %arguments, i64 %lo, i64 %hi, i64 %scratch)
  ret void
time:
  %end.p = getelementptr i64, ptr %slot, i64 1
  %t0 = call i64 @now()
  call void %kernel(i64 %arguments, i64 %lo, i64 %hi, i64 %scratch)
  %t1 = call i64 @now()
  %earlier = load i64, ptr %slot
  %first = icmp eq i64 %earlier, 0
  %begin = select i1 %first, i64 %t0, i64 %earlier
  store i64 %begin, ptr %slot
  store i64 %t1, ptr %end.p
  ret void
out:
  ret void
}

; One thread's part of a run.
define internal void @work(ptr %program, i64 %count, i64 %threads, i64 %thread, i64 %scratch,
                           i64 %stride, ptr %times, ptr %claims, i64 %claims.stride) {
entry:
  %scratch.offset = mul i64 %thread, %stride
  %scratch.own = add i64 %scratch, %scratch.offset
  %timed = icmp ne ptr %times, null
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %step ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %launch, label %out
launch:
  %record = getelementptr [5 x i64], ptr %program, i64 %i
  %limit.p = getelementptr i64, ptr %record, i64 3
  %wait.p = getelementptr i64, ptr %record, i64 4
  %limit = load i64, ptr %limit.p
  %waits = load i64, ptr %wait.p
  %unlimited = icmp eq i64 %limit, 0
  %above = icmp ugt i64 %limit, %threads
  %all = or i1 %unlimited, %above
  %used = select i1 %all, i64 %threads, i64 %limit
  %row = mul i64 %i, %threads
  %cell = add i64 %row, %thread
  %slot.at = getelementptr [2 x i64], ptr %times, i64 %cell
  %slot = select i1 %timed, ptr %slot.at, ptr null
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %whole, label %shared
whole:
  call void @slice(ptr %record, i64 0, i64 1, i64 %scratch.own, ptr %slot)
  br label %step
shared:
  %claims.offset = mul i64 %i, %claims.stride
  %done.p = getelementptr i8, ptr %claims, i64 %claims.offset
  %flags = getelementptr i8, ptr %done.p, i64 64
  %in = icmp ult i64 %thread, %used
  br i1 %in, label %claim, label %gather
claim:
  %j = phi i64 [ 0, %shared ], [ %j.next, %claimed ]
  %turn = add i64 %thread, %j
  %over = icmp uge i64 %turn, %used
  %back = sub i64 %turn, %used
  %s = select i1 %over, i64 %back, i64 %turn
  %flag = getelementptr i64, ptr %flags, i64 %s
  %peek = load atomic i64, ptr %flag monotonic, align 8
  %open = icmp eq i64 %peek, 0
  br i1 %open, label %try, label %claimed
try:
  %taken = atomicrmw xchg ptr %flag, i64 1 acq_rel
  %mine = icmp eq i64 %taken, 0
  br i1 %mine, label %run, label %claimed
run:
  call void @slice(ptr %record, i64 %s, i64 %used, i64 %scratch.own, ptr %slot)
  %before = atomicrmw add ptr %done.p, i64 1 acq_rel
  br label %claimed
claimed:
  %j.next = add i64 %j, 1
  %others = icmp ult i64 %j.next, %used
  br i1 %others, label %claim, label %gather
gather:
  %meets = icmp ne i64 %waits, 0
  br i1 %meets, label %meet, label %step
meet:
  call void @wait(ptr %done.p, i64 %used)
  br label %step
step:
  %i.next = add i64 %i, 1
  br label %head
out:
  ret void
}

; A team thread: argument {team, thread number}; sleeps until the generation changes.
define ptr @cw_worker(ptr %self) {
entry:
  %team = load ptr, ptr %self
  %thread.p = getelementptr i64, ptr %self, i64 1
  %thread = load i64, ptr %thread.p
  %stop.p = getelementptr i8, ptr %team, i64 8
  %program.p = getelementptr i8, ptr %team, i64 16
  %count.p = getelementptr i8, ptr %team, i64 24
  %threads.p = getelementptr i8, ptr %team, i64 32
  %scratch.p = getelementptr i8, ptr %team, i64 40
  %stride.p = getelementptr i8, ptr %team, i64 48
  %times.p = getelementptr i8, ptr %team, i64 56
  %inside.p = getelementptr i8, ptr %team, i64 64
  %open.p = getelementptr i8, ptr %team, i64 128
  %claims.p = getelementptr i8, ptr %team, i64 136
  %claims.stride.p = getelementptr i8, ptr %team, i64 144
  %mutex = getelementptr i8, ptr %team, i64 192
  %condition = getelementptr i8, ptr %team, i64 320
  br label %idle
idle:
  %served = phi i64 [ 0, %entry ], [ %generation, %serve ], [ %generation, %late ]
  %since = call i64 @now()
  br label %spin
spin:
  %spins = phi i64 [ 0, %idle ], [ %spins.next, %spin.on ], [ %spins.next, %clock ]
  %peek = load atomic i64, ptr %team acquire, align 8
  %fresh = icmp ne i64 %peek, %served
  br i1 %fresh, label %reach, label %spin.on
spin.on:
  $pause
  %spins.next = add i64 %spins, 1
  %low = and i64 %spins.next, 63
  %looks = icmp eq i64 %low, 0
  br i1 %looks, label %clock, label %spin
clock:
  %time = call i64 @now()
  %spent = sub i64 %time, %since
  %tired = icmp ugt i64 %spent, $idle_nanoseconds
  br i1 %tired, label %sleep, label %spin
; The caller still has the mutex, for a moment: to sleep on it would cost more than the wait.
reach:
  %tries = phi i64 [ 0, %spin ], [ %tries.next, %reach.on ]
  %busy = call i32 @pthread_mutex_trylock(ptr %mutex)
  %got = icmp eq i32 %busy, 0
  br i1 %got, label %check, label %reach.on
reach.on:
  $pause
  %tries.next = add i64 %tries, 1
  %enough = icmp ugt i64 %tries.next, $wait_spins
  br i1 %enough, label %sleep, label %reach
sleep:
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %check
check:
  %generation = load atomic i64, ptr %team acquire, align 8
  %changed = icmp ne i64 %generation, %served
  br i1 %changed, label %wake, label %rest
rest:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
wake:
  %stop = load i64, ptr %stop.p
  %stops = icmp ne i64 %stop, 0
  br i1 %stops, label %leave, label %enter
enter:
  %open = load i64, ptr %open.p
  %still = icmp ne i64 %open, 0
  br i1 %still, label %join, label %late
late:
  %unlocked.late = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %idle
join:
  %entered = atomicrmw add ptr %inside.p, i64 1 acq_rel
  %program = load ptr, ptr %program.p
  %count = load i64, ptr %count.p
  %threads = load i64, ptr %threads.p
  %scratch = load i64, ptr %scratch.p
  %stride = load i64, ptr %stride.p
  %times = load ptr, ptr %times.p
  %claims = load ptr, ptr %claims.p
  %claims.stride = load i64, ptr %claims.stride.p
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %serve
serve:
  call void @set_default_state()
  call void @work(ptr %program, i64 %count, i64 %threads, i64 %thread, i64 %scratch, i64 %stride,
                  ptr %times, ptr %claims, i64 %claims.stride)
  %left = atomicrmw sub ptr %inside.p, i64 1 acq_rel
  br label %idle
leave:
  %unlocked.stop = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret ptr null
}

; Run `count` launches on `threads` threads (the caller is thread 0); returns a status code.
; `claims` is count * `claims.stride` bytes, needed where there are several threads.
define i64 @cw_run(ptr %team, ptr %program, i64 %count, i64 %threads, i64 %scratch, i64 %stride,
                   ptr %times, ptr %claims, i64 %claims.stride) {
entry:
  %state = call i64 @state_status()
  %refused = icmp ne i64 %state, 0
  br i1 %refused, label %refuse, label %accept
refuse:
  ret i64 %state
accept:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %summon
single:
  call void @work(ptr %program, i64 %count, i64 1, i64 0, i64 %scratch, i64 %stride, ptr %times,
                  ptr null, i64 0)
  ret i64 0
summon:
  %program.p = getelementptr i8, ptr %team, i64 16
  %count.p = getelementptr i8, ptr %team, i64 24
  %threads.p = getelementptr i8, ptr %team, i64 32
  %scratch.p = getelementptr i8, ptr %team, i64 40
  %stride.p = getelementptr i8, ptr %team, i64 48
  %times.p = getelementptr i8, ptr %team, i64 56
  %inside.p = getelementptr i8, ptr %team, i64 64
  %open.p = getelementptr i8, ptr %team, i64 128
  %claims.p = getelementptr i8, ptr %team, i64 136
  %claims.stride.p = getelementptr i8, ptr %team, i64 144
  %mutex = getelementptr i8, ptr %team, i64 192
  %condition = getelementptr i8, ptr %team, i64 320
  %claims.bytes = mul i64 %count, %claims.stride
  call void @llvm.memset.p0.i64(ptr %claims, i8 0, i64 %claims.bytes, i1 false)
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  store ptr %program, ptr %program.p
  store i64 %count, ptr %count.p
  store i64 %threads, ptr %threads.p
  store i64 %scratch, ptr %scratch.p
  store i64 %stride, ptr %stride.p
  store ptr %times, ptr %times.p
  store ptr %claims, ptr %claims.p
  store i64 %claims.stride, ptr %claims.stride.p
  store i64 1, ptr %open.p
  %before = load i64, ptr %team
  %generation = add i64 %before, 1
  store atomic i64 %generation, ptr %team release, align 8
  %told = call i32 @pthread_cond_broadcast(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @work(ptr %program, i64 %count, i64 %threads, i64 0, i64 %scratch, i64 %stride,
                  ptr %times, ptr %claims, i64 %claims.stride)
  ; All slices are done or claimed by a thread inside: nobody may enter any more, then all leave.
  %locked.again = call i32 @pthread_mutex_lock(ptr %mutex)
  store i64 0, ptr %open.p
  %unlocked.again = call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @wait(ptr %inside.p, i64 0)
  ret i64 0
}

; The same with its arguments in memory, one after another: one argument costs the host less.
define i64 @cw_call(ptr %arguments) {
  %program.p = getelementptr i64, ptr %arguments, i64 1
  %count.p = getelementptr i64, ptr %arguments, i64 2
  %threads.p = getelementptr i64, ptr %arguments, i64 3
  %scratch.p = getelementptr i64, ptr %arguments, i64 4
  %stride.p = getelementptr i64, ptr %arguments, i64 5
  %times.p = getelementptr i64, ptr %arguments, i64 6
  %claims.p = getelementptr i64, ptr %arguments, i64 7
  %claims.stride.p = getelementptr i64, ptr %arguments, i64 8
  %team = load ptr, ptr %arguments
  %program = load ptr, ptr %program.p
  %count = load i64, ptr %count.p
  %threads = load i64, ptr %threads.p
  %scratch = load i64, ptr %scratch.p
  %stride = load i64, ptr %stride.p
  %times = load ptr, ptr %times.p
  %claims = load ptr, ptr %claims.p
  %claims.stride = load i64, ptr %claims.stride.p
  %status = call i64 @cw_run(ptr %team, ptr %program, i64 %count, i64 %threads, i64 %scratch,
                             i64 %stride, ptr %times, ptr %claims, i64 %claims.stride)
  ret i64 %status
}

; Tell the team's threads to leave.
define void @cw_stop(ptr %team) {
  %mutex = getelementptr i8, ptr %team, i64 192
  %condition = getelementptr i8, ptr %team, i64 320
  %stop.p = getelementptr i8, ptr %team, i64 8
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  store i64 1, ptr %stop.p
  %before = load i64, ptr %team
  %generation = add i64 %before, 1
  store atomic i64 %generation, ptr %team release, align 8
  %told = call i32 @pthread_cond_broadcast(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

; Built-in kernels.  Arguments: cw_copy {to, from, bytes}, cw_zero {to, bytes}.
define void @cw_copy(i64 %arguments, i64 %lo, i64 %hi, i64 %scratch) {
  %block = inttoptr i64 %arguments to ptr
  %from.p = getelementptr i64, ptr %block, i64 1
  %bytes.p = getelementptr i64, ptr %block, i64 2
  %to = load ptr, ptr %block
  %from = load ptr, ptr %from.p
  %bytes = load i64, ptr %bytes.p
  %first = mul i64 %lo, $chunk
  %end = mul i64 %hi, $chunk
  %whole = icmp ult i64 %end, %bytes
  %last = select i1 %whole, i64 %end, i64 %bytes
  %length = sub i64 %last, %first
  %to.at = getelementptr i8, ptr %to, i64 %first
  %from.at = getelementptr i8, ptr %from, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %to.at, ptr %from.at, i64 %length, i1 false)
  ret void
}
define void @cw_zero(i64 %arguments, i64 %lo, i64 %hi, i64 %scratch) {
  %block = inttoptr i64 %arguments to ptr
  %bytes.p = getelementptr i64, ptr %block, i64 1
  %to = load ptr, ptr %block
  %bytes = load i64, ptr %bytes.p
  %first = mul i64 %lo, $chunk
  %end = mul i64 %hi, $chunk
  %whole = icmp ult i64 %end, %bytes
  %last = select i1 %whole, i64 %end, i64 %bytes
  %length = sub i64 %last, %first
  %to.at = getelementptr i8, ptr %to, i64 %first
  call void @llvm.memset.p0.i64(ptr %to.at, i8 0, i64 %length, i1 false)
  ret void
}
; Does nothing: the cost of a launch is measured with it.
define void @cw_nothing(i64 %arguments, i64 %lo, i64 %hi, i64 %scratch) {
  ret void
}
$floating_point
""")

# MXCSR: 0x8000 flush to zero, 0x0040 denormals are zero, 0x6000 rounding; 0x1f80 is the default.
_X86 = {
    "pause": "call void @llvm.x86.sse2.pause()",
    "declarations": """declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)""",
    "floating_point": """
define internal i64 @state_status() {
  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %state = load i32, ptr %slot
  %flush = and i32 %state, 32832
  %flushes = icmp ne i32 %flush, 0
  %rounding = and i32 %state, 24576
  %rounds = icmp ne i32 %rounding, 0
  %second = select i1 %rounds, i64 2, i64 0
  %status = select i1 %flushes, i64 1, i64 %second
  ret i64 %status
}
define internal void @set_default_state() {
  %slot = alloca i32
  store i32 8064, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
define void @cw_set_state(i64 %state) {
  %slot = alloca i32
  %word = trunc i64 %state to i32
  store i32 %word, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}""",
}

# FPCR: bit 24 flush to zero, bit 19 the same for f16, bits 22 and 23 rounding; 0 is the default.
_ARM = {
    "pause": "call void @llvm.aarch64.hint(i32 1)",
    "declarations": """declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)""",
    "floating_point": """
define internal i64 @state_status() {
  %state = call i64 @llvm.aarch64.get.fpcr()
  %flush = and i64 %state, 17301504
  %flushes = icmp ne i64 %flush, 0
  %rounding = and i64 %state, 12582912
  %rounds = icmp ne i64 %rounding, 0
  %second = select i1 %rounds, i64 2, i64 0
  %status = select i1 %flushes, i64 1, i64 %second
  ret i64 %status
}
define internal void @set_default_state() {
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret void
}
define void @cw_set_state(i64 %state) {
  call void @llvm.aarch64.set.fpcr(i64 %state)
  ret void
}""",
}

MACHINES = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}


def claims_bytes(threads: int) -> int:
    """Return the bytes to track a launch's claimed and finished slices: whole cache lines."""
    return 64 + -(-8 * threads // 64) * 64


def source(machine: str | None = None) -> str:
    """Return the driver as LLVM IR for a processor family (default: this one's)."""
    machine = (machine or platform.machine()).lower()
    return _DRIVER.substitute(
        MACHINES[machine],
        clock=int(time.CLOCK_MONOTONIC),
        wait_spins=200,  # some 10 us on Intel, 3 on AMD; then the thread yields
        idle_nanoseconds=IDLE_NANOSECONDS,
        chunk=COPY_CHUNK,
    )
