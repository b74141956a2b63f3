"""A processor without AMX: Linux refuses this process the tile registers.

Libraries ask for them with ``arch_prctl(ARCH_REQ_XCOMP_PERM)`` and use other instructions where
that fails. A filter of system calls (seccomp) lets it fail, from now on and in all child processes.
See https://docs.kernel.org/arch/x86/xstate.html and .../userspace-api/seccomp_filter.html.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILES = 158, 0x1023, 18
#: Offsets of the system call's number and the low half of its first argument.
NUMBER, FIRST = 0, 16
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_refused() -> bool:
    """Return whether this process may not use tiles."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return True
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILES))


def refuse() -> None:
    """Refuse tiles to this process; OSError where the system does not allow the filter."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise OSError("tiles can be refused on Linux on x86-64 only")
    steps = (  # operation, jump if equal, jump if not, constant
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 3, ARCH_PRCTL),
        (LOAD, 0, 0, FIRST),
        (EQUAL, 0, 1, ARCH_REQ_XCOMP_PERM),
        (RETURN, 0, 0, FAIL),
        (RETURN, 0, 0, ALLOW),
    )
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = Program(len(steps), code)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    arguments = ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program)))
    for given in arguments:
        if prctl(*given, *([0] * (5 - len(given)))):
            raise OSError(ctypes.get_errno(), "no filter of system calls can be set")
