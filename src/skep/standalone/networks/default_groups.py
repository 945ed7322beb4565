"""The security group that ports have unless others are said: one in each project, made when it is first needed."""

from __future__ import annotations

from typing import get_args

from skep.database.api import network_rows
from skep.database.api.network_rows import SECURITY_GROUP_RULES, SECURITY_GROUPS
from skep.domain.ids import new_uuid
from skep.domain.networking import Direction, EtherType, SecurityGroup, SecurityGroupRule
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.refusals import Missing
from skep.standalone.networks.resources import find

NAME = "default"


def is_there(work: NetworkWork) -> bool:
    """Tell whether the caller's project has its default group."""
    mine = {"project_id": work.caller.project_id, "is_default": True}
    return network_rows.count(work.connection, SECURITY_GROUPS, **mine) > 0


def ensure(work: NetworkWork, project_id: str) -> SecurityGroup:
    """Return the default group of a project: out goes everything, in comes what other ports of the group send."""
    there = network_rows.where(work.connection, SECURITY_GROUPS, project_id=project_id, is_default=True)
    if there:
        return there[0]
    group = SecurityGroup(
        id=new_uuid(),
        project_id=project_id,
        name=NAME,
        description="Default security group",
        created_at=work.now,
        updated_at=work.now,
        is_default=True,
    )
    network_rows.insert(work.connection, SECURITY_GROUPS, group)
    open_outwards(work, group)
    for ethertype in get_args(EtherType):
        _insert(work, group, "ingress", ethertype, remote_group_id=group.id)
    return group


def open_outwards(work: NetworkWork, group: SecurityGroup) -> None:
    """Give a new group the rules by which everything goes out."""
    for ethertype in get_args(EtherType):
        _insert(work, group, "egress", ethertype)


def usable(work: NetworkWork, group_id: str, project_id: str) -> SecurityGroup:
    """Return a group that a port of a project may have.

    Raises Missing.
    """
    group = find(work, "Security group", SECURITY_GROUPS, group_id)
    if group.project_id != project_id and not work.caller.is_admin:
        raise Missing("Security group", group_id)
    return group


def _insert(
    work: NetworkWork,
    group: SecurityGroup,
    direction: Direction,
    ethertype: EtherType,
    remote_group_id: str | None = None,
) -> None:
    rule = SecurityGroupRule(
        id=new_uuid(),
        project_id=group.project_id,
        created_at=work.now,
        updated_at=work.now,
        security_group_id=group.id,
        direction=direction,
        ethertype=ethertype,
        remote_group_id=remote_group_id,
    )
    network_rows.insert(work.connection, SECURITY_GROUP_RULES, rule)
