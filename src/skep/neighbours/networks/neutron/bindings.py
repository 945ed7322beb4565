"""Ports of servers that are bound to two hosts for a while (Neutron's extension `binding-extended`).

A server that goes on while it moves has its ports bound to both hosts: one binding is active, the other waits for the
switch. Which host has the server is for its row to say; here one binding is made the active one, and others go.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skep.domain.errors import Unavailable
from skep.domain.vifs import VifBeside
from skep.neighbours.networks.base import NO_PROVIDERS
from skep.neighbours.networks.neutron.calls import NeutronCalls, NeutronRefused, read
from skep.neighbours.networks.neutron.forms import UNBOUND, NeutronPort, details_of
from skep.neighbours.networks.neutron.ports import ServerPorts
from skep.neighbours.networks.neutron.resource_requests import has_allocation, moved_allocation

EXTENSION = "binding-extended"
ACTIVE = "ACTIVE"
FAILED = "binding_failed"
"""How a port is plugged on a host on which no mechanism of Neutron's can do it."""


class NeutronBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding of a port, as far as Skep reads it."""

    host: str
    status: str = ACTIVE
    vif_type: str = UNBOUND
    vif_details: dict[str, Any] | None = None


class PortBindings:
    """Binds ports to hosts where a port may be bound to more than one."""

    def __init__(self, skep: NeutronCalls, ports: ServerPorts) -> None:
        self._skep = skep
        self._ports = ports
        self._are_many = False

    async def are_many(self) -> bool:
        """Tell whether this Neutron has the extension; one that has it is not asked again.

        Raises NeutronRefused, Unavailable.
        """
        if not self._are_many:
            try:
                await self._skep.answer("GET", f"/extensions/{EXTENSION}")
            except NeutronRefused as error:
                if error.status != 404:
                    raise
                return False
            self._are_many = True
        return True

    async def bind(
        self, port: NeutronPort, host: str, beside: str | None, providers: Mapping[str, str] = NO_PROVIDERS
    ) -> None:
        """Bind a port to a host, and to no other but `beside`. One that is gone is left out.

        `providers`: as `ServerPorts.bind`. Raises NeutronRefused, Unavailable.
        """
        found = await self._of(port)
        if found is None:
            return
        there = {one.host: one for one in found if one.host}
        active = next((one for one in there.values() if one.status == ACTIVE), None)
        if host not in there:
            await self._ports.bind(port, host, providers)
            # What was the active one is this one now.
            there.pop("" if active is None else active.host, None)
        elif active is None or active.host != host:
            await self._activate(port, host)
        if host in there and has_allocation(port):
            await self._ports.bind(port, host, providers)
        for one in there:
            if one not in (host, beside):
                await self._delete(port, one)

    async def bind_beside(
        self, port: NeutronPort, host: str, providers: Mapping[str, str] = NO_PROVIDERS
    ) -> str | None:
        """Bind a port to one more host; return why not where that is refused. One that is gone is left out.

        `providers`: those that serve it there, by the groups that it asks for. Raises Unavailable.
        """
        profile = moved_allocation(port, providers) if has_allocation(port) else port.profile or {}
        said = {"host": host, "vnic_type": port.vnic_type, "profile": profile}
        try:
            answer = await self._skep.answer("POST", _path(port), {"binding": said}, status=201)
            made: NeutronBinding | None = read(answer.get("binding"), NeutronBinding)
        except NeutronRefused as error:
            # It may be there: an answer was lost.
            found = await self._of(port)
            made = next((one for one in found or () if one.host == host), None)
            if found is None:
                return None
            if made is None:
                return f"port {port.id} cannot be bound to host {host}: {error}"
        if made is not None and made.vif_type == FAILED:
            return f"port {port.id} cannot be bound to host {host}: {FAILED}"
        return None

    async def plugged(self, port: NeutronPort, host: str) -> VifBeside | None:
        """Return how a port is plugged on a host to which it is bound; None: it is not bound there.

        Raises NeutronRefused, Unavailable.
        """
        found = next((one for one in await self._of(port) or () if one.host == host), None)
        if found is None:
            return None
        return VifBeside(host=host, type=found.vif_type, details=details_of(found.vif_details))

    async def hosts(self, port: NeutronPort) -> tuple[str, ...]:
        """Return to which hosts a port is bound, first the one that has it; empty: none.

        Raises NeutronRefused, Unavailable.
        """
        found = await self._of(port) or ()
        active = next((one.host for one in found if one.status == ACTIVE), "")
        return (active, *(one.host for one in found if one.status != ACTIVE and one.host))

    async def clear(self, port: NeutronPort) -> bool:
        """Take the bindings to other hosts than its own from a port; return whether there were any.

        Raises NeutronRefused, Unavailable.
        """
        others = [one.host for one in await self._of(port) or () if one.status != ACTIVE and one.host]
        for host in others:
            await self._delete(port, host)
        return bool(others)

    async def _of(self, port: NeutronPort) -> Sequence[NeutronBinding] | None:
        """Return the bindings of a port; None where it is gone."""
        try:
            answer = await self._skep.answer("GET", _path(port))
        except NeutronRefused as error:
            if error.status != 404:
                raise
            return None
        found: list[NeutronBinding] = read(answer.get("bindings"), list[NeutronBinding])
        return found

    async def _activate(self, port: NeutronPort, host: str) -> None:
        try:
            await self._skep.answer("PUT", _path(port, host, "activate"))
        except NeutronRefused as error:
            # Another one did it, or the binding went: it is looked at anew before any other is deleted.
            raise Unavailable(f"port {port.id} is not given to host {host} yet: {error}") from error

    async def _delete(self, port: NeutronPort, host: str) -> None:
        await self._skep.removed(_path(port, host))


def _path(port: NeutronPort, *below: str) -> str:
    return "/".join(["/ports", port.id, "bindings", *(urllib.parse.quote(one, safe="") for one in below)])
