"""Requests to Cinder in the name of one caller, and what its answers mean."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Mapping, Sequence
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
from skep.neighbours.answers import VOLUMES as SERVICE
from skep.neighbours.answers import decode, nonsense, refusal_of
from skep.neighbours.connections import ServiceAnswer
from skep.neighbours.service_session import ServiceSession
from skep.neighbours.volumes.cinder.forms import FormT, VolumeKind

SERVICE_TYPES = ("block-storage", "volumev3")
"""Names of Cinder in catalogues."""

MICROVERSION = "3.44"
"""Attachments that are completed, and lists of them by server."""

TOO_OLD = 406
OVER_QUOTA = 413
ERRORS: dict[int, type[SkepError]] = {
    400: BadRequest,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    OVER_QUOTA: QuotaExceeded,
}
FAULTS = {
    400: "badRequest",
    403: "forbidden",
    404: "itemNotFound",
    409: "conflictingRequest",
    OVER_QUOTA: "overLimit",
}
"""The key of what Cinder says of a refusal, by its status (its `wsgi.Fault`). A limit of rates has another."""
MOST_PAGES = 1000

Parameters = Sequence[tuple[str, str]]


class CinderRefused(SkepError):
    """Cinder does not do it, and says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def for_user(self) -> SkepError:
        """The same as an error that users are told."""
        return ERRORS[self.status](str(self))


class _Refusal(msgspec.Struct, frozen=True):
    message: str


class CinderCalls:
    """Cinder as one caller has it."""

    def __init__(
        self, session: ServiceSession, endpoint: str = "", token: str | None = None, *, as_service: bool = True
    ) -> None:
        """`endpoint` is Cinder's address with `/v3`; empty: what the catalogue says; `token`: a user's own.

        `as_service`: Skep shows that a service asks, which may take volumes from servers.
        """
        self._session = session
        self._endpoint = endpoint.rstrip("/")
        self._token = token
        self._as_service = as_service

    def of_user(self, token: str) -> CinderCalls:
        """Return Cinder as a user has it."""
        return CinderCalls(self._session, self._endpoint, token)

    def of_project(self, project_id: str) -> CinderCalls:
        """Return Cinder as Skep's own user has it in a project: what he makes and lists is that project's."""
        return CinderCalls(self._session.of_project(project_id), self._endpoint, as_service=False)

    async def listed(self, kind: VolumeKind[FormT], *given: tuple[str, str]) -> list[FormT]:
        """Return all of a kind that the parameters select. Raises CinderRefused, Unavailable.

        Cinder gives so many at a time as it is set to (`osapi_max_limit`). Where a page does not say whether there are
        more, it is asked until there is nothing new.
        """
        found: dict[str, FormT] = {}
        before: list[str] = []
        says_more = kind.few_by is None or any(name == kind.few_by for name, _ in given)
        for _ in range(MOST_PAGES):
            marker = [("marker", one) for one in before[-1:]]
            try:
                answer = await self.answer("GET", f"/{kind.listed}?{urllib.parse.urlencode([*given, *marker])}")
            except CinderRefused as error:
                if error.status != 404 or not before:
                    raise
                # That one is gone meanwhile: what stood before it tells the place as well.
                before.pop()
                continue
            # Types have one more member in their bodies than in their path.
            page = read(answer.get(kind.members, answer.get(f"volume_{kind.members}")), list[kind.form])  # type: ignore[name-defined]
            new = {one.id: one for one in page if one.id not in found}
            found |= new
            if not new or (says_more and not _has_next(answer, kind)):
                return list(found.values())
            before = [one.id for one in page]
        raise nonsense(SERVICE, f"there are more than {MOST_PAGES} pages of {kind.members}")

    async def shown(self, kind: VolumeKind[FormT], resource_id: str) -> FormT | None:
        """Return one; None where there is none that the caller sees. Raises CinderRefused, Unavailable."""
        if not is_uuid(resource_id):
            return None
        try:
            answer = await self.answer("GET", _path(kind, resource_id))
        except CinderRefused as error:
            if error.status == 404:
                return None
            raise
        return self._one(kind, answer, resource_id)

    async def made(self, kind: VolumeKind[FormT], **fields: Any) -> FormT:
        """Make one. Raises CinderRefused; Unavailable: then it may be there."""
        answer = await self.answer("POST", f"/{kind.members}", {kind.member: fields}, statuses=(200, 202))
        return self._one(kind, answer)

    async def changed(self, kind: VolumeKind[FormT], resource_id: str, fields: dict[str, Any]) -> FormT:
        """Change one. Raises CinderRefused; Unavailable: it may be changed."""
        answer = await self.answer("PUT", _path(kind, resource_id), {kind.member: fields})
        return self._one(kind, answer, resource_id)

    async def described(self, kind: VolumeKind[FormT], resource_id: str, metadata: dict[str, str]) -> None:
        """Give one these metadata besides those that it has. Raises CinderRefused; Unavailable: it may have them."""
        answer = await self.answer("POST", f"{_path(kind, resource_id)}/metadata", {"metadata": metadata})
        if not metadata.items() <= read(answer.get("metadata"), dict[str, str]).items():
            raise nonsense(SERVICE, f"the {kind.noun} has other metadata")

    async def act(
        self,
        kind: VolumeKind[FormT],
        resource_id: str,
        action: str,
        said: Any = None,
        *,
        microversion: str = "",
        status: int = 202,
    ) -> None:
        """Ask for an action of one, which a Cinder may be too old for that knows no such `microversion`.

        Raises CinderRefused; Unavailable: it may be done.
        """
        path = f"{_path(kind, resource_id)}/action"
        await self._good("POST", path, {action: said}, statuses=(status, 204), microversion=microversion)

    async def deleted(self, kind: VolumeKind[FormT], resource_id: str) -> bool:
        """Delete one; return whether it was there. Raises CinderRefused; Unavailable: it may be gone."""
        try:
            response = await self._good("DELETE", _path(kind, resource_id), statuses=(200, 202))
        except CinderRefused as error:
            if error.status == 404:
                return False
            raise
        if response.status_code == 200:
            # Says what is left beside it. A page of what stands before Cinder does not.
            left = read(decode(SERVICE, response, dict[str, Any]).get(kind.members), list[kind.form])  # type: ignore[name-defined]
            if any(one.id == resource_id for one in left):
                raise nonsense(SERVICE, f"the {kind.noun} is there after its end")
        return True

    async def answer(
        self, method: str, path: str, body: Any = None, *, statuses: Collection[int] = (200,)
    ) -> dict[str, Any]:
        """Return the JSON of a good answer. Raises CinderRefused, Unavailable."""
        return decode(SERVICE, await self._good(method, path, body, statuses=statuses), dict[str, Any])

    async def _good(
        self, method: str, path: str, body: Any = None, *, statuses: Collection[int] = (200,), microversion: str = ""
    ) -> ServiceAnswer:
        url = f"{self._endpoint or await find_cinder(self._session)}{path}"
        headers = {"OpenStack-API-Version": f"volume {microversion or MICROVERSION}"}
        if self._token is None:
            response = await self._session.as_skep(
                method, url, headers, body, service=SERVICE, as_service=self._as_service
            )
        else:
            response = await self._session.as_user(method, url, self._token, headers, body, service=SERVICE)
        if response.status_code == TOO_OLD and microversion:
            raise CinderRefused(TOO_OLD, f"{SERVICE} does not know microversion {microversion}")
        if response.status_code not in statuses:
            raise self._refused(response)
        return response

    def _one(self, kind: VolumeKind[FormT], answer: dict[str, Any], resource_id: str | None = None) -> FormT:
        found: FormT = read(answer.get(kind.member), kind.form)
        if resource_id is not None and found.id != resource_id:
            raise nonsense(SERVICE, f"the {kind.noun} is another one")
        return found

    def _refused(self, response: ServiceAnswer) -> SkepError:
        """Return what Cinder refuses. Raises Unavailable where it is not Cinder that says so."""
        status = response.status_code
        if status == 401:
            return Unauthenticated("The request you have made requires authentication.")
        if status == TOO_OLD:
            return Unavailable(f"{SERVICE} does not know microversion {MICROVERSION}")
        said = refusal_of(SERVICE, response, dict[str, _Refusal], formed=FAULTS)
        if said is None or FAULTS[status] not in said:
            raise nonsense(SERVICE, "its refusal is not in its own form")
        refusal = CinderRefused(status, said[FAULTS[status]].message)
        if status == 403 and self._token is None:
            return Unavailable(f"{SERVICE} does not let Skep's own user do it: {refusal}")
        return refusal


async def find_cinder(session: ServiceSession) -> str:
    """Return the address of Cinder that the catalogue says. Raises Unavailable where it says none."""
    for one in SERVICE_TYPES[:-1]:
        try:
            return await session.endpoint(one)
        except Unavailable:
            continue
    return await session.endpoint(SERVICE_TYPES[-1])


def read(value: Any, wanted: Any) -> Any:
    """Return a part of an answer as it has to be. Raises Unavailable."""
    try:
        return convert(value, wanted)
    except msgspec.ValidationError as error:
        raise nonsense(SERVICE, str(error)) from error


def _path(kind: VolumeKind[FormT], resource_id: str) -> str:
    return f"/{kind.members}/{urllib.parse.quote(resource_id, safe='')}"


def _has_next(answer: Mapping[str, Any], kind: VolumeKind[FormT]) -> bool:
    links = answer.get(f"{kind.members}_links")
    return isinstance(links, list) and any(isinstance(one, dict) and one.get("rel") == "next" for one in links)
