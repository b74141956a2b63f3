"""The server without a browser: address, origin, uploads, the worker process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from core_compiler.record.reader import Recording
from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError
from tests.workbench.page.conftest import run_apart
from workbench.app.library import Library
from workbench.app.workspace import Workspace
from workbench.queries.run import Run


def test_importing_the_page_does_not_import_panel():
    code = "import sys, workbench.app, workbench.commands.cli; sys.exit('panel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_first_line_is_a_url_that_answers(server):
    assert server.get("health").read() == b"ok"
    page = server.get("").read().decode()
    assert "Opening the workbench" in page, "the page shows at once that it is loading"


def test_what_is_wrong_is_read_before_the_scripts(server, recording, tmp_path):
    """The page is drawn a second later; whatever a recording says is text there too."""
    path = shutil.copy(recording, tmp_path / "wrong.run")
    with sqlite3.connect(path) as db:
        (stage,) = db.execute("SELECT max(id) FROM stage WHERE changed").fetchone()
        db.execute(
            "INSERT INTO check_result VALUES (NULL, ?, NULL, 'failed', 0.5, 0.0, NULL, '[]',"
            " 0.0, '<img src=x onerror=alert(1)>')",
            (stage,),
        )
        (name,) = db.execute("SELECT pass FROM stage WHERE id = ?", (stage,)).fetchone()
    db.close()
    page = server.get(f"?run={quote(str(path))}").read().decode()
    note, scripts = page.index('<div id="cw-loading"'), page.index('<script type="text/javascript"')
    said = page[note:scripts]
    assert "Opening wrong.run" in said and f"<b>{name} changes the result</b>" in said
    assert "&lt;img src=x" in said and "<img" not in page


@pytest.mark.slow
@pytest.mark.parametrize("words", [["open", "--no-browser"], ["serve", "--no-auth", "--store", ""]])
def test_with_json_the_first_line_is_an_object(tmp_path, words):
    words = [word or str(tmp_path) for word in words]
    command = [sys.executable, "-m", "workbench", *words, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = json.loads(process.stdout.readline())["url"]
        assert urllib.request.urlopen(url + "health").read() == b"ok"
        process.send_signal(signal.SIGTERM)
        assert (process.wait(20), process.stdout.read()) == (0, "")


def test_a_port_in_use_is_said_in_one_line():
    from workbench.app import serve

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is in use"):
            serve(port=port, open_browser=False)


def test_a_missing_recording_is_said_before_anything_is_served(tmp_path):
    from workbench.app import serve

    with pytest.raises(UserError, match="file not found"):
        serve(tmp_path / "absent.run", port=0, open_browser=False, root=tmp_path)


def _handshake(server, origin: str, host: str = "", path: str = "ws") -> int:
    """The status that a websocket handshake from ``origin`` is answered with."""
    lines = [
        f"GET /{path} HTTP/1.1",
        f"Host: {host or f'127.0.0.1:{server.port}'}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Origin: {origin}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: bokeh",
        "",
        "",
    ]
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.recv(4096).split()[1])


def test_a_websocket_from_another_origin_is_refused(server):
    assert _handshake(server, server.url.rstrip("/")) == 101
    assert _handshake(server, "http://evil.example") == 403
    assert _handshake(server, f"http://evil.example:{server.port}") == 403


@pytest.mark.parametrize("path", ["", "ws", "upload?name=a.onnx", "file?run=a", "runs.csv"])
def test_a_name_that_somebody_points_here_is_refused(server, path):
    """DNS rebinding: to the browser, such a page and ours are of one origin."""
    evil = f"evil.example:{server.port}"
    assert _handshake(server, f"http://{evil}", evil, path) == 421
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(server.url + path, headers={"Host": evil}))
    assert refused.value.code == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "192.0.2.7", "LocalHost"])
def test_own_names_and_addresses_are_known_with_and_without_a_port(server, host):
    for each in (host, f"{host}:{server.port}"):
        assert _handshake(server, f"http://{each}", each) == 101


@pytest.mark.parametrize(
    ("host", "origin", "said"),
    [
        ("runs.example.org", "runs.example.org:443", True),  # as nginx names it
        ("runs.example.org:443", "runs.example.org:443", True),
        ("a.example.org", "*.example.org:80", True),
        ("example.org.evil.example", "*.example.org:80", False),
        ("", "runs.example.org:443", False),
        ("[", "runs.example.org:443", False),
        ("127.0.0.1.evil.example", "127.0.0.1:5006", False),
    ],
)
def test_a_host_is_known_by_the_origins_given(host, origin, said):
    from workbench.app.hosts import known

    assert known(host, [origin]) == said


def _upload(server, name: str, body: bytes, token: str = "") -> dict:
    request = urllib.request.Request(
        f"{server.url}upload?name={name}", body, {"X-Workbench-Token": token}, method="PUT"
    )
    return json.loads(urllib.request.urlopen(request).read())


def test_an_upload_without_the_pages_token_is_refused(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        _upload(server, "model.onnx", b"x", "guess")
    assert refused.value.code == 403


def test_a_request_that_is_no_upload_is_short(server):
    head = (
        f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 99999999\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).split()[1] == b"400"


def test_an_upload_that_breaks_off_leaves_nothing(tmp_path):
    pytest.importorskip("tornado", reason="the page needs panel")
    workspace = Workspace(root=tmp_path, quota=1000)

    async def break_off(address) -> None:
        _, writer = await asyncio.open_connection(*address)
        writer.write(_head("PUT /upload?name=x.onnx", workspace, "Content-Length: 99") + b"half")
        while not list(tmp_path.glob("uploads/*/x.onnx")):
            await asyncio.sleep(0.01)
        writer.close()
        while list(tmp_path.glob("uploads/*")):
            await asyncio.sleep(0.01)
        workspace.uploads.check("y.onnx", 1000)  # and takes no room

    _taking(workspace, break_off)


def test_an_upload_that_has_no_room_is_not_written(tmp_path):
    pytest.importorskip("tornado", reason="the page needs panel")
    workspace = Workspace(root=tmp_path, quota=10)

    async def ask(address, first: str, *lines: str, body: bytes = b"") -> dict:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(_head(first, workspace, "Connection: close", *lines) + body)
        answer = await reader.read()
        writer.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    async def asks(address) -> None:
        put, get = "PUT /upload?name=x.onnx", "GET /upload?name=x.onnx&size="
        assert await ask(address, f"{get}10") == {}
        told = [
            await ask(address, f"{get}11"),
            await ask(address, f"{get}?"),
            await ask(address, put, "Content-Length: 11", body=b"y" * 11),
            await ask(address, put, "Transfer-Encoding: chunked", body=b"1\r\ny\r\n0\r\n\r\n"),
        ]
        assert all({"what", "where", "fix"} <= each["error"].keys() for each in told)
        assert [*tmp_path.glob("uploads/*")] == []
        done = await ask(address, put, "Content-Length: 10", body=b"y" * 10)
        assert Path(done["path"]).read_bytes() == b"y" * 10 and done["size"] == 10
        assert "1 B too large" in (await ask(address, f"{get}1"))["error"]["what"]

    _taking(workspace, asks)


def _head(first: str, workspace: Workspace, *lines: str) -> bytes:
    said = (
        f"{first} HTTP/1.1",
        "Host: 127.0.0.1",
        f"X-Workbench-Token: {workspace.token}",
        *lines,
        "",
        "",
    )
    return "\r\n".join(said).encode()


def _taking(workspace: Workspace, ask) -> None:
    """``await ask(address)`` of a server that takes a workspace's uploads."""
    from tornado.httpserver import HTTPServer
    from tornado.netutil import bind_sockets
    from tornado.web import Application

    from workbench.app.transfers import Upload

    async def serve() -> None:
        (listening,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(Application([("/upload", Upload, {"workspace": workspace})]))
        server.add_socket(listening)
        await ask(listening.getsockname())
        server.stop()

    run_apart(asyncio.wait_for(serve(), 60))


@pytest.mark.parametrize("name", ["model.exe", "", "..", "a/b.sh"])
def test_only_models_and_recordings_are_uploaded(tmp_path, name):
    with pytest.raises(UserError, match="unrecognised file extension"):
        Library(tmp_path).uploads.new_path(name)


@pytest.mark.parametrize("name", ["../../etc/x.onnx", "/abs/x.run", "..\\..\\x.pt2", "-rf.onnx"])
def test_an_uploads_name_stays_in_its_folder(tmp_path, name):
    path = Library(tmp_path).uploads.new_path(name)
    assert path.parent.parent == tmp_path / "uploads"
    assert not path.name.startswith(("-", "."))


@pytest.mark.parametrize("name", ["~nobody-at-all/x.run", "a\0.run", "/tmp/a\0b.onnx"])
def test_what_can_be_no_path_is_said(tmp_path, name):
    workspace = Workspace(root=tmp_path)
    for open_ in (
        workspace.path,
        workspace.library.remove,
        lambda n: workspace.job(n + ".onnx", {}),
    ):
        with pytest.raises(UserError, match="file not found"):
            open_(name)


def test_a_store_that_takes_no_file_says_so(tmp_path):
    library = Library(tmp_path / "store")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "uploads").touch()
    with pytest.raises(UserError, match="cannot store the file"):
        library.uploads.new_path("x.onnx")


def test_a_recording_that_was_replaced_is_closed_when_its_last_page_goes(tmp_path, monkeypatch):
    workspace, closed = Workspace(root=tmp_path), []
    monkeypatch.setattr(Run, "close", lambda self: closed.append(self))
    path, other = _recording(tmp_path / "x.run"), _recording(tmp_path / "y.run")
    first = workspace.acquire(path)
    assert workspace.acquire(path) is first
    os.replace(other, path)
    second = workspace.acquire(path)
    assert second is not first
    workspace.release(first)
    assert closed == []
    workspace.release(first)
    assert closed == [first]
    monkeypatch.setattr(Run, "refresh", lambda self, wait: 1 / 0)
    for _ in range(2):  # whoever could not have it does not count
        with pytest.raises(ZeroDivisionError):
            workspace.acquire(path)
    workspace.release(second)
    monkeypatch.setattr("workbench.app.workspace.MAX_IDLE_OPEN", 0)
    workspace.release(second)
    assert closed == [first, second]


def test_a_recording_that_is_written_anew_in_place_can_be_opened_again(tmp_path):
    """As by ``cp``: a page that asks while half of it is there is refused, later ones are not."""
    workspace, path = Workspace(root=tmp_path), _recording(tmp_path / "x.run")
    content = path.read_bytes()
    workspace.release(workspace.acquire(path))
    for half in (0, len(content) // 2):
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(content[:half])
        with pytest.raises(UserError):
            workspace.acquire(path)
    path.write_bytes(content)
    run = workspace.acquire(path)
    assert run.meta()["model"] == "x"
    assert workspace.acquire(path) is run


def _recording(path: Path) -> Path:
    with Recorder(path) as recorder:
        recorder.begin({"model": "x"})
        recorder.end("finished")
    return path


def test_what_was_uploaded_goes_a_month_after_it_was_used_last(tmp_path):
    workspace = Workspace(root=tmp_path)
    library, month = workspace.library, 31 * 86400
    old, used = (library.uploads.new_path(f"{name}.onnx") for name in ("old", "used"))
    for path in (old, used):
        path.touch()
        os.utime(path.parent, (time.time() - month,) * 2)
    workspace.job(str(used), {})
    library.deleted()
    assert used.exists() and not old.parent.exists()


def test_on_a_public_address_code_and_foreign_files_are_off(tmp_path, recording):
    away = Workspace(local=False, root=tmp_path)
    with pytest.raises(UserError, match="--allow-code"):
        away.job("package.module:function", {})
    with pytest.raises(UserError, match="outside the library"):
        away.path(str(recording))
    with pytest.raises(UserError, match="outside the library"):
        away.job(str(tmp_path.parent / "model.onnx"), {})
    assert (
        Workspace(local=False, allow_code=True, root=tmp_path).job("a.b:c", {})["model"] == "a.b:c"
    )
    assert Workspace(local=False, given=(recording,), root=tmp_path).path(str(recording))


def test_on_a_public_address_neither_trash_nor_index_nor_folders_are_opened(tmp_path):
    away = Workspace(local=False, root=tmp_path / "store")
    root, saved = away.library.root, tmp_path / "saved.model"
    saved.mkdir(parents=True)
    (saved / "saved_model.pb").touch()
    for name in ("trash/20260531-aa/x.run", "library.sqlite", "recordings/../trash/x.run"):
        with pytest.raises(UserError, match="outside the library"):
            away.path(str(root / name))
    assert away.path(str(root / "recordings" / "imported" / "x.run"))
    for model in (saved, tmp_path / "absent.model", "/etc/host.conf", "a.b"):
        with pytest.raises(UserError, match="unknown model"):
            away.job(str(model), {})


def test_the_library_lists_recordings_newest_first(tmp_path, recording):
    library = Library(tmp_path)
    library.folder.mkdir(parents=True)
    (library.folder / "good.run").write_bytes(recording.read_bytes())
    (library.folder / "bad.run").write_bytes(b"not a recording")
    entries = {e.name: e for e in library.entries()}
    good = entries["good.run"]
    assert (good.model, good.target, good.status) == ("digits-cnn", "cpu", "finished")
    assert good.size == recording.stat().st_size and good.checks["bitwise"] > 0
    assert entries["bad.run"].status == "unreadable" and entries["bad.run"].error
    library.remove("good.run")
    library.remove("bad.run")
    assert not library.entries()


# -- the worker ---------------------------------------------------------------------------------


def _worker(job, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "workbench.app.worker"],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    ), json.dumps(job) if isinstance(job, dict) else job


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("job", "what"),
    [
        ("{", "not JSON"),
        ({"model": "digits-mlp"}, "missing or unknown fields"),
        ({"model": "no-such-model", "out": "x.run"}, "unknown model"),
        ({"model": "absent.onnx", "out": "x.run"}, "file not found"),
    ],
)
def test_a_bad_job_is_one_line_with_what_where_and_fix(job, what, tmp_path):
    process, text = _worker(job, cwd=tmp_path)
    out, _ = process.communicate(text, timeout=120)
    error = json.loads(out.strip().rsplit("\n", 1)[-1])["error"]
    assert what in error["what"] and error["fix"]
    assert process.returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "sign", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_stopped_worker_leaves_a_recording_that_opens(sign, tmp_path):
    pytest.importorskip("torch", reason="the sample models need torch")
    path = tmp_path / "stopped.run"
    job = {"model": "digits-mlp", "sizes": {"width": 0.5}, "out": str(path), "check": True}
    process, text = _worker(job)
    process.stdin.write(text)
    process.stdin.close()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and _stages(path) >= 3:
            break
        time.sleep(0.02)
    process.send_signal(sign)  # nothing, where it has ended meanwhile
    process.wait(60)
    with Recording.open(path) as recording:
        assert recording.stage_count() >= 3
        assert recording.status in ("cancelled", "interrupted", "finished")
        recording.module(2)


def _stages(path) -> int:
    try:
        with Recording.open(path) as recording:
            return recording.stage_count()
    except UserError:
        return 0
