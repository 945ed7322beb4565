"""Namespaces of other services: which there are, and what their states hold."""

from __future__ import annotations

from functools import partial

import structlog
from msgspec.structs import replace

from skep.admin.answers import AnsweredNamespace, DeletedNamespace, ListedNamespaces
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import AdminServices
from skep.database.api import namespaces
from skep.domain.errors import BadRequest, NotFound, Unavailable
from skep.domain.namespaces import Namespace, Schema, is_name, namespace_fault
from skep.messages.to_scheduler import ListNamespaces
from skep.messages.to_super_conductor import OperatorStateChanged
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR

log = structlog.get_logger("skep.admin")


@operation()
async def index(request: AdminRequest) -> ListedNamespaces:
    """Answer which namespaces the host states have, with the number of their records, and which say nothing."""
    services = request.services
    reply = await services.transport.call(SCHEDULER, ListNamespaces())
    registered = {one.name for one in await services.database.read(namespaces.every)}
    counts = dict.fromkeys(registered, 0) | reply.namespaces
    return {
        "namespaces": [
            {"name": name, "records": count, "registered": name in registered} for name, count in sorted(counts.items())
        ],
        "quarantined": [
            {
                "namespace": one.namespace,
                "key": one.key,
                "generation": one.generation,
                "reason": one.reason,
                "seconds": one.since,
            }
            for one in reply.quarantined
        ],
    }


@operation()
async def show(request: AdminRequest) -> AnsweredNamespace:
    """Answer one namespace with its schema."""
    return {"namespace": await named(request)}


@takes(Schema)
async def put(request: AdminRequest, schema: Schema) -> AnsweredNamespace:
    """Register a namespace, or change its schema so that no stored state breaks it."""
    services = request.services
    wanted = Namespace(name=request.params["name"], schema=schema)
    if (fault := namespace_fault(wanted.name, wanted.schema)) is not None:
        raise BadRequest(f"{fault}.")
    now = services.clock.now()
    new = await services.database.write(partial(namespaces.put, wanted=wanted, now=now), intake=True)
    await publish(services)
    log.info("namespace registered", namespace=wanted.name, new=new, user=request.context.user_id)
    return {"namespace": wanted}


@operation()
async def delete(request: AdminRequest) -> DeletedNamespace:
    """Remove a namespace with its states and credentials."""
    name = request.params["name"]
    if not is_name(name) or not await request.services.database.write(
        partial(namespaces.remove, name=name), intake=True
    ):
        raise _missing(name)
    await publish(request.services, removed=(name,))
    log.info("namespace removed", namespace=name, user=request.context.user_id)
    return {"namespace": {"name": name, "deleted": True}}


async def named(request: AdminRequest) -> Namespace:
    """Return the namespace of the path. Raises NotFound when there is none for this caller."""
    name = request.params["name"]
    found = None
    if is_name(name) and (request.scope is None or request.scope.name == name):
        found = await request.services.database.read(partial(namespaces.get, name=name))
    if found is None:
        raise _missing(name)
    return found


async def publish(services: AdminServices, *, removed: tuple[str, ...] = ()) -> None:
    """Tell the schedulers what the rows say; one that is away hears of it later, from the super conductor."""
    wanted = replace(await services.database.read(namespaces.published), removed=removed)
    try:
        await services.transport.call(SCHEDULER, wanted)
    except Unavailable as error:
        log.warning("namespaces not sent to schedulers", error=str(error))
    await services.transport.cast(SUPER_CONDUCTOR, OperatorStateChanged())


def _missing(name: str) -> NotFound:
    return NotFound(f"There is no namespace {name[:80]!r}.")
