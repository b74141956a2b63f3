"""Loading of native code: object files through LLVM's ORC JIT, without Numba.

Every object becomes a library of its own, so that two kernels may define the same symbol.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform
import struct
import threading
from collections.abc import Callable

import llvmlite.binding as llvm

from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError

#: External functions that generated code may call: LLVM lowers copies, fills and loops over bytes
#: to these. Mathematical functions are not among them: the bits of libm depend on its version.
ALLOWED = ("memcpy", "memmove", "memset", "memcmp", "bcmp")
#: External functions that the driver itself calls.
DRIVER_ALLOWED = (
    *ALLOWED,
    "pthread_mutex_lock",
    "pthread_mutex_trylock",
    "pthread_mutex_unlock",
    "pthread_cond_wait",
    "pthread_cond_broadcast",
    "sched_yield",
    "clock_gettime",
)
#: Referenced by position-independent code, defined by the linker.
_LINKER_MADE = ("_GLOBAL_OFFSET_TABLE_",)

_lock = threading.Lock()
_numbers = itertools.count()


class LoadedCode:
    """Code in memory: ``addresses[symbol]``.  It stays loaded as long as this object lives."""

    def __init__(self, tracker, addresses: dict[str, int]):
        self._tracker, self.addresses = tracker, addresses

    def __getitem__(self, symbol: str) -> int:
        return self.addresses[symbol]

    def function(self, symbol: str, result, *arguments) -> Callable:
        """Return a ctypes function that keeps the code loaded and releases the GIL."""
        function = ctypes.CFUNCTYPE(result, *arguments)(self.addresses[symbol])
        function.code = self  # type: ignore[attr-defined]
        return function


def load_object(
    data: bytes,
    symbols: tuple[str, ...],
    *,
    where: str = "object file",
    allowed: tuple[str, ...] = ALLOWED,
) -> LoadedCode:
    """Load an object file and find ``symbols`` in it.

    Raises :class:`UserError` if the object calls a function not in ``allowed`` (LLVM would end the
    process, or link any function of the C library), and if a symbol is missing.
    """
    for name in undefined_symbols(data):
        if name not in allowed:
            raise UserError(
                f"calls {name}, which generated code must not call",
                where,
                "compile the kernel again, or report this kernel",
            )
    builder = llvm.JITLibraryBuilder().add_object_img(data)
    for name in symbols:
        builder.export_symbol(name)
    with _lock:
        jit = _jit()
        try:
            tracker = builder.link(jit, f"object{next(_numbers)}")
        except RuntimeError as error:
            raise UserError(
                f"cannot be loaded ({error})",
                where,
                "remove the entry from the cache and compile again",
            ) from None
    return LoadedCode(tracker, {name: tracker[name] for name in symbols})


def compile_ir(text: str, *, speed: int = 3) -> bytes:
    """Compile LLVM IR text to an object file for this processor, optimised at ``-O<speed>``."""
    with _lock:
        machine = _target_machine(speed)
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"invalid LLVM IR: {error}") from None
        module.triple = machine.triple
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(module, passes)
        return machine.emit_object(module)


def host() -> tuple[str, str]:
    """Return LLVM's name of this processor and its features, as in a compile key."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def undefined_symbols(data: bytes) -> list[str]:
    """Return the undefined symbols of a 64-bit little-endian ELF object, sorted; [] for others.

    Other formats (Mach-O) are left to the linker's own error, which does not name the symbol.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        if platform.system() == "Linux":
            raise UserError(
                "not an object file for this machine", "kernel cache", "compile the kernel again"
            )
        return []
    try:
        return _elf_undefined(data)
    except (struct.error, ValueError, IndexError, OverflowError):
        raise UserError("damaged object file", "kernel cache", "compile the kernel again") from None


def _elf_undefined(data: bytes) -> list[str]:
    """Return the undefined symbols of an ELF64 file (System V ABI, chapter 4)."""
    (sections_at,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # name, type, flags, address, offset, size, link, info, alignment, entry size
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * size) for i in range(count)
    ]
    found = set()
    for header in headers:
        if header[1] != 2:  # SHT_SYMTAB
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if name and section == 0:  # SHN_UNDEF
                end = data.index(b"\0", strings + name)
                found.add(data[strings + name : end].decode())
    return sorted(found - set(_LINKER_MADE))


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _target_machine(speed: int):
    _initialise()
    name, features = host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=speed, reloc="pic", codemodel="jitdefault", jit=True
    )


@functools.cache
def _jit():
    """Return the process's linker.  It is never closed: kernels may run until the process ends."""
    if platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"):
        raise UserError(
            f"unsupported processor {platform.machine()}",
            "runtime",
            "use an x86-64 or AArch64 machine",
            CANNOT_HERE,
        )
    _initialise()
    jit = llvm.create_lljit_compiler(_target_machine(3))
    jit._owned = True  # else llvmlite would unmap code under running threads when the process ends
    return jit
