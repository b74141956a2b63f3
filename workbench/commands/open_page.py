"""``workbench open``: a model, a model file or a recording in the page."""

from __future__ import annotations

import socket
from pathlib import Path

from core_compiler.support.errors import UserError
from workbench.commands import common, subject
from workbench.model.arguments import pairs, threads

#: Addresses that only this machine reaches.
LOCAL = ("127.0.0.1", "localhost", "::1")


def add_arguments(parser) -> None:
    parser.add_argument(
        "model",
        metavar="RUN|MODEL",
        nargs="?",
        help="a .run file, a sample, a .onnx, .pt2, .keras or .mlir file, a SavedModel's folder, "
        "package.module:function (default: choose on the page)",
    )
    parser.add_argument("--port", type=int, default=5006, help="default 5006; 0 picks a free one")
    parser.add_argument("--address", default="127.0.0.1", help="host address (default 127.0.0.1)")
    parser.add_argument("--no-auth", action="store_true", help="disable sign-in, on any address")
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="allow the page to run Python (models by name, typed passes) on other addresses too",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--frontend", metavar="NAME", help="the frontend: torch, onnx or onnx-passes"
    )
    parser.add_argument("--width", type=float, help="scale the channels or features of a sample")
    parser.add_argument("--depth", type=int, help="number of blocks or layers of a sample")
    parser.add_argument("--batch", type=int, help="batch size of a sample")
    parser.add_argument("--seed", type=int, help="seed of a sample's weights and inputs")
    parser.add_argument(
        "--size",
        "--shape",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another size of a sample, or one that a model file leaves open (batch=5, x.0=5)",
    )
    parser.add_argument(
        "--trust", action="store_true", help="allow a .pt2 file to run code when it is loaded"
    )
    parser.add_argument("-t", "--target", default="cpu", help="what to compile for (default cpu)")
    parser.add_argument("--threads", type=int, default=0, help="threads to execute with (0: all)")
    parser.add_argument("--check", action="store_true", help="check every rewrite on real tensors")


def run(arguments) -> None:
    threads(arguments)
    if not arguments.no_auth:
        need_local(
            arguments.address,
            "compile, upload and delete",
            "require sign-in (workbench serve), or pass --no-auth",
        )
    check_port(arguments.address, arguments.port)
    if arguments.model is not None:
        _check_model(arguments)
    from workbench import app

    app.serve(
        arguments.model,
        arguments.port,
        arguments.address,
        not arguments.no_browser,
        arguments.allow_code,
        job=_job(arguments),
        as_json=arguments.json,
    )


def _job(arguments) -> dict:
    """Return the worker's options for compiling the model."""
    sizes = {name: getattr(arguments, name) for name in ("width", "depth", "batch", "seed")}
    sizes |= pairs(arguments.size, "--size")
    job = {
        "frontend": arguments.frontend,
        "target": arguments.target,
        "sizes": {name: value for name, value in sizes.items() if value is not None},
        "check": arguments.check,
        "threads": arguments.threads,
        "trust": arguments.trust,
    }
    return {name: value for name, value in job.items() if value not in (None, {}, False)}


def _check_model(arguments) -> None:
    """Report a wrong name here, not in the page."""
    if subject.is_recording(arguments.model):
        from core_compiler.record.file import RecordingFile

        RecordingFile(arguments.model).close()
        return
    folder = Path(arguments.model)
    if folder.is_dir():
        from core_compiler.frontends.base import is_saved_model

        if not is_saved_model(folder):
            raise UserError(
                "expected a file, got a folder",
                arguments.model,
                "name a file in it, or a folder with a saved_model.pb",
            )
    common.spec(arguments)


def need_local(address: str, what: str, fix: str) -> None:
    """Raise UserError for a public address without sign-in: others could do ``what``."""
    if address not in LOCAL:
        raise UserError(
            f"any client that reaches this address could {what}", f"--address {address}", fix
        )


def check_port(address: str, port: int) -> None:
    """Raise UserError if ``port`` of ``address`` cannot be listened on."""
    if not 0 <= port <= 65535:
        raise UserError(f"invalid port {port}", "--port", "choose a number from 0 to 65535")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as problem:
        raise UserError(
            f"cannot resolve the address ({problem.strerror})", "--address", "use localhost"
        ) from None
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as problem:
            other = port + 1 if port < 65535 else 0
            fix = f"stop the process that listens there, or use --port {other}"
            raise UserError(
                f"port {port} is not available ({problem.strerror})", "--port", fix
            ) from None
