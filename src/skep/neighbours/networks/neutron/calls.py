"""Requests to Neutron in the name of one caller, and what its answers mean."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from skep.domain.decoding import convert
from skep.domain.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    QuotaExceeded,
    SkepError,
    Unauthenticated,
    Unavailable,
)
from skep.domain.ids import is_uuid
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.answers import decode, nonsense, refusal_of
from skep.neighbours.connections import ServiceAnswer
from skep.neighbours.networks.neutron.forms import FormT, NeutronKind
from skep.neighbours.service_session import ServiceSession

MOST_OF_QUERY = 6500
"""Bytes: services and what stands before them take URLs of 8 KB."""

OVER_QUOTA = "OverQuota"
NO_MORE_ADDRESSES = ("IpAddressGenerationFailure", "ExternalIpAddressExhausted")
"""Types of refusals."""

CHANGED = 412
"""Status of a change of what is not any more as it was read."""

ERRORS: dict[int, type[SkepError]] = {400: BadRequest, 403: Forbidden, 404: NotFound, 409: Conflict, 412: Conflict}

COMES_AGAIN = frozenset({401, 408, 429})
"""Statuses that refuse nothing: the same request may be answered later."""

BARE = frozenset(range(400, 500)) - COMES_AGAIN - (ERRORS.keys() - {400})
"""Statuses that refuse without Neutron's form, too: of a request that is too large, say. Those that say something of
what is there count in that form alone."""

MOST_AT_ONCE = 100
"""Things that are made in one request: services take a number of them, or of bytes."""

Parameters = Sequence[tuple[str, str]]


class NeutronRefused(SkepError):
    """Neutron does not do it, and says why."""

    def __init__(self, status: int, type_: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.type = type_

    @property
    def for_user(self) -> SkepError:
        """The same as an error that users are told."""
        if self.type == OVER_QUOTA:
            return QuotaExceeded("Maximum number of ports exceeded")
        if self.type in NO_MORE_ADDRESSES:
            return BadRequest(str(self))
        return ERRORS.get(self.status, BadRequest)(str(self))


class _Refusal(msgspec.Struct, frozen=True):
    type: str
    message: str


class _RefusalBody(msgspec.Struct, frozen=True):
    error: _Refusal = msgspec.field(name="NeutronError")


class NeutronCalls:
    """Neutron as one caller has it."""

    def __init__(self, session: ServiceSession, endpoint: str = "", token: str | None = None) -> None:
        """`endpoint` is Neutron's address without `/v2.0`, empty: what the catalogue says; `token`: a user's own."""
        self._session = session
        self._endpoint = endpoint.rstrip("/")
        self._token = token

    def of_user(self, token: str) -> NeutronCalls:
        """Return Neutron as a user has it."""
        return NeutronCalls(self._session, self._endpoint, token)

    async def listed(
        self, kind: NeutronKind[FormT], *given: tuple[str, str], name: str = "id", values: Sequence[str] | None = None
    ) -> list[FormT]:
        """Return all that have one of these values, where values are given, in as few requests as URLs allow.

        Raises NeutronRefused, Unavailable.
        """
        if values is None:
            return await self._pages(kind, list(given))
        found: dict[str, FormT] = {}
        for some in _portions(name, list(dict.fromkeys(values))):
            found |= {one.id: one for one in await self._pages(kind, [*given, *some])}
        return list(found.values())

    async def _pages(self, kind: NeutronKind[FormT], parameters: Parameters) -> list[FormT]:
        found: dict[str, FormT] = {}
        marker: list[tuple[str, str]] = []
        while True:
            answer = await self.answer("GET", f"/{kind.path}?{urllib.parse.urlencode([*parameters, *marker])}")
            page = read(answer.get(kind.members), list[kind.form])  # type: ignore[name-defined]
            new = {one.id: one for one in page if one.id not in found}
            found |= new
            links = answer.get(f"{kind.members}_links")
            if not new or not isinstance(links, list) or not any(_is_next(one) for one in links):
                return list(found.values())
            marker = [("marker", page[-1].id)]

    async def shown(self, kind: NeutronKind[FormT], resource_id: str) -> FormT | None:
        """Return one; None where there is none that the caller sees. Raises NeutronRefused, Unavailable."""
        if not is_uuid(resource_id):
            return None
        found = await self.listed(kind, values=[resource_id])
        return next((one for one in found if one.id == resource_id), None)

    async def made(self, kind: NeutronKind[FormT], **fields: Any) -> FormT:
        """Make one. Raises NeutronRefused; Unavailable: then it may be there."""
        answer = await self.answer("POST", f"/{kind.path}", {kind.member: fields}, status=201)
        found: FormT = read(answer.get(kind.member), kind.form)
        return found

    async def made_many(self, kind: NeutronKind[FormT], wanted: Sequence[dict[str, Any]]) -> list[FormT]:
        """Make several, all of them or none, in one request; return them in whatever order. Raises as `made`.

        No more than `MOST_AT_ONCE`.
        """
        if len(wanted) == 1:
            return [await self.made(kind, **wanted[0])]
        answer = await self.answer("POST", f"/{kind.path}", {kind.members: wanted}, status=201)
        found: list[FormT] = read(answer.get(kind.members), list[kind.form])  # type: ignore[name-defined]
        if len({one.id for one in found}) != len(wanted):
            raise nonsense(SERVICE, f"{len(wanted)} of {kind.path} were asked for, and {len(found)} made")
        return found

    async def changed(
        self, kind: NeutronKind[FormT], resource_id: str, fields: dict[str, Any], *, revision: int | None = None
    ) -> FormT:
        """Change one, where a revision is given only that. Raises NeutronRefused; Unavailable: it may be changed."""
        path = f"/{kind.path}/{urllib.parse.quote(resource_id, safe='')}"
        answer = await self.answer("PUT", path, {kind.member: fields}, headers=_only_if(revision))
        found: FormT = read(answer.get(kind.member), kind.form)
        if found.id != resource_id:
            raise nonsense(SERVICE, f"the {kind.noun} is another one")
        return found

    async def deleted(self, kind: NeutronKind[FormT], resource_id: str, *, revision: int | None = None) -> bool:
        """Delete one, where a revision is given only that; return whether it was there.

        Raises NeutronRefused; Unavailable: it may be gone.
        """
        path = f"/{kind.path}/{urllib.parse.quote(resource_id, safe='')}"
        return await self.removed(path, headers=_only_if(revision))

    async def removed(self, path: str, *, headers: dict[str, str] | None = None) -> bool:
        """Delete what a path names; return whether it was there. Raises as `deleted`."""
        response = await self._ask("DELETE", path, headers=headers)
        if response.status_code == 204:
            return True
        refusal = self._refused(response)
        if isinstance(refusal, NeutronRefused) and refusal.status == 404:
            return False
        raise refusal

    async def answer(
        self, method: str, path: str, body: Any = None, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the JSON of a good answer. Raises NeutronRefused, Unavailable."""
        response = await self._ask(method, path, body, headers)
        if response.status_code != status:
            raise self._refused(response)
        return decode(SERVICE, response, dict[str, Any])

    async def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> ServiceAnswer:
        base = self._endpoint or await self._session.endpoint("network")
        url = f"{base.removesuffix('/v2.0')}/v2.0{path}"
        if self._token is None:
            return await self._session.as_skep(method, url, headers or {}, body, service=SERVICE)
        return await self._session.as_user(method, url, self._token, headers or {}, body, service=SERVICE)

    def _refused(self, response: ServiceAnswer) -> SkepError:
        if response.status_code == 401:
            return Unauthenticated("The request you have made requires authentication.")
        refusal = _refusal(response)
        if refusal.status == 403 and self._token is None:
            return Unavailable(f"{SERVICE} does not let Skep's own user do it: {refusal}")
        return refusal


def read(value: Any, wanted: Any) -> Any:
    """Return a part of an answer as it has to be. Raises Unavailable."""
    try:
        return convert(value, wanted)
    except msgspec.ValidationError as error:
        raise nonsense(SERVICE, str(error)) from error


def _refusal(response: ServiceAnswer) -> NeutronRefused:
    """Return what Neutron refuses, or what stands before it. Raises Unavailable for other answers."""
    status = response.status_code
    said = refusal_of(SERVICE, response, _RefusalBody, formed=ERRORS, bare=BARE)
    if said is None:
        return NeutronRefused(status, "", f"{SERVICE} answered {status}.")
    return NeutronRefused(status, said.error.type, said.error.message)


def _only_if(revision: int | None) -> dict[str, str]:
    """Return the headers of a request about one revision (Neutron's extension `revision-if-match`)."""
    return {} if revision is None else {"If-Match": f"revision_number={revision}"}


def _is_next(link: Any) -> bool:
    return isinstance(link, dict) and link.get("rel") == "next"


def _portions(name: str, values: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    some: list[tuple[str, str]] = []
    size = 0
    for value in values:
        more = len(urllib.parse.urlencode([(name, value)])) + 1
        if some and size + more > MOST_OF_QUERY:
            yield some
            some, size = [], 0
        some.append((name, value))
        size += more
    if some:
        yield some
