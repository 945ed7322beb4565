"""Ports: what may be done to one, as units of work."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from ipaddress import ip_network
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from skep.database import Connection
from skep.database.api import network_rows, port_addresses, port_groups, server_ports
from skep.database.api.network_rows import FLOATING_IPS, NETWORKS, PORTS, Condition
from skep.domain.networking import (
    AUTO_ADDRESSES,
    OF_THE_SERVICE,
    ROUTER_INTERFACE,
    AddressPair,
    FixedIp,
    FloatingIp,
    Network,
    NetworkResource,
    Port,
    Subnet,
)
from skep.domain.subnet_addresses import BadSubnet, IpAddress, address_of, block_of, is_usable
from skep.http.operations import STRING
from skep.http.urls import QueryValues
from skep.standalone.networks import default_groups, subnets, views
from skep.standalone.networks.bodies import NewPort, PortChanges, WantedIp, mac_of
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.queries import FLAG, TEXT, ListFilter, text
from skep.standalone.networks.refusals import AutomaticAddresses, InTheWay, InvalidInput, NotPermitted
from skep.standalone.networks.resources import ResourceApi, changed, check_owner, columns, find, said_of, store

NO_MORE_ADDRESSES = "IpAddressGenerationFailure"
"""Type of the refusal of a port for which a network has no free address."""
MAC_PREFIX = b"\xfa\x16\x3e"
"""Beginning of the hardware addresses that the service makes (Neutron's `base_mac`)."""
MAC_TRIES = 16

VNIC_TYPES = ("normal", "macvtap", "direct", "baremetal", "direct-physical", "virtio-forwarder", "smart-nic", "vdpa")


def create(work: NetworkWork, said: NewPort, base: NetworkResource) -> Port:
    """Make a port with its addresses.

    Raises InvalidInput, Missing, NotPermitted, InTheWay where an address is taken or none is free.
    """
    network = find(work, "Network", NETWORKS, said.network_id)
    if network.external and not network.shared:
        check_owner(work, network, "create_port")
    _check_owned(work, network, said, "create_port")
    _check_device(said.device_owner, "create_port")
    if said.device_owner.startswith("network:"):
        check_owner(work, network, "create_port:device_owner")
    secured = said.port_security_enabled
    port = Port(
        **columns(base),
        network_id=network.id,
        admin_state_up=said.admin_state_up,
        mac_address=_free_mac(work, network) if said.mac_address is UNSET else mac_of(said.mac_address),
        device_id=said.device_id,
        device_owner=said.device_owner,
        binding_host_id=said.host_id or "",
        binding_vnic_type=vnic_type(said.vnic_type),
        binding_profile=said.profile or {},
        port_security_enabled=network.port_security_enabled if secured is UNSET else secured,
        allowed_address_pairs=_pairs(work, said.allowed_address_pairs or ()),
    )
    _check_mac(work, port)
    groups = _groups(work, port, said.security_groups, before=None)
    _check_security(port, groups)
    network_rows.insert(work.connection, PORTS, port)
    port_groups.set_groups(work.connection, port.id, groups)
    give_addresses(work, port, None if said.fixed_ips is UNSET else said.fixed_ips or ())
    return port


def make(
    work: NetworkWork, network: Network, base: NetworkResource, wanted: Sequence[WantedIp] | None, **values: Any
) -> Port:
    """Make a port of the service itself: without security groups, whoever owns the network."""
    port = Port(
        **columns(base),
        network_id=network.id,
        mac_address=_free_mac(work, network),
        port_security_enabled=False,
        **values,
    )
    network_rows.insert(work.connection, PORTS, port)
    give_addresses(work, port, wanted)
    return port


def update(work: NetworkWork, port: Port, changes: PortChanges) -> Port:
    """Change a port.

    Raises as `create`.
    """
    network = network_rows.get(work.connection, NETWORKS, port.network_id)
    assert network is not None
    _check_owned(work, network, changes, "update_port")
    values = said_of(
        changes, "name", "description", "admin_state_up", "device_id", "device_owner", "port_security_enabled"
    )
    _check_device(values.get("device_owner", ""), "update_port")
    if port.device_owner in OF_THE_SERVICE:
        _check_of_service(work, port, changes)
    if changes.host_id is not UNSET:
        values["binding_host_id"] = host = changes.host_id or ""
        values["other_bindings"] = tuple(one for one in port.other_bindings if one.host != host)
    if changes.vnic_type is not UNSET:
        values["binding_vnic_type"] = vnic_type(changes.vnic_type)
    if changes.profile is not UNSET:
        values["binding_profile"] = changes.profile or {}
    if changes.allowed_address_pairs is not UNSET:
        values["allowed_address_pairs"] = _pairs(work, changes.allowed_address_pairs or ())
    if changes.mac_address is not UNSET:
        values["mac_address"] = mac_of(changes.mac_address)
    after = changed(work, port, **values)
    if after.mac_address != port.mac_address:
        if port.binding_host_id:
            raise InTheWay("PortBound", f"Unable to complete operation on port {port.id}, port is already bound.")
        _check_mac(work, after)
    before = port_groups.of_ports(work.connection, [port.id])[port.id]
    groups = _groups(work, after, changes.security_groups, before)
    _check_security(after, groups)
    store(work, PORTS, _of_server(work, port, after))
    if groups != before:
        port_groups.set_groups(work.connection, port.id, groups)
    if changes.fixed_ips is not UNSET:
        _change_addresses(work, after, changes.fixed_ips or ())
    elif after.mac_address != port.mac_address:
        _follow_mac(work, after)
    return after


def delete(work: NetworkWork, port: Port) -> None:
    """Delete a port of a user.

    Raises InTheWay for a port of the service, which goes with what it is for.
    """
    if port.device_owner in OF_THE_SERVICE:
        raise InTheWay(
            "ServicePortInUse",
            f"Port {port.id} cannot be deleted directly via the port API: has device owner {port.device_owner}.",
        )
    remove(work, [port])


def _of_server(work: NetworkWork, port: Port, after: Port) -> Port:
    """Return a changed port of a server, which is told; what its owner gives to another device is not its any more."""
    if port.server is None:
        return after
    server_ports.note(work.connection, work.now, server_ports.those([port.id]))
    return after if after.device_id == port.server else msgspec.structs.replace(after, **server_ports.NO_SERVER)


def remove(work: NetworkWork, found: list[Port]) -> None:
    """Delete ports with their addresses; floating addresses lead nowhere then."""
    server_ports.remove(work.connection, found, work.now)


def loosened(work: NetworkWork, floating: FloatingIp) -> FloatingIp:
    """Return a floating address that leads nowhere."""
    return changed(work, floating, port_id=None, fixed_ip_address=None, router_id=None)


def show(connection: Connection, found: list[Port], caller: NetworkCaller) -> list[views.ShownPort]:
    """Show ports with their addresses and security groups."""
    ids = [port.id for port in found]
    tags = network_rows.tags_of(connection, ids)
    addresses = port_addresses.of_ports(connection, ids)
    groups = port_groups.of_ports(connection, ids)
    return [
        views.port(port, tags[port.id], addresses[port.id], groups[port.id], to_admin=caller.is_admin) for port in found
    ]


def narrow(given: QueryValues) -> tuple[Condition, ...]:
    """Read the filters of ports by their addresses and security groups.

    Raises InvalidInput.
    """
    parts: dict[str, list[str]] = {"subnet_id": [], "ip_address": [], "ip_address_substr": []}
    for value in given.get("fixed_ips", ()):
        name, separator, wanted = value.partition("=")
        if not separator or name not in parts:
            raise InvalidInput(f"fixed_ips: expected {', '.join(f'{one}=' for one in parts)}, got '{value[:80]}'")
        parts[name].append(wanted)
    found: list[Condition] = []
    if any(parts.values()):
        found.append(
            port_addresses.have(
                tuple(parts["subnet_id"]), tuple(parts["ip_address"]), tuple(parts["ip_address_substr"])
            )
        )
    if "security_groups" in given:
        found.append(port_groups.have(tuple(given["security_groups"])))
    return tuple(found)


def give_addresses(
    work: NetworkWork, port: Port, wanted: Sequence[WantedIp] | None, *, had: Collection[WantedIp] = ()
) -> None:
    """Give a port the addresses that are wanted; None: as the subnets of its network give them.

    `had`: those of them that it had before, and may keep.

    Raises InvalidInput, InTheWay, and AutomaticAddresses for one that is not its own where ports make theirs.
    """
    of_network = subnets.of_network(work.connection, port.network_id)
    if wanted is None:
        _give_usual(work, port, of_network)
        return
    if len(wanted) > work.settings.max_fixed_ips_per_port:
        raise InvalidInput(f"exceeded maximum amount of fixed ips per port: {work.settings.max_fixed_ips_per_port}")
    # Those that are named go first: a search would give one of them to another place of the port.
    for position, one in sorted(enumerate(wanted), key=lambda placed: placed[1].ip_address is None):
        if one not in had:
            _check_automatic(port, of_network, one)
        _give(work, port, of_network, one, position)


def _check_automatic(port: Port, of_network: list[Subnet], wanted: WantedIp) -> None:
    """Refuse an address other than the port's own where ports make theirs; routers choose theirs (Neutron's rule).

    Raises AutomaticAddresses, and InvalidInput.
    """
    address = _named(wanted)
    if address is None or port.device_owner == ROUTER_INTERFACE:
        return
    subnet = _subnet_of(port, of_network, wanted.subnet_id, address)
    if subnet.ipv6_address_mode in AUTO_ADDRESSES and address != subnets.automatic_address(subnet, port.mac_address):
        raise AutomaticAddresses(address, subnet.id)


def _named(wanted: WantedIp) -> IpAddress | None:
    """Return the address that is named, if one is. Raises InvalidInput."""
    if wanted.ip_address is None:
        return None
    try:
        return address_of(wanted.ip_address)
    except BadSubnet as error:
        raise InvalidInput(str(error)) from error


def _give(work: NetworkWork, port: Port, of_network: list[Subnet], wanted: WantedIp, position: int) -> None:
    address = _named(wanted)
    subnet = _subnet_of(port, of_network, wanted.subnet_id, address)
    if address is None and subnet.ipv6_address_mode in AUTO_ADDRESSES:
        address = subnets.automatic_address(subnet, port.mac_address)
    if address is None:
        if port_addresses.take_next(work.connection, subnet, port.id, position) is None:
            raise _none_free(port.network_id)
    elif not port_addresses.take(work.connection, subnet, address, port.id, position):
        raise InTheWay("IpAddressAlreadyAllocated", f"IP address {address} already allocated in subnet {subnet.id}")


def _subnet_of(port: Port, of_network: list[Subnet], subnet_id: str | None, address: IpAddress | None) -> Subnet:
    """Return the subnet from which an address comes. Raises InvalidInput."""
    if subnet_id is None and address is None:
        raise InvalidInput("fixed_ips: expected a subnet_id or an ip_address")
    for subnet in of_network:
        if subnet_id not in (None, subnet.id):
            continue
        usable = address is None or is_usable(ip_network(subnet.cidr), address)
        if usable:
            return subnet
        if subnet_id is not None:
            raise InvalidInput(f"IP address {address} is not a valid IP for the specified subnet")
    if subnet_id is not None:
        raise InvalidInput(
            f"failed to create port on network {port.network_id}, because fixed_ips included invalid subnet {subnet_id}"
        )
    raise InvalidInput(f"IP address {address} is not a valid IP for any of the subnets on the specified network")


def give_any(work: NetworkWork, port: Port, candidates: Sequence[Subnet], position: int) -> None:
    """Give a port an address of the first of subnets that has a free one.

    Raises InTheWay where none has.
    """
    given = (port_addresses.take_next(work.connection, one, port.id, position) for one in candidates)
    if next((one for one in given if one is not None), None) is None:
        raise _none_free(port.network_id)


def _give_usual(work: NetworkWork, port: Port, of_network: list[Subnet]) -> None:
    """Give one address of each IP version, and those that the port makes itself."""
    position = 0
    automatic = [one for one in of_network if one.ipv6_address_mode in AUTO_ADDRESSES]
    for version in (4, 6):
        candidates = [one for one in of_network if one.ip_version == version and one not in automatic]
        if candidates:
            give_any(work, port, candidates, position)
            position += 1
    for subnet in automatic:
        _give(work, port, of_network, WantedIp(subnet.id), position)
        position += 1


def _none_free(network_id: str) -> InTheWay:
    return InTheWay(NO_MORE_ADDRESSES, f"No more IP addresses available on network {network_id}.")


def _change_addresses(work: NetworkWork, port: Port, wanted: Sequence[WantedIp]) -> None:
    """Give a port other addresses; one that it has and that is wanted stays."""
    had = port_addresses.of_ports(work.connection, [port.id])[port.id]
    kept, stay = list(wanted), list[WantedIp]()
    left = list(had)
    # As above: an address that is named stays where it is named.
    for position, one in sorted(enumerate(wanted), key=lambda placed: placed[1].ip_address is None):
        same = next((fixed for fixed in left if _is(fixed, one)), None)
        if same is not None:
            left.remove(same)
            kept[position] = WantedIp(same.subnet_id, same.ip_address)
            stay.append(kept[position])
    lost = {fixed.ip_address for fixed in left}
    for floating in network_rows.where(work.connection, FLOATING_IPS, port_id=port.id):
        if floating.fixed_ip_address in lost:
            store(work, FLOATING_IPS, loosened(work, floating))
    port_addresses.give_back(work.connection, [port.id])
    give_addresses(work, port, kept, had=stay)


def add_address(work: NetworkWork, port: Port) -> None:
    """Give a port one more address of its network: of IPv4 where that is free.

    Raises InvalidInput for a port that has no room, InTheWay where none is free.
    """
    had = port_addresses.of_ports(work.connection, [port.id])[port.id]
    most = work.settings.max_fixed_ips_per_port
    if len(had) >= most:
        raise InvalidInput(f"exceeded maximum amount of fixed ips per port: {most}")
    of_network = subnets.of_network(work.connection, port.network_id)
    candidates = [one for one in of_network if one.ipv6_address_mode not in AUTO_ADDRESSES]
    give_any(work, port, sorted(candidates, key=lambda subnet: subnet.ip_version), len(had))
    store(work, PORTS, _of_server(work, port, changed(work, port)))


def remove_address(work: NetworkWork, port: Port, address: str) -> None:
    """Take an address from a port; a floating address that leads to it leads nowhere then."""
    had = port_addresses.of_ports(work.connection, [port.id])[port.id]
    kept = [WantedIp(one.subnet_id, one.ip_address) for one in had if one.ip_address != address]
    _change_addresses(work, port, kept)
    store(work, PORTS, _of_server(work, port, changed(work, port)))


def _follow_mac(work: NetworkWork, port: Port) -> None:
    """Give a port with a new hardware address those that it makes itself of it."""
    had = port_addresses.of_ports(work.connection, [port.id])[port.id]
    of_network = subnets.of_network(work.connection, port.network_id)
    automatic = {subnet.id for subnet in of_network if subnet.ipv6_address_mode in AUTO_ADDRESSES}
    for position, one in enumerate(had):
        if one.subnet_id in automatic:
            port_addresses.give_back(work.connection, [port.id], subnet_id=one.subnet_id)
            _give(work, port, of_network, WantedIp(one.subnet_id), position)


def _is(fixed: FixedIp, wanted: WantedIp) -> bool:
    if wanted.ip_address is None:
        return wanted.subnet_id == fixed.subnet_id
    return wanted.ip_address == fixed.ip_address and wanted.subnet_id in (None, fixed.subnet_id)


def _check_device(owner: str, what: str) -> None:
    """Raise NotPermitted for a port that would count as one of the service: of whose router ever."""
    if owner in OF_THE_SERVICE:
        raise NotPermitted(f"{what}:device_owner '{owner}', which the network service sets itself,")


def _check_of_service(work: NetworkWork, port: Port, changes: PortChanges) -> None:
    """Raise InTheWay for what does not change of a port of the service: its device, and where it is."""
    kept: dict[str, object] = {"device_id": port.device_id, "device_owner": port.device_owner}
    other = {name for name, value in kept.items() if getattr(changes, name) not in (UNSET, value)}
    if changes.fixed_ips is not UNSET:
        before = {one.subnet_id for one in port_addresses.of_ports(work.connection, [port.id])[port.id]}
        wanted = {one.subnet_id for one in changes.fixed_ips or ()}
        if port.device_owner != ROUTER_INTERFACE or wanted != before:
            other.add("fixed_ips")
    if other:
        raise InTheWay(
            "ServicePortInUse",
            f"Port {port.id} has device owner {port.device_owner}: {', '.join(sorted(other))} cannot be changed.",
        )


def _check_owned(work: NetworkWork, network: Network, said: NewPort | PortChanges, what: str) -> None:
    """Raise NotPermitted for what only admins, or the owner of the network, say of a port."""
    for_admins = [("host_id", "binding:host_id"), ("profile", "binding:profile")]
    if isinstance(said, PortChanges):
        for_admins.append(("mac_address", "mac_address"))
    for name, field in for_admins:
        value = getattr(said, name)
        if value is not UNSET and not work.caller.is_admin:
            raise NotPermitted(f"{what}:{field}")
    addresses = said.fixed_ips if isinstance(said.fixed_ips, tuple) else ()
    chosen = [one for one in addresses if one.ip_address is not None]
    guarded = {
        "mac_address": said.mac_address is not UNSET,
        "fixed_ips": bool(chosen) and network.shared,
        "port_security_enabled": said.port_security_enabled is not UNSET,
        "allowed_address_pairs": bool(said.allowed_address_pairs),
    }
    for name, is_said in guarded.items():
        if is_said and not work.caller.owns(network.project_id):
            raise NotPermitted(f"{what}:{name}")


def vnic_type(said: str) -> str:
    """Return the kind of a port, or of a binding. Raises InvalidInput for none that there is."""
    if said not in VNIC_TYPES:
        raise InvalidInput(f"binding:vnic_type: '{said}' is not in {list(VNIC_TYPES)}")
    return said


def _pairs(work: NetworkWork, said: Sequence[AddressPair]) -> tuple[AddressPair, ...]:
    most = work.settings.max_allowed_address_pair
    if len(said) > most:
        raise InvalidInput(f"exceeded maximum amount of allowed address pairs: {most}")
    found = []
    for one in said:
        try:
            address = str(block_of(one.ip_address) if "/" in one.ip_address else address_of(one.ip_address))
        except BadSubnet as error:
            raise InvalidInput(f"'{one.ip_address}' is not a valid IP address or subnet") from error
        found.append(AddressPair(address, mac_address(one.mac_address)))
    if len({(one.ip_address, one.mac_address) for one in found}) < len(found):
        raise InvalidInput("an allowed address pair is there twice")
    return tuple(found)


def mac_address(text_: str) -> str:
    """Return a hardware address in the usual form; empty stays empty.

    Raises InvalidInput.
    """
    if not text_:
        return ""
    try:
        return mac_of(text_)
    except ValueError as error:
        raise InvalidInput(f"'{text_}' is not a valid MAC address") from error


def _free_mac(work: NetworkWork, network: Network) -> str:
    for _ in range(MAC_TRIES):
        made = (MAC_PREFIX + secrets.token_bytes(3)).hex(":")
        if not network_rows.count(work.connection, PORTS, network_id=network.id, mac_address=made):
            return made
    raise InTheWay("MacAddressGenerationFailure", f"Unable to generate unique mac on network {network.id}.")


def _check_mac(work: NetworkWork, port: Port) -> None:
    found = network_rows.where(work.connection, PORTS, network_id=port.network_id, mac_address=port.mac_address)
    if any(other.id != port.id for other in found):
        raise InTheWay(
            "MacAddressInUse",
            f"Unable to complete operation for network {port.network_id}. The mac address {port.mac_address} is in "
            "use.",
        )


def _groups(
    work: NetworkWork, port: Port, said: tuple[str, ...] | UnsetType | None, before: list[str] | None
) -> list[str]:
    """Return the security groups of a port; `before`: those that it has.

    Raises Missing.
    """
    if said is UNSET:
        if before is not None:
            return before
        if not port.port_security_enabled or port.device_owner.startswith("network:"):
            return []
        return [default_groups.ensure(work, port.project_id).id]
    wanted = list(dict.fromkeys(said or ()))
    for group_id in wanted:
        default_groups.usable(work, group_id, port.project_id)
    return wanted


def _check_security(port: Port, groups: list[str]) -> None:
    if port.port_security_enabled:
        return
    if groups:
        raise InTheWay(
            "PortSecurityPortHasSecurityGroup",
            "Port has security group associated. Cannot disable port security or IP address until security group is "
            "removed.",
        )
    if port.allowed_address_pairs:
        raise InTheWay(
            "AddressPairAndPortSecurityRequired",
            "Port Security must be enabled in order to have allowed address pairs on a port.",
        )


def may_change(work: NetworkWork, port: Port) -> bool:
    """Tell whether a port is the caller's to change: his own, or one on his network."""
    if work.caller.owns(port.project_id):
        return True
    network = network_rows.get(work.connection, NETWORKS, port.network_id)
    return network is not None and work.caller.owns(network.project_id)


RESOURCE = ResourceApi(
    noun="Port",
    member="port",
    path="ports",
    kind=PORTS,
    new=NewPort,
    changes=PortChanges,
    shown=views.ShownPort,
    filters={
        **dict.fromkeys(("network_id", "mac_address", "device_id", "device_owner"), TEXT),
        **dict.fromkeys(("admin_state_up", "port_security_enabled"), FLAG),
        "binding:host_id": ListFilter(text, STRING, "binding_host_id"),
        "binding:vnic_type": ListFilter(text, STRING, "binding_vnic_type"),
    },
    own_parameters=("fixed_ips", "security_groups"),
    narrow=narrow,
    may_change=may_change,
    create=create,
    update=update,
    delete=delete,
    show=show,
)
