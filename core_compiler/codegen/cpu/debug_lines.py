"""Debug lines of generated kernels: the source line of each instruction.

Numba emits LLVM debug metadata for the source's lines. The lines are kept (in the LLVM text and as
a table for the assembly); information that depends on the machine (the working directory) or
repeats the source (variables and their types) is removed.
"""

from __future__ import annotations

import re

#: The file of the lines, whatever the kernel's name is.
_FILE = '!DIFile(filename: "source.py", directory: "")'

#: Metadata of the C entry around Numba's function: LLVM only keeps the lines of an inlined function
#: if the caller has a line itself.
ENTRY = f"""
!llvm.dbg.cu = !{{!0}}
!llvm.module.flags = !{{!2, !3}}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!1 = {_FILE}
!2 = !{{i32 2, !"Dwarf Version", i32 4}}
!3 = !{{i32 2, !"Debug Info Version", i32 3}}
!4 = distinct !DISubprogram(name: "entry", scope: !1, file: !1, type: !5, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!5 = !DISubroutineType(types: !{{null}})
!6 = !DILocation(line: 0, scope: !4)
"""  # noqa: E501

_VARIABLES = re.compile(r"^\s*(?:#dbg_\w+\(|(?:tail )?call void @llvm\.dbg\.).*\n", re.MULTILINE)
_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_DEBUG_SECTION = re.compile(r'\s*\.section\s+"?\.debug_')
_SECTION = re.compile(r"\s*\.(?:section|text|data|bss)\b")
#: Labels and directives that only the debug sections use.
_MARKS = re.compile(
    r"\.L(?:tmp|func_begin|func_end|debug_\w+|info_string)\d*:|\s*\.(?:file|loc|cfi_\w+)\b"
)


def only_lines(text: str) -> str:
    """Return the text of a module with lines as its only debug information."""
    text = _VARIABLES.sub("", text)
    text = re.sub(r"!DIFile\([^)]*\)", lambda _: _FILE, text)
    return text.replace("emissionKind: DebugDirectivesOnly", "emissionKind: LineTablesOnly")


def read(assembly: str) -> tuple[str, list[tuple[int, int]]]:
    """Return readable assembly and its (assembly line, source line) rows.

    The debug sections are removed; lines are counted from 1.
    """
    kept: list[str] = []
    places: list[tuple[int, int]] = []
    at, debugging = 0, False
    for line in assembly.splitlines():
        if _SECTION.match(line):
            debugging = bool(_DEBUG_SECTION.match(line))
        place = _PLACE.match(line)
        if place:
            at = int(place[1])
        if debugging or _MARKS.match(line):
            continue
        kept.append(line)
        if at and line[:1].isspace() and not line.lstrip().startswith((".", "#")):
            places.append((len(kept), at))
    return "\n".join(kept) + "\n", places
