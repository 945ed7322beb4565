"""Security groups and their rules: what may be done to them, as units of work."""

from __future__ import annotations

from collections import defaultdict
from ipaddress import ip_interface

from msgspec import UNSET

from skep.database import Connection
from skep.database.api import network_rows, port_groups, server_ports
from skep.database.api.network_rows import SECURITY_GROUP_RULES, SECURITY_GROUPS
from skep.domain.networking import NetworkResource, SecurityGroup, SecurityGroupRule
from skep.domain.subnet_addresses import BadSubnet, block_of
from skep.standalone.networks import default_groups, quotas, views
from skep.standalone.networks.bodies import (
    NewSecurityGroup,
    NewSecurityGroupRule,
    ResourceChanges,
    SecurityGroupChanges,
)
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.queries import FLAG, NUMBER, TEXT
from skep.standalone.networks.refusals import InTheWay, InvalidInput
from skep.standalone.networks.resources import First, ResourceApi, changed, check_owner, columns, find, said_of, store

WITH_PORTS = frozenset({"tcp", "udp", "dccp", "sctp", "udplite", "6", "17", "33", "132", "136"})
"""Protocols whose ranges are ports; those of ICMP are a type and a code."""
ICMP = frozenset({"icmp", "icmpv6", "ipv6-icmp", "1", "58"})
OF_IPV6 = frozenset({"icmpv6", "ipv6-icmp", "ipv6-encap", "ipv6-frag", "ipv6-nonxt", "ipv6-opts", "ipv6-route", "58"})
PROTOCOLS = (
    WITH_PORTS
    | ICMP
    | OF_IPV6
    | frozenset(
        "ah dccp egp esp gre igmp ipip ospf pgm rsvp vrrp".split()  # names of IANA's registry
    )
)


def create_group(work: NetworkWork, said: NewSecurityGroup, base: NetworkResource) -> SecurityGroup:
    """Make a group from which everything goes out."""
    default_groups.ensure(work, base.project_id)
    if said.name == default_groups.NAME:
        raise _only_one_default()
    quotas.check(work, "security_group_rule", base.project_id, more=2)
    group = SecurityGroup(**columns(base), stateful=said.stateful)
    network_rows.insert(work.connection, SECURITY_GROUPS, group)
    default_groups.open_outwards(work, group)
    return group


def update_group(work: NetworkWork, group: SecurityGroup, changes: SecurityGroupChanges) -> SecurityGroup:
    """Change a group.

    Raises InTheWay for the name of the default one.
    """
    if group.is_default and changes.name not in (UNSET, group.name):
        raise InTheWay("SecurityGroupCannotUpdateDefault", "Updating default security group not allowed.")
    if not group.is_default and changes.name == default_groups.NAME:
        raise _only_one_default()
    if changes.stateful not in (UNSET, group.stateful) and port_groups.ports_with(work.connection, group.id):
        raise _in_use(group)
    after = changed(work, group, **said_of(changes, "name", "description", "stateful"))
    if after.name != group.name:
        server_ports.note(work.connection, work.now, port_groups.have((group.id,)))
    return store(work, SECURITY_GROUPS, after)


def delete_group(work: NetworkWork, group: SecurityGroup) -> None:
    """Delete a group with its rules, and those of other groups that let its ports in.

    Raises InTheWay while ports have it, and for a project's default one.
    """
    if group.is_default and not work.caller.is_admin:
        raise InTheWay("SecurityGroupCannotRemoveDefault", "Insufficient rights for removing default security group.")
    if port_groups.ports_with(work.connection, group.id):
        raise _in_use(group)
    for column in ("security_group_id", "remote_group_id"):
        rules = network_rows.where(work.connection, SECURITY_GROUP_RULES, **{column: group.id})
        network_rows.delete(work.connection, SECURITY_GROUP_RULES, [rule.id for rule in rules])
    network_rows.delete(work.connection, SECURITY_GROUPS, [group.id])


def _only_one_default() -> InTheWay:
    return InTheWay("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")


def _in_use(group: SecurityGroup) -> InTheWay:
    return InTheWay("SecurityGroupInUse", f"Security Group {group.id} in use.")


def show_groups(
    connection: Connection, found: list[SecurityGroup], caller: NetworkCaller
) -> list[views.ShownSecurityGroup]:
    """Show groups with their rules."""
    ids = [group.id for group in found]
    tags = network_rows.tags_of(connection, ids)
    rules: defaultdict[str, list[views.ShownSecurityGroupRule]] = defaultdict(list)
    for some in network_rows.portions(ids):
        for shown in show_rules(
            connection, network_rows.where(connection, SECURITY_GROUP_RULES, security_group_id=some), caller
        ):
            rules[shown.security_group_id].append(shown)
    return [views.security_group(group, tags[group.id], rules[group.id]) for group in found]


def create_rule(work: NetworkWork, said: NewSecurityGroupRule, base: NetworkResource) -> SecurityGroupRule:
    """Make a rule of a group of the caller's.

    Raises InvalidInput, Missing, NotPermitted, InTheWay where the group has such a rule.
    """
    group = find(work, "Security group", SECURITY_GROUPS, said.security_group_id)
    check_owner(work, group, "create_security_group_rule")
    if said.remote_group_id is not None:
        default_groups.usable(work, said.remote_group_id, group.project_id)
    rule = SecurityGroupRule(
        **columns(base),
        security_group_id=group.id,
        direction=said.direction,
        ethertype=said.ethertype,
        protocol=_protocol(said),
        port_range_min=said.port_range_min,
        port_range_max=said.port_range_max,
        remote_ip_prefix=_prefix(said),
        remote_group_id=said.remote_group_id,
    )
    _check_range(rule)
    for other in network_rows.where(work.connection, SECURITY_GROUP_RULES, security_group_id=group.id):
        if _means(other) == _means(rule):
            raise InTheWay("SecurityGroupRuleExists", f"Security group rule already exists. Rule id is {other.id}.")
    network_rows.insert(work.connection, SECURITY_GROUP_RULES, rule)
    return rule


def update_rule(work: NetworkWork, rule: SecurityGroupRule, changes: ResourceChanges) -> SecurityGroupRule:
    """Change what is said of a rule, never what it lets through."""
    return store(work, SECURITY_GROUP_RULES, changed(work, rule, **said_of(changes, "name", "description")))


def delete_rule(work: NetworkWork, rule: SecurityGroupRule) -> None:
    """Delete a rule."""
    network_rows.delete(work.connection, SECURITY_GROUP_RULES, [rule.id])


def show_rules(
    connection: Connection, found: list[SecurityGroupRule], _caller: NetworkCaller
) -> list[views.ShownSecurityGroupRule]:
    """Show rules."""
    tags = network_rows.tags_of(connection, [rule.id for rule in found])
    return [views.security_group_rule(rule, tags[rule.id]) for rule in found]


def _means(rule: SecurityGroupRule) -> tuple[object, ...]:
    """Return what a rule lets through."""
    return (
        rule.direction,
        rule.ethertype,
        rule.protocol,
        rule.port_range_min,
        rule.port_range_max,
        None if rule.remote_ip_prefix is None else block_of(rule.remote_ip_prefix),
        rule.remote_group_id,
    )


def _protocol(said: NewSecurityGroupRule) -> str | None:
    if said.protocol is None or said.protocol in ("any", "0", 0):
        return None
    name = str(said.protocol).lower()
    is_number = name.isascii() and name.isdigit() and len(name) <= 3 and int(name) <= 255
    if not is_number and name not in PROTOCOLS:
        raise InvalidInput(
            f"protocol: '{said.protocol}' is neither a number from 0 to 255 nor one of {sorted(PROTOCOLS)}"
        )
    if name in OF_IPV6 and said.ethertype != "IPv6":
        raise InvalidInput(f"protocol: '{said.protocol}' is of IPv6, the ethertype is {said.ethertype}")
    return name


def _prefix(said: NewSecurityGroupRule) -> str | None:
    """Return the addresses of a rule as Neutron keeps them: with the bits behind the prefix."""
    if said.remote_ip_prefix is None:
        return None
    if said.remote_group_id is not None:
        raise InvalidInput("only remote_ip_prefix or remote_group_id may be provided")
    try:
        prefix = block_of(said.remote_ip_prefix)
    except BadSubnet as error:
        raise InvalidInput(f"'{said.remote_ip_prefix}' is not a valid CIDR") from error
    if f"IPv{prefix.version}" != said.ethertype:
        raise InvalidInput(f"Conflicting value ethertype {said.ethertype} for CIDR {prefix} (remote_ip_prefix)")
    return str(ip_interface(said.remote_ip_prefix))


def _check_range(rule: SecurityGroupRule) -> None:
    """Raise InvalidInput for a range that the protocol does not have."""
    least, most = rule.port_range_min, rule.port_range_max
    if least is None and most is None:
        return
    if rule.protocol in ICMP:
        _check_icmp(least, most)
        return
    if rule.protocol not in WITH_PORTS:
        raise InvalidInput(f"port_range_min and port_range_max: the protocol '{rule.protocol or 'any'}' has no ports")
    for port in (least, most):
        if port is not None and not 1 <= port <= 65_535:
            raise InvalidInput(f"Invalid value for port {port}: expected 1 to 65535")
    if least is None or most is None or least > most:
        raise InvalidInput("port_range_min must be <= port_range_max, and both are expected")


def _check_icmp(kind: int | None, code: int | None) -> None:
    """Raise InvalidInput for what is no type and no code of ICMP."""
    for name, field, value in (("type", "port_range_min", kind), ("code", "port_range_max", code)):
        if value is not None and not 0 <= value <= 255:
            raise InvalidInput(f"Invalid value for ICMP {name} ({field}) {value}: expected 0 to 255")
    if kind is None:
        raise InvalidInput(f"ICMP code (port-range-max) {code} is provided but ICMP type (port-range-min) is missing")


GROUPS = ResourceApi(
    noun="Security group",
    member="security_group",
    path="security-groups",
    kind=SECURITY_GROUPS,
    new=NewSecurityGroup,
    changes=SecurityGroupChanges,
    shown=views.ShownSecurityGroup,
    filters={"stateful": FLAG},
    first=First(default_groups.is_there, lambda work: default_groups.ensure(work, work.caller.project_id)),
    create=create_group,
    update=update_group,
    delete=delete_group,
    show=show_groups,
)

RULES = ResourceApi(
    noun="Security group rule",
    member="security_group_rule",
    path="security-group-rules",
    kind=SECURITY_GROUP_RULES,
    new=NewSecurityGroupRule,
    changes=ResourceChanges,
    shown=views.ShownSecurityGroupRule,
    filters={
        **dict.fromkeys(
            ("security_group_id", "direction", "ethertype", "protocol", "remote_ip_prefix", "remote_group_id"), TEXT
        ),
        **dict.fromkeys(("port_range_min", "port_range_max"), NUMBER),
    },
    create=create_rule,
    update=update_rule,
    delete=delete_rule,
    show=show_rules,
)
