"""``workbench serve --oauth``: a whole sign-in, at a provider that runs here."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.workbench.page.conftest import _need_panel
from tests.workbench.page.test_serve_team import Team

KEY, SECRET, CODE, TOKEN = "the-key", "the-secret", "a-code", "a-token"


class Provider:
    """An OAuth 2 provider (authorization code, RFC 6749 4.1) at which everybody is ``who``."""

    def __init__(self) -> None:
        self.who = ""
        self.asked: list[tuple[str, dict[str, str]]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                given = dict(urllib.parse.parse_qsl(query))
                provider.asked.append((path, given))
                if path == "/authorize":  # the person says yes
                    back = urllib.parse.urlencode({"code": CODE, "state": given["state"]})
                    self.send_response(302)
                    self.send_header("Location", f"{given['redirect_uri']}?{back}")
                    self.end_headers()
                elif self.headers.get("Authorization") == f"Bearer {TOKEN}":
                    self.answer(200, {"email": provider.who})
                else:
                    self.answer(401, {"error": "invalid_token"})

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                given = dict(urllib.parse.parse_qsl(self.rfile.read(size).decode()))
                provider.asked.append((self.path, given))
                sound = (given.get("client_id"), given.get("client_secret"), given.get("code")) == (
                    KEY,
                    SECRET,
                    CODE,
                )
                found = {"access_token": TOKEN, "token_type": "Bearer"}
                self.answer(200 if sound else 400, found if sound else {"error": "invalid_grant"})

            def answer(self, status: int, content: dict[str, str]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.server.shutdown()


@pytest.fixture
def team(provider: Provider, tmp_path, monkeypatch) -> Iterator[Team]:
    _need_panel()
    for name, value in {
        "KEY": KEY,
        "SECRET": SECRET,
        "AUTHORIZE_URL": f"{provider.url}/authorize",
        "TOKEN_URL": f"{provider.url}/token",
        "USER_URL": f"{provider.url}/user",
    }.items():
        monkeypatch.setenv(f"PANEL_OAUTH_{name}", value)
    words = ("--oauth", "generic", "--editors", "ann@example.org", "--viewers", "ben@example.org")
    made = Team(tmp_path / "store", *words)
    yield made
    assert made.stop() == 0


def test_who_signs_in_at_the_provider_has_the_role_of_that_name(team, provider):
    """An editor, a viewer, and somebody who has an account there and no role here."""
    for who, page in (("ann@example.org", True), ("ben@example.org", True), ("eve@x.org", False)):
        provider.who, provider.asked = who, []
        browser = team.browser()
        try:
            answer = browser.open(team.url)
            text, status = answer.read().decode(), answer.status
        except urllib.error.HTTPError as error:
            text, status = error.read().decode(), error.code
        assert [path for path, _ in provider.asked] == ["/authorize", "/token", "/user"]
        asked = provider.asked[0][1]
        assert asked["client_id"] == KEY and asked["state"] and asked["response_type"] == "code"
        assert asked["redirect_uri"].startswith(team.url.rstrip("/"))
        assert (status == 200 and "cw-start" in text) is page, (who, status)
        assert SECRET not in text and TOKEN not in text


@pytest.mark.slow
def test_an_answer_that_nobody_asked_for_signs_nobody_in(team, provider):
    """The state of the answer is that of the question (RFC 6749 10.12)."""
    provider.who = "ann@example.org"
    browser = team.browser()
    forged = urllib.parse.urlencode({"code": CODE, "state": "forged"})
    with pytest.raises(urllib.error.HTTPError):
        browser.open(f"{team.url}login?{forged}")
    assert not any(path == "/user" for path, _ in provider.asked)
