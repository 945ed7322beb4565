"""Answers judged by the OpenAPI document of the service that gave them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx
import jsonschema_rs

JSON = "application/json"


class Documented:
    """The document of a service, by which its answers are judged."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # Words of their own go before words that may be any.
        paths = sorted(document["paths"], key=lambda path: (path.count("{"), path))
        self._paths = [(re.compile(re.sub("{[^}]+}", "[^/]+", path)), path) for path in paths]
        self._validator = cache(self._made)
        self.seen: set[tuple[str, str, int]] = set()
        """Method, path and status of what was judged."""

    def fault(self, response: httpx.Response) -> str:
        """Return what an answer has that the document does not; nothing if it is as documented.

        Nothing is said of paths and methods that the document does not have.
        """
        method = response.request.method
        path = next((name for form, name in self._paths if form.fullmatch(response.request.url.path)), None)
        described = self._document["paths"].get(path, {}).get(method.lower())
        if path is None or described is None:
            return ""
        self.seen.add((method, path, response.status_code))
        answer = described["responses"].get(str(response.status_code))
        if answer is None:
            return f"{method} {path}: {response.status_code} is not documented"
        if "$ref" in answer:
            answer = self._document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        media_type = response.headers.get("content-type", "").partition(";")[0]
        if not media_type and answer.get("x-or-nothing"):
            return ""
        if media_type not in answer.get("content", {"": {}}):
            return f"{method} {path}: {response.status_code} with {media_type or 'nothing'} is not documented"
        if media_type != JSON:
            return ""
        validator = self._validator(path, method.lower(), response.status_code)
        errors = [f"{list(one.instance_path)}: {one.message}" for one in validator.iter_errors(response.json())]
        return f"{method} {path}: {response.status_code}: {errors[:3]}" if errors else ""

    def _made(self, path: str, method: str, status: int) -> jsonschema_rs.Draft202012Validator:
        answer = self._document["paths"][path][method]["responses"][str(status)]
        if "$ref" in answer:
            answer = self._document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        schema = answer["content"][JSON]["schema"]
        return jsonschema_rs.Draft202012Validator({**schema, "components": self._document["components"]})

    @property
    def done(self) -> set[tuple[str, str]]:
        """Methods and paths of which a success was judged."""
        return {(method, path) for method, path, status in self.seen if status < 400}

    async def judge(self, response: httpx.Response) -> None:
        """Fail unless the answer is as documented: a hook of clients."""
        if response.headers.get("content-type", "").startswith(JSON):
            await response.aread()
        fault = self.fault(response)
        assert not fault, fault
