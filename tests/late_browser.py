"""A browser that has not said yet that a page is drawn, as on a busy machine."""

from __future__ import annotations

from typing import Any


def without_ready(socket: Any) -> None:
    """For `route_web_socket`: lets through what browser and server say, but that all components of
    a document are drawn."""
    server = socket.connect_to_server()
    message: list[str | bytes] = []

    def said(part: str | bytes) -> None:  # a message is a header, metadata and content
        message.append(part)
        if len(message) == 3:
            if "document_ready" not in str(message[2]):
                for each in message:
                    server.send(each)
            message.clear()

    socket.on_message(said)
