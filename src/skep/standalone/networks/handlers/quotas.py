"""Quotas of projects: shown to their members, changed by admins."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from skep.database.api import network_rows
from skep.domain.decoding import convert
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import Read, operation, takes
from skep.standalone.networks import quotas
from skep.standalone.networks.callers import NetworkCaller, NetworksApi, NetworkWork, reader, writer
from skep.standalone.networks.refusals import InvalidInput, NotPermitted
from skep.standalone.networks.resources import look, run
from skep.standalone.networks.settings import UNLIMITED

Limit = Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class QuotaChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New limits of a project; -1: none."""

    network: Limit | UnsetType = UNSET
    subnet: Limit | UnsetType = UNSET
    port: Limit | UnsetType = UNSET
    security_group: Limit | UnsetType = UNSET
    security_group_rule: Limit | UnsetType = UNSET
    router: Limit | UnsetType = UNSET
    floatingip: Limit | UnsetType = UNSET
    check_limit: bool | None = None
    """Whether a limit below what the project has is refused."""
    force: bool | None = None
    """The contrary (Neutron's `quota-check-limit-default`)."""


class QuotaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a change."""

    quota: QuotaChanges


class ShownQuota(TypedDict):
    """Limits of a project."""

    network: int
    subnet: int
    port: int
    security_group: int
    security_group_rule: int
    router: int
    floatingip: int


class QuotaOfProject(ShownQuota):
    """Limits of a project, in a list."""

    project_id: str
    tenant_id: str


class ListedQuotas(TypedDict):
    """The quotas that were set."""

    quotas: list[QuotaOfProject]


class OneQuota(TypedDict):
    """The quotas of one project."""

    quota: ShownQuota


class ShownUse(TypedDict):
    """A limit, and how much of it is used."""

    limit: int
    used: int
    reserved: int


class ShownUses(TypedDict):
    """Limits of a project, and how much of them is used."""

    network: ShownUse
    subnet: ShownUse
    port: ShownUse
    security_group: ShownUse
    security_group_rule: ShownUse
    router: ShownUse
    floatingip: ShownUse


class UsedQuota(TypedDict):
    """The quotas of one project with their use."""

    quota: ShownUses


@operation()
async def list_(api: NetworksApi, request: Request) -> JsonResponse[ListedQuotas]:
    """List the quotas of the projects for which an admin set some."""
    caller = await reader(api, request)
    if not caller.is_admin:
        raise NotPermitted("get_quotas")

    def unit(work: NetworkWork) -> list[QuotaOfProject]:
        return [
            {**_shown(quotas.limits(work, project)), "project_id": project, "tenant_id": project}
            for project in network_rows.projects_with_quotas(work.connection)
        ]

    return json_response({"quotas": await look(api, caller, unit)})


@operation()
async def show(api: NetworksApi, request: Request) -> JsonResponse[OneQuota]:
    """Show the quotas of a project."""
    caller, project = await _reader_of(api, request)
    return json_response({"quota": _shown(await look(api, caller, lambda work: quotas.limits(work, project)))})


@operation()
async def defaults(api: NetworksApi, request: Request) -> JsonResponse[OneQuota]:
    """Show the quotas of projects for which an admin set none."""
    caller, _ = await _reader_of(api, request)
    return json_response({"quota": _shown(await look(api, caller, lambda work: quotas.limits(work, "")))})


@operation()
async def details(api: NetworksApi, request: Request) -> JsonResponse[UsedQuota]:
    """Show the quotas of a project and what it has."""
    caller, project = await _reader_of(api, request)

    def unit(work: NetworkWork) -> ShownUses:
        limits = quotas.limits(work, project)

        uses: dict[str, ShownUse] = {
            name: {"limit": limit, "used": quotas.used(work, name, project), "reserved": 0}
            for name, limit in limits.items()
        }
        return convert(uses, ShownUses)

    return json_response({"quota": await look(api, caller, unit)})


def _shown(limits: dict[str, int]) -> ShownQuota:
    return convert(limits, ShownQuota)


@takes(QuotaBody)
async def update(api: NetworksApi, request: Request, read: Read[QuotaBody]) -> JsonResponse[OneQuota]:
    """Set quotas of a project."""
    caller = await _admin(api, request, "update_quota")
    project = request.path_params["project_id"]
    said = (await read()).quota
    limits = {name: value for name in quotas.COUNTED if (value := getattr(said, name)) is not UNSET}

    def unit(work: NetworkWork) -> dict[str, int]:
        if said.check_limit and not said.force:
            _check_used(work, project, limits)
        network_rows.set_quotas(work.connection, project, limits)
        return quotas.limits(work, project)

    return json_response({"quota": _shown(await run(api, caller, unit))})


def _check_used(work: NetworkWork, project: str, limits: dict[str, int]) -> None:
    """Raise InvalidInput for a limit below what the project has."""
    for name, limit in limits.items():
        used = quotas.used(work, name, project)
        if UNLIMITED < limit < used:
            raise InvalidInput(f"{name}: the project has {used}, which is more than {limit}")


@operation(status=204)
async def delete(api: NetworksApi, request: Request) -> Response:
    """Give a project the usual quotas again."""
    caller = await _admin(api, request, "delete_quota")
    project = request.path_params["project_id"]
    await run(api, caller, lambda work: network_rows.set_quotas(work.connection, project, None))
    return Response(status_code=204)


async def _admin(api: NetworksApi, request: Request, what: str) -> NetworkCaller:
    caller = await writer(api, request)
    if not caller.is_admin:
        raise NotPermitted(what)
    return caller


async def _reader_of(api: NetworksApi, request: Request) -> tuple[NetworkCaller, str]:
    caller = await reader(api, request)
    project = request.path_params["project_id"]
    if not caller.owns(project):
        raise NotPermitted("get_quota")
    return caller, project
