"""``workbench serve``: the page for several users, who sign in; their runs form one library."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import sys
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError, nearest
from workbench.app.access import ANY_USER, VIEWER, Access, names
from workbench.app.compiles import Limits
from workbench.commands.open_page import check_port, need_local

_TEMPLATES = Path(__file__).parents[1] / "app"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: The environment variables for an OAuth provider of Panel's.
_OAUTH = ("PANEL_OAUTH_KEY", "PANEL_OAUTH_SECRET")


def add_arguments(parser) -> None:
    add = parser.add_argument
    add("--store", metavar="DIR", help="folder of the library of runs (default: this user's)")
    add("--address", default="127.0.0.1", help="host address (default 127.0.0.1)")
    add("--port", type=int, default=5006, help="default 5006; 0 picks a free one")
    add(
        "--origin",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="another host that browsers use, such as a proxy",
    )
    sign_in = parser.add_mutually_exclusive_group()
    sign_in.add_argument("--auth", metavar="FILE", help='JSON of users: {"name": "password"}')
    sign_in.add_argument(
        "--oauth",
        metavar="PROVIDER",
        help=f"an OAuth provider of Panel: github, google, okta, ...; needs {' and '.join(_OAUTH)}",
    )
    sign_in.add_argument("--no-auth", action="store_true", help="disable sign-in, on any address")
    add(
        "--editors",
        action="append",
        default=[],
        metavar="NAME,...",
        help="may compile, upload and delete; '*': all (with --auth: all others)",
    )
    add(
        "--viewers",
        action="append",
        default=[],
        metavar="NAME,...",
        help="read-only access; '*': all who sign in, or with --no-auth all",
    )
    add(
        "--allow-code",
        action="store_true",
        help="allow editors to run Python: models by name, custom passes",
    )
    add("--max-upload", default="2G", metavar="BYTES", help="largest file to upload (default 2G)")
    add(
        "--quota",
        default="20G",
        metavar="BYTES",
        help="limit for all uploads of a user; without sign-in, for all uploads "
        "(default 20G; 0: no limit)",
    )
    add("--max-compiles", type=int, default=1, metavar="N", help="running compiles (default 1)")
    add("--max-queue", type=int, default=16, metavar="N", help="waiting compiles (default 16)")
    add(
        "--job-memory",
        default="0",
        metavar="BYTES",
        help="address space limit of a compile, such as 16G (default: no limit)",
    )
    add(
        "--job-seconds",
        type=float,
        default=0,
        metavar="S",
        help="time limit for a compile (default: no limit)",
    )


def run(arguments) -> None:
    access = _access(arguments)
    if not access.sign_in and not arguments.no_auth:
        what = "see every run" if access.role(None) == VIEWER else "compile, upload and delete"
        need_local(arguments.address, what, "pass --auth FILE or --oauth PROVIDER, or --no-auth")
    limits = _limits(arguments)
    check_port(arguments.address, arguments.port)
    from workbench import app

    app.serve_team(
        Path(arguments.store).expanduser() if arguments.store else None,
        arguments.port,
        arguments.address,
        access,
        limits,
        allow_code=arguments.allow_code,
        max_upload=_bytes("--max-upload", arguments.max_upload),
        quota=_bytes("--quota", arguments.quota),
        origins=tuple(arguments.origin),
        as_json=arguments.json,
    )


def _limits(arguments) -> Limits:
    memory = _bytes("--job-memory", arguments.job_memory)
    made = Limits(
        arguments.max_compiles, arguments.max_queue, memory, arguments.job_seconds, bound=True
    )
    for option, value, minimum in (
        ("--max-compiles", made.compiles, 1),
        ("--max-queue", made.queue, 0),
        ("--job-seconds", made.seconds, 0),
    ):
        if not value >= minimum:
            raise UserError(
                f"expected {minimum} or more, got {value:g}", option, f"pass {minimum} or more"
            )
    return made


def _bytes(option: str, text: str) -> int:
    """Return a number of bytes, also given as 512M or 2GiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UserError(f"invalid size {text[:40]!r}", option, "write it as 512M or 2G")
    return int(float(found[1]) * _UNITS[found[2].upper()])


# -- access control -------------------------------------------------------------------------------


def _access(arguments) -> Access:
    editors, viewers = names(arguments.editors), names(arguments.viewers)
    if arguments.auth is None and arguments.oauth is None:
        if editors or viewers - {ANY_USER}:
            raise UserError(
                "named users require sign-in",
                "--editors, --viewers",
                "pass --auth FILE or --oauth PROVIDER, or --viewers '*' alone: "
                "read-only for all users",
            )
        return Access(viewers=viewers)
    if arguments.auth is not None:
        users = _users(Path(arguments.auth))
        if unknown := sorted((editors | viewers) - set(users) - {ANY_USER}):
            fix = nearest(unknown[0], users, f"choose from {', '.join(sorted(users)[:8])}")
            raise UserError(f"unknown user {unknown[0]!r}", arguments.auth, fix)
        others = frozenset() if ANY_USER in viewers else frozenset(users) - viewers
        editors = editors or others
        how: dict[str, Any] = {"basic_auth": users}
    else:
        if not editors and not viewers:
            raise UserError(
                "any account of the provider could sign in",
                "--oauth",
                "list users: --editors NAME,... and --viewers NAME,...",
            )
        how = {"oauth_provider": _provider(arguments.oauth)}
    cookie_secret = os.environ.get("PANEL_COOKIE_SECRET") or os.environ.get("BOKEH_COOKIE_SECRET")
    how |= {
        "cookie_secret": cookie_secret or secrets.token_urlsafe(32),
        "login_template": str(_TEMPLATES / "sign_in.html"),
        "logout_template": str(_TEMPLATES / "signed_out.html"),
        "oauth_error_template": str(_TEMPLATES / "signed_out.html"),
    }
    return Access(True, editors, viewers, how)


def _users(file: Path) -> dict[str, str]:
    """Return names and passwords in the form of Panel's basic authentication."""
    try:
        users = json.loads(file.read_text("utf-8"))
        other_permissions = stat.S_IMODE(file.stat().st_mode) & 0o077
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", str(file), "check the path") from None
    except ValueError as error:
        raise UserError(
            f"invalid JSON ({error})", str(file), 'write {"name": "password", ...}'
        ) from None
    is_valid = (
        isinstance(users, dict)
        and users
        and all(
            isinstance(word, str) and name and word and name != ANY_USER
            for name, word in users.items()
        )
    )
    if not is_valid:
        raise UserError(
            "expected an object of user names and passwords",
            str(file),
            'write {"name": "password", ...}',
        )
    if other_permissions and os.name == "posix":
        print(
            f"workbench: {file}: other users of this machine can read the passwords; chmod 600 it",
            file=sys.stderr,
        )
    return users


def _provider(name: str) -> str:
    from panel.auth import AUTH_PROVIDERS

    if name not in AUTH_PROVIDERS:
        fix = nearest(name, AUTH_PROVIDERS, f"choose from {', '.join(AUTH_PROVIDERS)}")
        raise UserError(f"unknown OAuth provider {name[:40]!r}", "--oauth", fix)
    if absent := [key for key in _OAUTH if not os.environ.get(key)]:
        raise UserError(
            f"environment variable {absent[0]} is not set",
            f"--oauth {name}",
            "set it as docs/serving.md describes",
        )
    return name
