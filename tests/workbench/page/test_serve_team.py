"""``workbench serve``: who gets in, what viewers may not, limits of compiles, the end."""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from contextlib import closing, suppress

import pytest

from core_compiler.record.reader import Recording
from tests.workbench.page.conftest import Tab, _need_panel, run_apart
from tests.workbench.page.test_trust import compiled
from workbench import app
from workbench.app import run_entry
from workbench.app.access import Access
from workbench.app.library import Library
from workbench.commands.cli import main
from workbench.state.view_state import VIEWS

USERS = {"alice": "wonder", "bob": "builder", "carol": "sings"}
RUNS = "#cw-start .runs"


class Team:
    """``workbench serve`` in a process of its own."""

    def __init__(self, root, *words: str):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [
            sys.executable,
            "-m",
            "workbench.commands.cli",
            "serve",
            "--port",
            "0",
            "--store",
            root,
        ]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [*command, *words], stdout=subprocess.PIPE, text=True, stderr=self.log, env=environment
        )
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), self.url
        self.port = int(self.url.rstrip("/").rpartition(":")[2])

    def browser(self):
        """Keeps cookies, as a browser does."""
        return urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )

    def sign_in(self, name: str, password: str):
        browser = self.browser()
        given = urllib.parse.urlencode({"username": name, "password": password}).encode()
        answer = browser.open(f"{self.url}login", given).read().decode()
        return browser, answer

    def cookies(self, name: str) -> str:
        """Of somebody who signs in, whatever they may see then."""
        browser = self.browser()
        given = urllib.parse.urlencode({"username": name, "password": USERS[name]}).encode()
        with suppress(urllib.error.HTTPError):
            browser.open(f"{self.url}login", given)
        (jar,) = (h.cookiejar for h in browser.handlers if hasattr(h, "cookiejar"))
        return "; ".join(f"{c.name}={c.value}" for c in jar)

    def handshake(self, cookie: str = "") -> int:
        lines = [
            "GET /ws HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Origin: http://127.0.0.1:{self.port}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Protocol: bokeh",
            *([f"Cookie: {cookie}"] if cookie else []),
            "",
            "",
        ]
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall("\r\n".join(lines).encode())
            return int(connection.recv(4096).split()[1])

    def opened(self, token: str, cookie: str) -> bool:
        """Whether the server takes a websocket into the session of a token."""
        from tornado.httpclient import HTTPRequest
        from tornado.websocket import websocket_connect

        async def ask() -> bool:
            request = HTTPRequest(
                f"{self.url.replace('http', 'ws', 1)}ws",
                headers={"Cookie": cookie, "Origin": self.url.rstrip("/")},
            )
            there = await websocket_connect(request, subprotocols=["bokeh", token])
            return await there.read_message() is not None  # its first word; None: it is closed

        return run_apart(ask())

    def stop(self) -> int:
        """Its exit status; the page and its files raised nothing (Bokeh tells by exceptions what is
        wrong with a websocket)."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self.log.seek(0)
        told = self.log.read()
        raised = [line for line in told.splitlines() if "Uncaught exception" in line]
        assert not [line for line in raised if " GET /ws " not in line], told
        return status


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """Alice edits, Bob looks, Carol has a password and no role."""
    _need_panel()
    root = tmp_path_factory.mktemp("team")
    users = root / "users.json"
    users.write_text(json.dumps(USERS))
    users.chmod(0o600)
    made = Team(root / "store", "--auth", str(users), "--editors", "alice", "--viewers", "bob")
    made.root = root / "store"
    yield made
    if made.process.poll() is None:
        assert made.stop() == 0


def _status(open_, *request) -> int:
    try:
        return open_(*request).status
    except urllib.error.HTTPError as error:
        return error.code


def test_nobody_gets_in_without_signing_in(team):
    page = team.browser().open(team.url).read().decode()
    assert 'name="password"' in page and "Opening the workbench" not in page
    assert "http" not in page.replace("http-equiv", ""), "the page loads nothing from elsewhere"
    for name, password in (("alice", "builder"), ("alice", ""), ("mallory", "wonder"), ("*", "*")):
        _, answer = team.sign_in(name, password)
        assert 'role="alert"' in answer and "Opening the workbench" not in answer
    assert team.handshake() in (401, 403)
    assert team.handshake("user=alice; is_guest=1") in (401, 403), "nobody signed that"
    assert _status(team.browser().open, f"{team.url}runs.csv?token=x") == 403
    module = "components/widgets.panel_host/View/_stylesheets/x"  # Panel would import it: 403
    assert _status(team.browser().open, team.url + module) == 404
    assert team.browser().open(f"{team.url}health").read() == b"ok"


def test_who_signs_in_gets_the_page_and_who_has_no_role_does_not(team):
    for name in ("alice", "bob"):
        assert "Opening the workbench" in team.sign_in(name, USERS[name])[1]
    with pytest.raises(urllib.error.HTTPError) as refused:
        team.sign_in("carol", USERS["carol"])
    assert refused.value.code == 403
    assert "you do not have access" in refused.value.read().decode()


def test_nobody_joins_the_session_of_somebody_else(team):
    _, page = team.sign_in("alice", USERS["alice"])
    (token,) = set(re.findall(r'"token":"([^"]+)"', page))
    assert not team.opened(token, team.cookies("bob"))
    assert not team.opened(token, team.cookies("carol"))
    assert team.opened(token, team.cookies("alice"))


def test_nobody_names_the_session_that_a_page_gets(team):
    from bokeh.util.token import generate_jwt_token

    alice, page = team.sign_in("alice", USERS["alice"])
    token = re.search(r'"token":"([^"]+)"', page)[1]
    for address in ("?bokeh-session-id=abc", f"?bokeh-token={token}"):
        assert _status(alice.open, team.url + address) == 403
    named = urllib.request.Request(team.url, headers={"Bokeh-Session-Id": "abc"})
    assert _status(alice.open, named) == 403
    assert _status(alice.open, f"{team.url}autoload.js?bokeh-autoload-element=1") == 404
    own = generate_jwt_token("abc", extra_payload={"headers": {}, "cookies": {}, "arguments": {}})
    assert not team.opened(own, team.cookies("alice")), "the server signs the tokens"


@pytest.mark.parametrize("wanted", ["///elsewhere.example/", " ///elsewhere.example"])
def test_signing_in_leads_to_no_other_site(team, wanted):
    """To a browser an address that begins with two slashes or more names another host."""
    given = urllib.parse.urlencode({"username": "alice", "password": USERS["alice"]})
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f'next_url="{wanted}"',
    }
    with closing(http.client.HTTPConnection("127.0.0.1", team.port, timeout=60)) as connection:
        connection.request("POST", "/login", given, headers)
        answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, "/")


def test_no_other_page_shows_the_page_in_a_frame(team):
    for path in ("", "login", "health"):
        answer = team.browser().open(team.url + path)
        assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'self'"


#: Sends a command as the page would, past the page's own buttons.
FORGE = """(command) => {
  const models = [...Bokeh.documents[0]._all_models.values()];
  const start = models.find((each) => each.data?.attributes && 'command' in each.data.attributes);
  start.data.setv({ command: JSON.stringify({ ...command, n: Math.random() }) });
}"""


@pytest.mark.playwright
def test_a_viewer_looks_and_changes_nothing(team, browser, recording):
    folder = team.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "one.run").write_bytes(recording.read_bytes())
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = Tab(context)
    page.page.goto(team.url)
    page.locate("input[name=username]").fill("bob")
    page.locate("input[name=password]").fill(USERS["bob"])
    page.press("Enter")
    page.wait(f'{RUNS} tr[data-run="one.run"]')
    assert page.locate("#cw-start .drop:visible, #cw-start .sample:visible").count() == 0
    assert page.locate(f'{RUNS} [aria-label^="Delete"]').count() == 0
    for command in (
        {"name": "remove", "run": "one.run"},
        {"name": "open", "what": "digits-mlp"},
        {"name": "annotate", "run": "one.run", "pinned": True},
        {"name": "restore", "token": "x"},
    ):
        page.page.evaluate(FORGE, command)
        page.wait(f"#cw-bar .toast .where:has-text('{command['name']}')")
        page.wait("#cw-bar .toast:has-text('read-only access')")
    token = page.locate("#cw-start [data-do=csv]").get_attribute("href").rpartition("token=")[2]
    cookies = "; ".join(f"{c['name']}={c['value']}" for c in context.cookies())
    assert team.handshake(cookies) == 101

    def upload(cookies: str) -> int:
        address, body = f"{team.url}upload?name=mine.run", recording.read_bytes()
        headers = {"X-Workbench-Token": token, "Cookie": cookies}
        request = urllib.request.Request(address, body, headers, method="PUT")
        return _status(urllib.request.urlopen, request)

    assert upload(cookies) == 403
    assert upload("") == 403, "the token alone opens nothing"
    assert upload(team.cookies("alice")) == 200
    assert run_entry.uploader(folder / "imported" / "mine.run") == "alice", "it counts as hers"
    page.locate(f'{RUNS} tr[data-run="one.run"]').click()
    page.wait("#cw-view-overview h1")
    assert page.locate("#cw-bar button:has-text('Execute'):visible").count() == 0
    assert sorted(f.name for f in folder.iterdir()) == ["imported", "one.run"]
    context.close()


#: What only editors see, in any view, by its ``data-do`` or its text.
CHANGING = """() => {
  const does = ['try', 'bisect', 'run', 'step', 'find', 'look', 'trust', 'cancel', 'again',
    'execute', 'undo', 'act'];
  const says = ['Compile…', 'Execute', 'Cancel', 'edit', 'Undo', 'File…',
    'Insert your own pass after', 'Begin here'];
  const found = [], look = (root) => root.querySelectorAll('*').forEach((node) => {
    if (node.shadowRoot) look(node.shadowRoot);
    if (node.tagName !== 'BUTTON' || node.disabled || !node.checkVisibility()) return;
    const changes = does.includes(node.dataset.do) || node.dataset.held;
    if (changes || says.includes(node.textContent)) found.push(node.textContent);
  });
  look(document);
  return found;
}"""


@pytest.mark.slow
@pytest.mark.playwright
def test_no_view_offers_a_viewer_what_the_server_refuses(team, browser, recording):
    folder = team.root / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "whole.run").write_bytes(recording.read_bytes())
    compiled(folder / "bare.run")  # neither checked nor executed: empty views say what to do

    def walk(name: str, **places: Iterable[str]) -> dict[tuple[str, str], list[str]]:
        """What changes something for a user, by run and view."""
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = Tab(context)
        found: dict[tuple[str, str], list[str]] = {}
        page.page.goto(team.url)
        page.locate("input[name=username]").fill(name)
        page.locate("input[name=password]").fill(USERS[name])
        page.press("Enter")
        page.wait("#cw-start .runs-head")
        for run, shown in places.items():
            page.open(f"{team.url}?run={run}.run&panes=overview")
            for view in shown:
                page.show(view)
                page.wait(f"#cw-view-{view}.left")
                page.page.wait_for_function(
                    "() => !document.getElementById('cw-busy').classList.contains('on')"
                )
                page.page.wait_for_timeout(500)  # what says how a search goes comes by itself
                found[run, view] = page.page.evaluate(CHANGING)
        assert page.errors == []
        context.close()
        return found

    offered = walk("alice", whole=("numerics", "pipeline", "bisect"), bare=("timeline",))
    assert "First bad pass" in offered["whole", "numerics"], "it finds what there is"
    assert "Run" in offered["whole", "pipeline"] and "Find it" in offered["whole", "bisect"]
    assert offered["bare", "timeline"].count("Execute") == 2, "in the bar and in the view"
    empty = ("numerics", "timeline", "kernels", "training")
    assert not {
        place: found for place, found in walk("bob", whole=VIEWS, bare=empty).items() if found
    }


def test_roles():
    some = Access(True, frozenset({"alice", "both"}), frozenset({"*", "both"}))
    roles = {name: some.role(name) for name in ("alice", "both", "guest", "", None)}
    assert roles == {"alice": "editor", "both": "viewer", "guest": "viewer", "": None, None: None}
    assert Access(True).role("alice") is None and Access().role(None) == "editor"
    assert Access(viewers=frozenset("*")).role(None) == "viewer"


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ((), ["editor", "editor", "editor"]),
        (("--viewers", "bob"), ["editor", "viewer", "editor"]),
        (("--viewers", "*"), ["viewer", "viewer", "viewer"]),
        (("--viewers", "*", "--editors", "alice"), ["editor", "viewer", "viewer"]),
        (("--viewers", "bob", "--editors", "alice"), ["editor", "viewer", None]),
        (("--viewers", "bob", "--editors", "*"), ["editor", "viewer", "editor"]),
    ],
)
def test_the_roles_of_the_users_of_a_file(words, roles, tmp_path, monkeypatch):
    users = tmp_path / "users.json"
    users.write_text(json.dumps(USERS))
    users.chmod(0o600)
    given = []
    monkeypatch.setattr(app, "serve_team", lambda *words, **options: given.append(words[3]))
    assert main(["serve", "--port", "0", "--auth", str(users), *words]) == 0
    assert [given[0].role(name) for name in USERS] == roles


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--address", "0.0.0.0"), "--no-auth"),
        (("--oauth", "github"), "--editors"),
        (("--oauth", "nobody", "--viewers", "*"), "unknown OAuth provider"),
        (("--oauth", "github", "--viewers", "*"), "PANEL_OAUTH_KEY"),
        (("--auth", "absent.json"), "absent.json"),
        (("--auth", "{users}", "--viewers", "dave"), "'dave'"),
        (("--auth", "{bad}"), "user names and passwords"),
        (("--viewers", "bob"), "named users require sign-in"),
        (("--no-auth", "--editors", "*"), "named users require sign-in"),
        (("--address", "0.0.0.0", "--viewers", "*"), "could see every run"),
        (("--auth", "{users}", "--no-auth"), "not allowed"),
        (("--job-memory", "much"), "--job-memory"),
        (("--quota", "-1"), "--quota"),
        (("--max-compiles", "0"), "--max-compiles"),
        (("--job-seconds", "nan"), "--job-seconds"),
    ],
)
def test_what_is_unsafe_or_wrong_is_refused_in_one_line(words, says, tmp_path, capsys, monkeypatch):
    _need_panel()
    monkeypatch.delenv("PANEL_OAUTH_KEY", raising=False)
    (tmp_path / "users.json").write_text(json.dumps(USERS))
    (tmp_path / "users.json").chmod(0o600)
    (tmp_path / "bad.json").write_text('{"*": 5}')
    (tmp_path / "bad.json").chmod(0o600)
    files = {"users": tmp_path / "users.json", "bad": tmp_path / "bad.json"}
    assert main(["serve", "--port", "0", *(w.format(**files) for w in words)]) == 2
    told = capsys.readouterr().err
    assert says in told and len(told.splitlines()) == 1


# -- the end ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_the_server_ends_within_seconds_and_closes_what_is_recorded(tmp_path, browser):
    pytest.importorskip("torch", reason="the sample models need torch")
    _need_panel()
    team = Team(tmp_path / "store")
    page = browser.new_page()
    page.goto(team.url)
    page.locator("#cw-start label:has-text('step by step') input").check()
    page.locator("#cw-start input[type=number]").fill("0.25")
    page.locator("#cw-start .sample:has-text('digits-mlp')").click()
    page.locator("#cw-rail .pass >> nth=0").wait_for(timeout=120_000)
    assert team.stop() == 0
    page.close()
    (entry,) = Library(tmp_path / "store").entries()
    assert entry.status == "cancelled"
    with Recording.open(entry.path) as recording:
        recording.module(0)
