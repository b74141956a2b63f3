"""Several people at one server: clients that walk through a recording, and a long soak.

    python benchmarks/clients.py FILE.run [--clients 20] [--seconds 60] [--json]

Each client opens the page as a browser does (its HTML, then Bokeh's websocket) and repeats a walk
through passes, rewrites, selections and views, with pauses as a person makes them, until the time
is over; it draws nothing.  Said are, beside the machine's load,

``open_s``        from the request to the first state
``step_ms``       from a command to the arrival of all that the view state shows: median, 95th
                  percentile, largest
``errors``        notices of errors, and clients whose connection ended
``server_bytes``  memory of the server and its descendants when all clients have opened, after each
                  tenth of the time, and when all have left
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # also run as a file
from benchmarks.models import machine  # noqa: E402
from benchmarks.ui import serving  # noqa: E402

#: Pauses between two commands (seconds).
PAUSE = (0.5, 2.0)
#: How long an answer may take before the client counts it as an error (seconds).
PATIENCE = 30.0
#: The walk: what keys and clicks send.  ``{op}`` is an op of the recording.
WALK: tuple[Mapping[str, Any], ...] = (
    {"name": "preset", "key": "1"},
    *({"name": "step", "what": "changed", "by": 1},) * 6,
    *({"name": "step", "what": "rewrite", "by": 1},) * 4,
    {"name": "select", "op": "{op}"},
    *({"name": "step", "what": "changed", "by": 1},) * 3,
    {"name": "pane", "index": 0, "view": "kernels"},
    {"name": "pane", "index": 0, "view": "memory"},
    {"name": "pane", "index": 0, "view": "numerics"},
    {"name": "pane", "index": 0, "view": "source"},
    {"name": "pane", "index": 0, "view": "graph"},
    *({"name": "step", "what": "changed", "by": -1},) * 9,
    {"name": "select"},
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (url, process):
        found = asyncio.run(walks(url, process, arguments))
    found = {"machine": machine(2), "recording": arguments.recording.name, **found}
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:16}{value}")


async def walks(url: str, process: psutil.Process, arguments: argparse.Namespace) -> dict[str, Any]:
    page = f"{url}?run={quote(str(arguments.recording.absolute()))}"
    ops = _ops(arguments.recording)
    clients = [Client(page, random.Random(i), ops) for i in range(arguments.clients)]
    bytes_ = [_bytes(process)]
    opened = [await client.open() for client in clients]  # one after another, as people come
    bytes_.append(_bytes(process))
    end = time.monotonic() + arguments.seconds
    walking = [asyncio.create_task(client.walk(end)) for client in clients]
    while any(not task.done() for task in walking):
        await asyncio.wait(walking, timeout=arguments.seconds / 10)
        bytes_.append(_bytes(process))
    for client in clients:
        client.close()
    await asyncio.sleep(20)  # sessions without a page are let go of
    bytes_.append(_bytes(process))
    steps = sorted(ms for client in clients for ms in client.steps)
    return {
        "clients": len(clients),
        "seconds": arguments.seconds,
        "steps": len(steps),
        "open_s": {"median": statistics.median(opened), "largest": max(opened)},
        "step_ms": {
            "median": statistics.median(steps),
            "p95": steps[int(0.95 * (len(steps) - 1))],
            "largest": steps[-1],
        },
        "errors": [error for client in clients for error in client.errors],
        "server_bytes": bytes_,
    }


def _ops(recording: Path) -> list[int]:
    from core_compiler.record import Recording

    with Recording.open(recording) as file:
        return [file.op_id(op) for op in file.module(0).main.body.ops]


def _bytes(process: psutil.Process) -> int:
    return sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))


class Client:
    """A page without a browser: what it is sent, and how long answers took (milliseconds)."""

    def __init__(self, page: str, chance: random.Random, ops: list[int]):
        self.page, self.chance, self.ops = page, chance, ops
        self.steps: list[float] = []
        self.errors: list[str] = []
        self._number = 0
        self._bar: dict[str, Any] = {}
        self._socket: WebSocketClientConnection
        self._changed = asyncio.Event()

    async def open(self) -> float:
        """Seconds until the first state is there."""
        began = time.perf_counter()
        answer = await AsyncHTTPClient().fetch(self.page, request_timeout=60)
        token = re.search(r'"token":"([^"]+)"', answer.body.decode())
        assert token is not None, "the page has no token"
        address = re.sub(r"^http", "ws", self.page.partition("?")[0]) + "ws"
        self._socket = await websocket_connect(
            HTTPRequest(address), subprotocols=["bokeh", token[1]], max_message_size=64 << 20
        )
        await self._receive()  # ACK
        await self._send("PULL-DOC-REQ", {})
        _, content = await self._receive()
        self._data = _data_of(content["doc"], "bar")
        self._update_bar(self._data["attributes"]["data"])
        loaded = {"type": "event", "name": "document_ready", "values": {"type": "map"}}
        event = {"kind": "MessageSent", "msg_type": "bokeh_event", "msg_data": loaded}
        await self._send("PATCH-DOC", {"events": [event]})
        self._listening = asyncio.create_task(self._listen())
        await self._until(lambda: self._bar.get("done") and self._bar.get("run"))
        return time.perf_counter() - began

    async def walk(self, end: float) -> None:
        while time.monotonic() < end:
            for command in WALK:
                await asyncio.sleep(self.chance.uniform(*PAUSE))
                if time.monotonic() > end or self.errors:
                    return
                await self._do(command)

    def close(self) -> None:
        self._listening.cancel()
        self._socket.close()

    async def _do(self, command: Mapping[str, Any]) -> None:
        if command.get("op") == "{op}":
            command = {**command, "op": self.chance.choice(self.ops)}
        self._number += 1
        notice = (self._bar.get("notice") or {}).get("n")
        self._bar = {}
        began = time.perf_counter()
        event = {
            "kind": "ModelChanged",
            "model": {"id": self._data["id"]},
            "attr": "command",
            "new": json.dumps({**command, "n": self._number}),
        }
        await self._send("PATCH-DOC", {"events": [event]})
        if not await self._until(lambda: self._bar.get("done")):
            self.errors.append(f"no answer to {command} within {PATIENCE} s")
        self.steps.append(1e3 * (time.perf_counter() - began))
        notice_data = self._bar.get("notice")
        if notice_data and notice_data.get("error") and notice_data.get("n") != notice:
            self.errors.append(f"{command}: {notice_data['what']}")

    async def _until(self, ready: Any) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not ready() and time.monotonic() < deadline:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - time.monotonic())
            except TimeoutError:
                return False
        return bool(ready())

    async def _listen(self) -> None:
        while True:
            kind, content = await self._receive()
            for event in content.get("events", ()) if kind == "PATCH-DOC" else ():
                named = event.get("model", {}).get("id") == self._data["id"]
                if event.get("kind") == "ModelChanged" and named and event["attr"] == "data":
                    self._update_bar(event["new"])
            self._changed.set()

    def _update_bar(self, data: str) -> None:
        self._bar = json.loads(data) if data else {}

    async def _send(self, kind: str, content: Mapping[str, Any]) -> None:
        for part in ({"msgid": str(time.perf_counter_ns()), "msgtype": kind}, {}, content):
            await self._socket.write_message(json.dumps(part))

    async def _receive(self) -> tuple[str, dict[str, Any]]:
        """The kind and the content of a message, whose buffers are read and dropped."""
        parts = [await self._frame() for _ in range(3)]
        header = json.loads(parts[0])
        for _ in range(2 * header.get("num_buffers", 0)):
            await self._frame()
        return header["msgtype"], json.loads(parts[2])

    async def _frame(self) -> str | bytes:
        got = await self._socket.read_message()
        if got is None:
            self.errors.append("the connection ended")
            raise asyncio.CancelledError
        return got


def _data_of(doc: Any, module: str) -> dict[str, Any]:
    """The model that carries the data of a component, by the module it shows."""
    for each in _models(doc):
        attributes = each.get("attributes", {})
        if f'const name = "{module}"' in str(attributes.get("esm", "")):
            return attributes["data"]
    raise AssertionError(f"the page has no {module}")


def _models(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for part in node.values():
            yield from _models(part)
    elif isinstance(node, list):
        for part in node:
            yield from _models(part)


if __name__ == "__main__":
    main()
