"""Answers as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
from starlette.responses import Response

T = TypeVar("T")


class JsonResponse(Response, Generic[T]):
    """An answer whose JSON is a value of this type: what a handler returns is what its document says."""


def json_response(value: T, status: int = 200, headers: Mapping[str, str] | None = None) -> JsonResponse[T]:
    """Return a value as JSON."""
    return JsonResponse(msgspec.json.encode(value), status, headers, "application/json")
