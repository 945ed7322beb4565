"""How much one project, or one address without a token, may ask of the compute API: 429 beyond, as Nova words it.

What Skep serves to users beside it (`/v1`) counts too.
Each project has its own measure, so one that asks too much takes nothing from the others. Each API process counts for
itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import msgspec
from starlette.types import Scope

from skep.domain.context import RequestContext
from skep.domain.errors import TooManyRequests
from skep.http.addresses import network_of
from skep.http.rates import Concurrency, Rate, RateSettings


class RequestLimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits; 0 is none."""

    of_project: RateSettings = RateSettings(per_second=500, burst=5000)
    of_address: RateSettings = RateSettings(per_second=100, burst=2000)
    at_once: int = 500


def _untold(_limit: str) -> None:
    return None


class RequestLimits:
    """Counts what projects and addresses ask."""

    def __init__(
        self,
        settings: RequestLimitSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _untold,
    ) -> None:
        """`now` counts seconds; `tell` hears which limit refused a request."""
        self._projects = Rate(settings.of_project, now)
        self._addresses = Rate(settings.of_address, now)
        self._at_once = Concurrency(settings.at_once)
        self._tell = tell

    def count_address(self, scope: Scope) -> None:
        """Count a request without a valid token. Raises TooManyRequests."""
        client = scope.get("client")
        with self._telling("address"):
            self._addresses.take(network_of(client[0]) if client else "")

    def check_address(self, scope: Scope) -> None:
        """Raise TooManyRequests where `count_address` would; count nothing."""
        client = scope.get("client")
        with self._telling("address"):
            self._addresses.check(network_of(client[0]) if client else "")

    @contextlib.contextmanager
    def project(self, context: RequestContext) -> Iterator[None]:
        """Count a request of a caller while it is served. Raises TooManyRequests.

        A caller without a project counts for himself.
        """
        name = context.project_id or f"user {context.user_id}"
        with self._telling("at_once"):
            self._at_once.begin(name)
        try:
            with self._telling("rate"):
                self._projects.take(name)
            yield
        finally:
            self._at_once.end(name)

    @contextlib.contextmanager
    def _telling(self, limit: str) -> Iterator[None]:
        try:
            yield
        except TooManyRequests:
            self._tell(limit)
            raise
