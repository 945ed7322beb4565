"""Ports that servers get and lose: made or taken, bound, deleted or given back.

What of a server a port is stands on the port from its first moment, in the same request by which the server has it. So
a repeat finds whatever a request before did, also one whose answer was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import structlog

from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import RequestedNetwork
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.answers import nonsense
from skep.neighbours.networks.base import NO_PROVIDERS
from skep.neighbours.networks.neutron.calls import CHANGED, MOST_AT_ONCE, NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.forms import GROUPS, LABEL, PORTS, Label, NeutronPort
from skep.neighbours.networks.neutron.interfaces import ports_of
from skep.neighbours.networks.neutron.resource_requests import (
    has_allocation,
    moved_allocation,
    with_allocation,
    without_allocation,
)

log = structlog.get_logger("skep.neighbours")

DEFAULT_GROUP = "default"

TRIES = 5
"""To change a port that others change meanwhile."""


class PortPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an interface is to be: the server, its host, and the place among its interfaces."""

    instance: InstanceUuid
    project_id: str
    host: str
    zone: str
    position: int
    attempt: int = 0
    """Of the build; 0: it is attached to a server that is there."""
    request: str = ""
    """Of an interface that is attached: what no other request has."""
    security_groups: tuple[str, ...] = ()
    providers: Mapping[str, str] = NO_PROVIDERS
    """By the groups of resources that ports of users ask for, the UUIDs of the providers that serve them."""

    def fields(self, *, made: bool, tag: str | None, profile: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what makes a port the server's."""
        label = self.label(made=made, tag=tag)
        return {
            "device_id": self.instance,
            "device_owner": f"compute:{self.zone}",
            "binding:host_id": self.host,
            "binding:profile": {**(profile or {}), LABEL: msgspec.to_builtins(label)},
        }

    def label(self, *, made: bool, tag: str | None) -> Label:
        """Return what of the server the port is."""
        return Label(
            server=self.instance,
            made=made,
            attempt=self.attempt,
            request=self.request,
            position=self.position,
            tag=tag,
        )


class ServerPorts:
    """Does it in Skep's own name."""

    def __init__(self, skep: NeutronCalls) -> None:
        self._skep = skep
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, name: str) -> asyncio.Lock:
        """Return what one at a time holds of those in this process who change the same."""
        lock = self._turns.get(name)
        if lock is None:
            lock = self._turns[name] = asyncio.Lock()
        return lock

    async def take(self, place: PortPlace, wanted: RequestedNetwork) -> NeutronPort:
        """Make a port for a server, or take a user's. Raises NeutronRefused, Unavailable."""
        if wanted.port_id is not None:
            return await self._take_own(place, wanted.port_id, wanted.tag)
        [made] = await self.make([(place, wanted)])
        return made

    async def make(self, wanted: Sequence[tuple[PortPlace, RequestedNetwork]]) -> list[NeutronPort]:
        """Make ports for one server, many of them by one request; return them in their order.

        Raises NeutronRefused, also for a network whose ports ask for resources of their hosts: nothing was claimed
        for those. Raises Unavailable. Then some may be there: of more than `MOST_AT_ONCE` also when it is refused.
        """
        if not wanted:
            return []
        groups = await self._groups(wanted[0][0])
        new: list[NeutronPort] = []
        for first in range(0, len(wanted), MOST_AT_ONCE):
            new += await self._made(wanted[first : first + MOST_AT_ONCE], groups)
        try:
            check_unasking(new)
        except NeutronRefused:
            for port in new:
                await self._skep.deleted(PORTS, port.id)
            raise
        return new

    async def _made(
        self, wanted: Sequence[tuple[PortPlace, RequestedNetwork]], groups: Sequence[str]
    ) -> list[NeutronPort]:
        """Make ports for one server, all of them or none, in one request."""
        labels = [place.label(made=True, tag=one.tag) for place, one in wanted]
        fields = [_new(place, one, groups) for place, one in wanted]
        try:
            made = _by_label(await self._skep.made_many(PORTS, fields))
            if not made.keys() >= {*labels}:
                raise nonsense(SERVICE, "the new ports are others")
        except Unavailable:
            instance = wanted[0][0].instance
            made = _by_label((await ports_of(self._skep, [instance]))[instance])
            if not made.keys() >= {*labels}:
                raise
            ids = [made[one].id for one in labels]
            log.info("ports found whose making had no answer", instance=instance, ports=ids)
        return [made[one] for one in labels]

    async def _groups(self, place: PortPlace) -> list[str]:
        return [await self._group(place.project_id, one) for one in place.security_groups]

    async def _group(self, project_id: str, name: str) -> str:
        """Return the id of a group that was chosen; the default one may not have been there yet."""
        if name != DEFAULT_GROUP:
            return name
        found = await self._skep.listed(GROUPS, ("project_id", project_id), ("name", name))
        if not found:
            raise NeutronRefused(404, "SecurityGroupNotFound", f"Project {project_id} has no default security group.")
        return found[0].id

    async def _take_own(self, place: PortPlace, port_id: str, tag: str | None) -> NeutronPort:
        def fields(port: NeutronPort) -> dict[str, Any]:
            if port.project_id != place.project_id:
                raise _absent(port_id)
            if port.device_id:
                raise NeutronRefused(409, "PortInUse", f"Port {port.id} is still in use.")
            profile = _served(port, place.host, place.providers)
            return place.fields(made=False, tag=tag, profile=profile)

        try:
            return await self.change(port_id, fields)
        except Unavailable:
            port = await self._skep.shown(PORTS, port_id)
            if port is None or port.label != place.label(made=False, tag=tag) or port.host_id != place.host:
                raise
            return port

    async def change(
        self, port_id: str, fields: Callable[[NeutronPort], dict[str, Any]], *, by: NeutronCalls | None = None
    ) -> NeutronPort:
        """Change a port, whatever else changes of it meanwhile. `fields` may raise what speaks against it.

        `by`: with the rights of a user. Raises NeutronRefused, Unavailable.
        """
        caller = by or self._skep
        async with self.turn(port_id):
            for left in range(TRIES - 1, -1, -1):
                port = await self._skep.shown(PORTS, port_id)
                if port is None:
                    raise _absent(port_id)
                try:
                    return await caller.changed(PORTS, port_id, fields(port), revision=port.revision_number)
                except NeutronRefused as error:
                    if error.status != CHANGED or not left:
                        raise
        raise AssertionError("the last try returned or raised")

    async def bind(self, port: NeutronPort, host: str, providers: Mapping[str, str] = NO_PROVIDERS) -> None:
        """Bind a port of a server to a host; empty: to none. One that is gone, or no more the server's, is left out.

        `providers`: those that serve it there, by the groups that it asks for.
        """
        told = has_allocation(port)
        if (port.host_id or "") == host and (not told or moved_allocation(port, providers) == port.profile):
            return

        def fields(found: NeutronPort) -> dict[str, Any]:
            if found.device_id != port.device_id:
                # It was released after it was listed, and a port that nothing has is bound to no host.
                raise _absent(port.id)
            if not told:
                return {"binding:host_id": host}
            profile = moved_allocation(found, providers) if host else without_allocation(found.profile)
            return {"binding:host_id": host, "binding:profile": profile}

        try:
            if told:
                await self.change(port.id, fields)
                return
            try:
                await self._skep.changed(PORTS, port.id, fields(port), revision=port.revision_number)
            except NeutronRefused as error:
                if error.status != CHANGED:
                    raise
                await self.change(port.id, fields)
        except NeutronRefused as error:
            if error.status != 404:
                raise

    async def adopt(
        self, port: NeutronPort, host: str, attempt: int, providers: Mapping[str, str] = NO_PROVIDERS
    ) -> None:
        """Have a port for an attempt of its server's build, bound to the attempt's host, whose `providers` serve it.

        An empty host: it is bound to none, and served by none, until one is chosen.

        Raises NeutronRefused; Unavailable, too, where the port went meanwhile, or a later attempt has it.
        """
        mine = port.label is not None and port.label.attempt == attempt
        told = has_allocation(port)
        if mine and (port.host_id or "") == host and (not told or _served(port, host, providers) == port.profile):
            return

        def fields(found: NeutronPort) -> dict[str, Any]:
            label = found.label
            if label is None or label.attempt > attempt:
                raise Unavailable(f"port {port.id} is no more this attempt's")
            label = msgspec.structs.replace(label, attempt=attempt)
            profile = _served(found, host, providers) if told else found.profile or {}
            return {
                "binding:host_id": host,
                "binding:profile": {**profile, LABEL: msgspec.to_builtins(label)},
            }

        try:
            await self.change(port.id, fields)
        except NeutronRefused as error:
            if error.status != 404:
                raise
            raise Unavailable(f"port {port.id} went meanwhile") from error

    async def give_up(self, instance: InstanceUuid, port: NeutronPort) -> bool:
        """Delete a port that was made for a server, or give a user's back; return whether it was the server's.

        Raises NeutronRefused, Unavailable.
        """
        if port.label is not None and port.label.made:
            return await self._skep.deleted(PORTS, port.id)
        try:
            await self.change(port.id, lambda found: _given_back(found, instance))
        except NeutronRefused as error:
            if error.status != 404:
                raise
            return False
        return True

    async def give_up_unchanged(self, instance: InstanceUuid, port: NeutronPort) -> bool:
        """Do the same, unless the port changed since it was listed; return whether it is done.

        Raises NeutronRefused, Unavailable.
        """
        try:
            if port.label is not None and port.label.made:
                await self._skep.deleted(PORTS, port.id, revision=port.revision_number)
            else:
                fields = _given_back(port, instance)
                await self._skep.changed(PORTS, port.id, fields, revision=port.revision_number)
        except NeutronRefused as error:
            if error.status not in (404, CHANGED):
                raise
            return error.status == 404
        return True


def _served(port: NeutronPort, host: str, providers: Mapping[str, str]) -> dict[str, Any]:
    """Return the profile of a port that a build has on a host, where one is chosen. Raises as `with_allocation`."""
    return with_allocation(port, providers) if host else without_allocation(port.profile)


def check_unasking(ports: Iterable[NeutronPort]) -> None:
    """See that ports which were made for a server ask for nothing. Raises NeutronRefused (Nova's rule)."""
    for port in ports:
        if port.resource_request:
            text = (
                f"Network {port.network_id} has a QoS policy with a minimum, which only a port that is named can have: "
                "make the port first."
            )
            raise NeutronRefused(400, "NetworkWithMinimumQoS", text)


def _new(place: PortPlace, wanted: RequestedNetwork, groups: Sequence[str]) -> dict[str, Any]:
    """Return what a port is made with."""
    fields: dict[str, Any] = {
        "network_id": wanted.network_id,
        "project_id": place.project_id,
        "admin_state_up": True,
        **place.fields(made=True, tag=wanted.tag),
    }
    if wanted.fixed_ip is not None:
        fields["fixed_ips"] = [{"ip_address": wanted.fixed_ip}]
    if groups:
        fields["security_groups"] = groups
    return fields


def _by_label(ports: Sequence[NeutronPort]) -> dict[Label, NeutronPort]:
    """Return ports by what of their server they are; of several that are the same the first."""
    return {port.label: port for port in reversed(ports) if port.label is not None}


def _given_back(port: NeutronPort, instance: InstanceUuid) -> dict[str, Any]:
    """Return what makes a user's port no server's. Raises NeutronRefused where it is not this server's."""
    if port.label is None or port.device_id != instance:
        raise _absent(port.id)
    profile = {key: value for key, value in without_allocation(port.profile).items() if key != LABEL}
    return {"device_id": "", "device_owner": "", "binding:host_id": "", "binding:profile": profile}


def _absent(port_id: str) -> NeutronRefused:
    return NeutronRefused(404, "PortNotFound", f"Port {port_id} could not be found.")
