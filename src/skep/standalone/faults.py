"""Errors as Keystone and Glance word them: `{"error": {"code", "title", "message"}}`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from skep.http.faults import FaultForm

UNAUTHENTICATED = "The request you have made requires authentication."


def body(status: int, message: str) -> dict[str, Any]:
    """Return the JSON of an error."""
    return {"error": {"code": status, "title": HTTPStatus(status).phrase, "message": message}}


def form(identity_url: str) -> FaultForm:
    """Return how errors are worded; `identity_url` is told to a client that sends no valid token."""
    return FaultForm(body, lambda _request: "An unexpected error prevented the request.", identity_url)
