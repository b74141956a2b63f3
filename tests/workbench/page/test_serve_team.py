"""``workbench serve``: who gets in, what viewers may not, limits of compiles, the end."""

from __future__ import annotations

import http.cookiejar
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from core_compiler.record.reader import Recording
from tests.workbench.page.conftest import _need_panel
from workbench.app.access import Access
from workbench.app.compiles import Compiles, Limits
from workbench.app.library import Library
from workbench.cli import main

USERS = {"alice": "wonder", "bob": "builder", "carol": "sings"}
RUNS = "#cw-start .runs"


class Team:
    """``workbench serve`` in a process of its own."""

    def __init__(self, root, *words: str):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "workbench.cli", "serve", "--port", "0", "--store", root]
        self.process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL, env=environment)  # fmt: skip
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

    def handshake(self, cookie: str = "") -> int:
        lines = [
            "GET /ws HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Upgrade: websocket",
            "Connection: Upgrade", f"Origin: http://127.0.0.1:{self.port}",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Protocol: bokeh", *([f"Cookie: {cookie}"] if cookie else []), "", "",
        ]  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall("\r\n".join(lines).encode())
            return int(connection.recv(4096).split()[1])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


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
    assert team.browser().open(f"{team.url}health").read() == b"ok"


def test_who_signs_in_gets_the_page_and_who_has_no_role_does_not(team):
    for name in ("alice", "bob"):
        assert "Opening the workbench" in team.sign_in(name, USERS[name])[1]
    with pytest.raises(urllib.error.HTTPError) as refused:
        team.sign_in("carol", USERS["carol"])
    assert refused.value.code == 403
    assert "nobody has given you access" in refused.value.read().decode()


#: Sends a command as the page would, past the page's own buttons.
FORGE = """(command) => {
  const models = [...Bokeh.documents[0]._all_models.values()];
  const start = models.find((each) => each.data?.attributes && 'command' in each.data.attributes);
  start.data.setv({ command: JSON.stringify({ ...command, n: Math.random() }) });
}"""


@pytest.mark.playwright
def test_a_viewer_looks_and_changes_nothing(team, browser, recording):
    from tests.workbench.page.conftest import Tab

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
    for command in ({"name": "remove", "run": "one.run"}, {"name": "open", "what": "digits-mlp"},
                    {"name": "annotate", "run": "one.run", "pinned": True},
                    {"name": "restore", "token": "x"}):  # fmt: skip
        page.page.evaluate(FORGE, command)
        page.wait(f"#cw-bar .toast .where:has-text('{command['name']}')")
        page.wait("#cw-bar .toast:has-text('you may look')")
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
    alice, _ = team.sign_in("alice", USERS["alice"])
    (jar,) = (h.cookiejar for h in alice.handlers if hasattr(h, "cookiejar"))
    assert upload("; ".join(f"{c.name}={c.value}" for c in jar)) == 200
    page.locate(f'{RUNS} tr[data-run="one.run"]').click()
    page.wait("#cw-view-overview h1")
    assert page.locate("#cw-bar button:has-text('Execute'):visible").count() == 0
    assert sorted(f.name for f in folder.iterdir()) == ["imported", "one.run"]
    context.close()


def test_roles():
    some = Access(True, frozenset({"alice", "both"}), frozenset({"*", "both"}))
    roles = {name: some.role(name) for name in ("alice", "both", "guest", "", None)}
    assert roles == {"alice": "editor", "both": "viewer", "guest": "viewer", "": None, None: None}
    assert Access(True).role("alice") is None and Access().role(None) == "editor"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--address", "0.0.0.0"), "--no-auth"),
        (("--oauth", "github"), "--editors"),
        (("--oauth", "nobody", "--viewers", "*"), "no OAuth provider"),
        (("--oauth", "github", "--viewers", "*"), "PANEL_OAUTH_KEY"),
        (("--auth", "absent.json"), "absent.json"),
        (("--auth", "{users}", "--viewers", "dave"), "'dave'"),
        (("--auth", "{bad}"), "no users"),
        (("--viewers", "bob"), "nobody signs in"),
        (("--auth", "{users}", "--no-auth"), "not allowed"),
        (("--job-memory", "much"), "--job-memory"),
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


# -- compiles -------------------------------------------------------------------------------------


def _jobs(tmp_path, *names: str) -> list[dict]:
    """Jobs that wait to be stepped through: they run until they are told something."""
    return [{"model": "digits-mlp", "sizes": {"width": 0.25}, "out": str(tmp_path / f"{name}.run"),
             "hold": True} for name in names]  # fmt: skip


def _until(true) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_further_compiles_wait_for_their_turn(tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    compiles = Compiles(Limits(compiles=1, queue=2))
    jobs = _jobs(tmp_path, *"abcd")
    a, b, c = (
        compiles.start(job, owner) for job, owner in zip(jobs, ("ann", "ben", "cat"), strict=False)
    )
    assert (a.waits, b.waits, c.waits) == (False, True, True)
    assert "number 2 in the queue: digits-mlp is being compiled for ann" in c.progress["what"]
    with pytest.raises(Exception, match="for ann, digits-mlp is being compiled for ben"):
        compiles.start(jobs[3], "dan")
    b.cancel()
    assert b.outcome == "cancelled" and "number 1" in c.progress["what"]
    a.cancel()
    _until(lambda: a.outcome is not None and not c.waits)
    compiles.stop_all()
    assert (a.outcome, c.outcome) == ("cancelled", "cancelled")
    assert not b.path.exists()


def test_a_job_that_lasts_too_long_is_stopped_and_says_why(tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    (job,) = _jobs(tmp_path, "late")
    late = Compiles(Limits(seconds=0.5)).start(job)
    _until(lambda: not late.running)
    assert late.outcome == "failed" and "--job-seconds" in late.error["fix"]
    assert "0.5 s" in late.error["what"]


def test_a_job_that_takes_too_much_memory_says_why(tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    (job,) = _jobs(tmp_path, "large")
    large = Compiles(Limits(memory=4 << 20)).start(job)
    _until(lambda: not large.running)
    assert large.outcome == "failed" and "--job-memory" in large.error["fix"], large.error


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
