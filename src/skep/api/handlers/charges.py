"""What actions do to the charge of their server, before they are written into its row.

From then on the charge bears the task: whoever settles charges looks at the row when the task is over, so that neither
a process that dies here nor a row that refuses the action leaves a wrong charge.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import quotas, task_charges
from skep.domain.flavors import Flavor
from skep.domain.instances import Instance, State
from skep.domain.quotas import COUNTED, UNLIMITED


async def bear(request: ApiRequest, instance: Instance) -> None:
    """Note that the action decides what becomes of the charge."""
    services = request.services
    task_id, now = request.context.request_id, services.clock.now()
    await services.database.write(
        partial(task_charges.bear, instance=instance.uuid, task_id=task_id, now=now), intake=True
    )


async def restore(request: ApiRequest, instance: Instance) -> None:
    """Charge a server that is soft-deleted. Raises QuotaExceeded."""
    defaults = await request.services.quotas_of(instance.project_id)
    unit = partial(_restore, request=request, instance=instance, defaults=defaults)
    await request.services.database.write(unit, intake=True)


async def resize(request: ApiRequest, instance: Instance, flavor: Flavor) -> None:
    """Charge a server for the larger of its flavor and the one that it is to get. Raises QuotaExceeded."""
    defaults = await request.services.quotas_of(instance.project_id)
    unit = partial(_resize, request=request, instance=instance, flavor=flavor, defaults=defaults)
    await request.services.database.write(unit, intake=True)


async def refused(request: ApiRequest, instance: Instance) -> None:
    """Have the charge settled by what the server is, soon: its cell has refused the action."""
    unit = partial(task_charges.hurry, instance=instance.uuid, task_id=request.context.request_id)
    await request.services.database.write(unit, intake=True)


async def restore_anyhow(request: ApiRequest, instance: Instance) -> None:
    """Charge a server that is soft-deleted, if it is, whatever the limits are: an administrator says what it is."""
    if instance.state is State.SOFT_DELETED:
        unlimited = dict.fromkeys(COUNTED, UNLIMITED)
        unit = partial(_charge, request=request, instance=instance, limits=unlimited, user_limits=None)
        await request.services.database.write(unit, intake=True)


def _restore(connection: Connection, request: ApiRequest, instance: Instance, defaults: Mapping[str, int]) -> None:
    limits, of_user = _limits(connection, instance, defaults)
    _charge(connection, request, instance, limits, of_user)


def _resize(
    connection: Connection, request: ApiRequest, instance: Instance, flavor: Flavor, defaults: Mapping[str, int]
) -> None:
    task_id, now = request.context.request_id, request.services.clock.now()
    limits, of_user = _limits(connection, instance, defaults)
    task_charges.charge_larger(connection, instance, flavor, task_id, now, limits, user_limits=of_user)


def _limits(
    connection: Connection, instance: Instance, defaults: Mapping[str, int]
) -> tuple[Mapping[str, int], Mapping[str, int] | None]:
    """Return the limits of a server's project, and those of its user where some were set."""
    project, user = instance.project_id, instance.user_id
    of_user = None
    if quotas.has_user_limits(connection, project, user):
        of_user = quotas.limits(connection, project, user, defaults=defaults)
    return quotas.limits(connection, project, defaults=defaults), of_user


def _charge(
    connection: Connection,
    request: ApiRequest,
    instance: Instance,
    limits: Mapping[str, int],
    user_limits: Mapping[str, int] | None,
) -> None:
    now = request.services.clock.now()
    task_charges.charge_again(connection, instance, request.context.request_id, now, limits, user_limits=user_limits)
