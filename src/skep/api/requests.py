"""What a handler gets and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from skep.api.links import Links
from skep.api.services import ApiServices
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound, Overloaded
from skep.http.urls import QueryValues

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer. The body is complete for the newest microversion; the route's `response` cuts it to size."""

    body: Any = None
    status: int | None = None
    """None: the route's own."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ApiRequest:
    """One request: authenticated, validated, and allowed by the route's rule as far as that can be said early."""

    context: RequestContext
    version: int
    """The N of microversion 2.N."""
    params: Mapping[str, str]
    """What stands in the path for `{name}`."""
    query: QueryValues
    """Checked against the route's `query`; only keys that it knows."""
    raw_query: QueryValues
    """All keys, as they came."""
    body: Any
    """Checked against the route's `body`, numbers and booleans read; None where the route takes no body."""
    services: ApiServices
    links: Links
    rule: str
    """The route's policy rule."""
    token: str = field(default="", repr=False)
    """The caller's, for what other services do in his name. It goes nowhere else."""
    idempotency_key: str | None = None
    """What the client calls this request, so that a retry is known as one."""
    authorized: bool = False
    """Whether a policy rule has been checked."""

    def authorize(self, *, project_id: str | None = None, user_id: str | None = None, rule: str | None = None) -> None:
        """Check a policy rule (the route's unless told) against the owner of the thing, by default the caller.

        Raises Forbidden when it says no. Handlers of routes with `target="object"` must call it.
        """
        self.authorized = True
        self.services.policy.enforce(rule or self.rule, self.context, project_id=project_id, user_id=user_id)

    def authorize_seen(
        self, absent: NotFound, *, project_id: str, user_id: str | None = None, rule: str | None = None
    ) -> None:
        """Check a policy rule (the route's unless told) for a thing of some project.

        What the caller may not touch of another project is not there for him. Raises `absent` then; Forbidden for what
        is his own project's.
        """
        self.authorized = True
        foreign = project_id != self.context.project_id
        if foreign and not self.allowed(rule or self.rule, project_id=project_id, user_id=user_id):
            raise absent
        self.authorize(project_id=project_id, user_id=user_id, rule=rule)

    def refuse_overload(self) -> None:
        """Raise Overloaded while as many builds wait as may: nothing is stored then."""
        if self.services.backlog() >= self.services.settings.max_backlog:
            raise Overloaded("Too many servers wait to be built. Try again in a few seconds.")

    def allowed(self, rule: str, *, project_id: str | None = None, user_id: str | None = None) -> bool:
        """Tell whether another policy rule (of a key or filter for admins, say) allows it to the caller."""
        return self.services.policy.allows(rule, self.context, project_id=project_id, user_id=user_id)

    def first(self, name: str, default: str | None = None) -> str | None:
        """Return the value of a query key; the last one counts when there are several, as in Nova."""
        values = self.query.get(name)
        return values[-1] if values else default

    def page(self) -> tuple[int, str | None]:
        """Return how many items the answer may hold, and the marker after which it begins.

        Raises BadRequest when `limit` is no whole number from 0 up.
        """
        limit = self.services.settings.max_limit
        given = self.first("limit")
        if given is not None and given != "":
            if not (given.isascii() and given.isdigit()):
                raise BadRequest(f"Invalid input for query parameters limit. Value: {given[:40]}. limit must be >= 0")
            limit = min(limit, int(given[:18]))
        return limit, self.first("marker")

    def window(self) -> tuple[int, int]:
        """Return how many items the answer may hold, and how many are left out before. Raises as `page`.

        Of lists with an `offset` a `limit` of 0 says nothing, as in Nova; of those with a `marker` it is an empty page.
        """
        limit = self.page()[0] or self.services.settings.max_limit
        return limit, int((self.first("offset") or "0")[:18])

    def part(self, found: Sequence[ItemT]) -> Sequence[ItemT]:
        """Return those of a list that the answer may hold. Raises as `page`."""
        limit, offset = self.window()
        return found[offset : offset + limit]

    def next_link(self, path: str, shown: int, last: object) -> list[dict[str, str]] | None:
        """Return the link to the next page when this page of `shown` items is full; None when it is the last."""
        limit, _ = self.page()
        return self.links.next(path, self.raw_query, last) if shown and shown >= limit else None

    def image_url(self, image_id: str) -> str:
        """Return where the image service has an image; where only the catalogue says that, the API's own address."""
        service = self.services.settings.images_url
        return f"{service.rstrip('/')}/images/{image_id}" if service else self.links.own("images", image_id)


Handler = Callable[[ApiRequest], Awaitable[Answer]]
