"""Responses to the browser's numbered requests, the same way in every Python host."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from widgets.encode import finite

Handler = Callable[[Mapping[str, Any]], Any]


class Requests:
    """The dispatcher that calls `handler` once per new request and builds the `response` trait.

    The browser's `request` trait contains all requests without a response, so that none is lost
    when two changes of the trait arrive as one.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._answered: dict[tuple[str, int], None] = {}

    def answer(self, text: str) -> str | None:
        """Return the response for the open requests in `text`; None if all were answered before."""
        answers = []
        for request in json.loads(text or "[]"):
            identity = (str(request.get("session", "")), int(request["id"]))
            if identity in self._answered:
                continue
            self._answered[identity] = None
            answers.append(self._reply(request, {"id": identity[1], "session": identity[0]}))
        return f"[{', '.join(answers)}]" if answers else None

    def _reply(self, request: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
        try:
            return json.dumps(
                {"value": finite(self._handler(request)), **identity}, allow_nan=False
            )
        except Exception as error:  # a failed request must not end the page: the view shows it
            return json.dumps({"error": f"{type(error).__name__}: {error}", **identity})
