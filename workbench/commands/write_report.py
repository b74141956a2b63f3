"""``workbench report RUN -o report.html``: a recording as one HTML file, without a server."""

from __future__ import annotations

from math import inf

from core_compiler.support.errors import UserError
from workbench.commands import subject
from workbench.commands.compile_model import output
from workbench.commands.printing import emit
from workbench.support import units


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "-o",
        "--output",
        default="report.html",
        metavar="FILE",
        help="where to write it (default report.html)",
    )
    parser.add_argument(
        "--max-size",
        type=float,
        default=25.0,
        metavar="MB",
        help="to stay below this, leave out the code of kernels that take little time (default 25)",
    )


def run(arguments) -> None:
    from workbench.export import report

    if not 0 <= arguments.max_size * 1e6 < inf:
        raise UserError(
            f"invalid size {arguments.max_size:g} MB", "--max-size", "pass a number of megabytes"
        )
    path = output(arguments.output, ".html")
    with subject.recording(arguments, execute=True) as opened:
        made = report.write(opened.path, path, max_bytes=int(arguments.max_size * 1e6))
    data = report.facts(made, path)
    text = f"{path}: {data['bytes'] / 1e6:.1f} MB, opens in any browser, works offline"
    if made.left_out:
        text += f"\nleft out to stay below {arguments.max_size:g} MB: the code of "
        text += f"{units.counted(len(made.left_out), 'kernel')} (--max-size allows more)"
    emit(arguments, data, text)
