"""Bindings of ports to hosts (Neutron's extension `binding-extended`), as units of work. Only admins have them.

A port has one active binding, which is its `binding:host_id`, and any number of inactive ones: a host that is to have
its server soon is made ready by one. To activate it makes the one before it inactive.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from skep.database.api import network_changes
from skep.database.api.network_rows import PORTS
from skep.domain.host_networks import subject_of_host
from skep.domain.networking import OF_THE_SERVICE, Port, PortBinding
from skep.standalone.networks.bodies import BindingChanges, NewBinding
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.ports import vnic_type
from skep.standalone.networks.refusals import InTheWay, Missing, NotPermitted
from skep.standalone.networks.resources import changed, find, store
from skep.standalone.networks.views import ShownBinding, binding

ACTIVE: Literal["ACTIVE"] = "ACTIVE"
INACTIVE: Literal["INACTIVE"] = "INACTIVE"


def port_of(work: NetworkWork, port_id: str, operation: str) -> Port:
    """Return a port whose bindings the caller asks for.

    Raises Missing where he sees no such port, NotPermitted where he is no admin.
    """
    port = find(work, "Port", PORTS, port_id)
    if not work.caller.is_admin:
        raise NotPermitted(operation)
    return port


def shown(port: Port) -> list[ShownBinding]:
    """Show all bindings of a port, the active one first."""
    inactive = [binding(port, one, INACTIVE) for one in others(port)]
    return [binding(port, active(port), ACTIVE), *inactive] if port.binding_host_id else inactive


def show(port: Port, host: str) -> ShownBinding:
    """Show the binding to a host. Raises Missing."""
    if port.binding_host_id == host:
        return binding(port, active(port), ACTIVE)
    return binding(port, _inactive(port, host), INACTIVE)


def create(work: NetworkWork, port: Port, said: NewBinding) -> ShownBinding:
    """Bind a port to one more host.

    Raises InTheWay where it is bound there, and for a port of the service itself; InvalidInput.
    """
    if port.device_owner in OF_THE_SERVICE:
        raise InTheWay(
            "UnsupportedPortDeviceOwner",
            f"Operation create_port_binding is not supported for device_owner {port.device_owner} on port {port.id}.",
        )
    if said.host in {port.binding_host_id, *(one.host for one in others(port))}:
        raise InTheWay("PortBindingAlreadyExists", f"Binding for port {port.id} on host {said.host} already exists.")
    made = PortBinding(host=said.host, vnic_type=vnic_type(said.vnic_type), profile=said.profile or {})
    network_changes.note(work.connection, [subject_of_host(said.host)], work.now)
    return binding(_stored(work, port, other_bindings=(*others(port), made)), made, INACTIVE)


def update(work: NetworkWork, port: Port, host: str, said: BindingChanges) -> ShownBinding:
    """Change a binding. Raises Missing, InvalidInput."""
    is_active = port.binding_host_id == host
    before = active(port) if is_active else _inactive(port, host)
    after = replace(
        before,
        vnic_type=before.vnic_type if said.vnic_type is UNSET else vnic_type(said.vnic_type),
        profile=before.profile if said.profile is UNSET else said.profile or {},
    )
    if is_active:
        port = _stored(work, port, binding_vnic_type=after.vnic_type, binding_profile=after.profile)
        return binding(port, after, ACTIVE)
    port = _stored(work, port, other_bindings=tuple(after if one.host == host else one for one in others(port)))
    return binding(port, after, INACTIVE)


def delete(work: NetworkWork, port: Port, host: str) -> None:
    """Take the binding to a host from a port; without the active one it is bound to none. Raises Missing."""
    if port.binding_host_id == host:
        _stored(work, port, binding_host_id="")
        return
    gone = _inactive(port, host)
    _stored(work, port, other_bindings=tuple(one for one in others(port) if one != gone))


def activate(work: NetworkWork, port: Port, host: str) -> ShownBinding:
    """Give a port to a host to which it is bound; the host that has it keeps an inactive binding.

    Raises Missing, InTheWay where the host has it.
    """
    if port.binding_host_id == host:
        raise InTheWay("PortBindingAlreadyActive", f"Binding for port {port.id} on host {host} is already active.")
    new = _inactive(port, host)
    left = tuple(one for one in others(port) if one != new)
    before = (active(port),) if port.binding_host_id else ()
    values = {"binding_host_id": new.host, "binding_vnic_type": new.vnic_type, "binding_profile": new.profile}
    return binding(_stored(work, port, **values, other_bindings=(*before, *left)), new, ACTIVE)


def active(port: Port) -> PortBinding:
    """Return the active binding of a port."""
    return PortBinding(host=port.binding_host_id, vnic_type=port.binding_vnic_type, profile=port.binding_profile)


def others(port: Port) -> list[PortBinding]:
    """Return the inactive ones. A release that does not know them may have given the port to one of their hosts."""
    return [one for one in port.other_bindings if one.host != port.binding_host_id]


def _inactive(port: Port, host: str) -> PortBinding:
    found = next((one for one in others(port) if one.host == host), None)
    if found is None:
        raise Missing("Port binding", f"for port {port.id} on host {host}")
    return found


def _stored(work: NetworkWork, port: Port, **values: object) -> Port:
    return store(work, PORTS, changed(work, port, **values))
