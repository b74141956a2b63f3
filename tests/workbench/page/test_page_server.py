"""The server without a browser: address, origin, uploads, the worker process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from core_compiler.errors import UserError
from core_compiler.record.reader import Recording
from workbench.app.library import Library
from workbench.app.workspace import Workspace


def test_importing_the_page_does_not_import_panel():
    code = "import sys, workbench.app, workbench.cli; sys.exit('panel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_first_line_is_a_url_that_answers(server):
    assert server.get("health").read() == b"ok"
    page = server.get("").read().decode()
    assert "Opening the workbench" in page, "the page shows at once that it is loading"


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

    with pytest.raises(UserError, match="no such file"):
        serve(tmp_path / "absent.run", port=0, open_browser=False, root=tmp_path)


def _handshake(server, origin: str) -> int:
    """The status that a websocket handshake from ``origin`` is answered with."""
    lines = [
        "GET /ws HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Upgrade: websocket",
        "Connection: Upgrade", f"Origin: {origin}", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: bokeh", "", "",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return int(connection.recv(4096).split()[1])


def test_a_websocket_from_another_origin_is_refused(server):
    assert _handshake(server, server.url.rstrip("/")) == 101
    assert _handshake(server, "http://evil.example") == 403
    assert _handshake(server, f"http://evil.example:{server.port}") == 403


def _upload(server, name: str, body: bytes, token: str = "") -> dict:
    request = urllib.request.Request(
        f"{server.url}upload?name={name}", body, {"X-Workbench-Token": token}, method="PUT"
    )
    return json.loads(urllib.request.urlopen(request).read())


def test_an_upload_without_the_pages_token_is_refused(server):
    with pytest.raises(urllib.error.HTTPError) as refused:
        _upload(server, "model.onnx", b"x", "guess")
    assert refused.value.code == 403


@pytest.mark.parametrize("name", ["model.exe", "", "..", "a/b.sh"])
def test_only_models_and_recordings_are_uploaded(tmp_path, name):
    with pytest.raises(UserError, match="cannot be opened"):
        Library(tmp_path).upload_path(name)


@pytest.mark.parametrize("name", ["../../etc/x.onnx", "/abs/x.run", "..\\..\\x.pt2", "-rf.onnx"])
def test_an_uploads_name_stays_in_its_folder(tmp_path, name):
    path = Library(tmp_path).upload_path(name)
    assert path.parent.parent == tmp_path / "uploads"
    assert not path.name.startswith(("-", "."))


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
        [sys.executable, "-m", "workbench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **more,
    ), json.dumps(job) if isinstance(job, dict) else job  # fmt: skip


@pytest.mark.parametrize(
    ("job", "what"),
    [
        ("{", "no JSON"),
        ({"model": "digits-mlp"}, "not complete"),
        ({"model": "no-such-model", "out": "x.run"}, "no model is called"),
        ({"model": "absent.onnx", "out": "x.run"}, "no such file"),
    ],
)
def test_a_bad_job_is_one_line_with_what_where_and_fix(job, what, tmp_path):
    process, text = _worker(job, cwd=tmp_path)
    out, _ = process.communicate(text, timeout=120)
    error = json.loads(out.strip().rsplit("\n", 1)[-1])["error"]
    assert what in error["what"] and error["fix"]
    assert process.returncode == 2


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
