"""The links in answers: where a thing is (`self`, with the API's version) and its name for ever (`bookmark`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from skep.http.urls import QueryValues

_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")
"""What a path has as it is, by RFC 3986."""


def _quoted(identifier: str) -> str:
    """Quote one word of a path. Nearly all are plain, and a long list has many."""
    return identifier if _PLAIN.fullmatch(identifier) else quote(identifier, safe="")


@dataclass(frozen=True, slots=True)
class Links:
    """Builds links that look like the request: same host, same version prefix, with the project id if it had it."""

    base: str
    """`http://host:port`"""
    version: str = "/v2.1"
    project: str = ""
    """`/PROJECT` when the request's path named it."""

    def both(self, collection: str, identifier: object) -> list[dict[str, str]]:
        """Return `self` and `bookmark` of one thing."""
        return [
            {"rel": "self", "href": self.own(collection, identifier)},
            {"rel": "bookmark", "href": self.bookmark(collection, identifier)},
        ]

    def own(self, collection: str, identifier: object) -> str:
        """Return the URL of one thing under the version of the request."""
        return f"{self.base}{self.version}{self.project}/{collection}/{_quoted(str(identifier))}"

    def bookmark(self, collection: str, identifier: object) -> str:
        """Return the permanent URL of one thing."""
        return f"{self.base}{self.project}/{collection}/{_quoted(str(identifier))}"

    def next(self, path: str, query: QueryValues, marker: object) -> list[dict[str, str]]:
        """Return the link to the page after `marker`; `path` is like `servers/detail`."""
        values = [(name, value) for name, several in query.items() if name != "marker" for value in several]
        values.append(("marker", str(marker)))
        return [{"rel": "next", "href": f"{self.base}{self.version}{self.project}/{path}?{urlencode(values)}"}]
