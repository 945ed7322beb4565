"""Triggers that note which networks, routers, groups and hosts a change of the network service concerns."""

from __future__ import annotations

from skep.database.triggers import Trigger

_NEXT = "(SELECT coalesce(max(change), 0) + 1 FROM network_changes)"


def _noting(table: str, moment: str, *subjects: str) -> Trigger:
    """Return the trigger that notes the subjects, each an expression or a query, of a row that is written."""
    queries = (one if one.startswith("SELECT") else f"SELECT {one}" for one in subjects)
    union = " UNION ".join(("SELECT CAST(NULL AS TEXT) AS subject", *queries))
    return Trigger(
        f"network_changes_of_{table}_{moment.lower()}",
        moment,
        table,
        None,
        "network_changes",
        "subject, change, changed_at",
        f"s.subject, {_NEXT}, {{now}} FROM ({union}) AS s WHERE s.subject IS NOT NULL "
        "ON CONFLICT (subject) DO UPDATE SET change = excluded.change, changed_at = excluded.changed_at",
    )


def _port(row: str) -> tuple[str, ...]:
    """Return whom a port concerns: its network, the router whose leg it is, and its host."""
    return (
        f"{row}.network_id",
        f"CASE WHEN {row}.device_owner = 'network:router_interface' THEN {row}.device_id END",
        f"CASE WHEN {row}.binding_host_id <> '' THEN 'host ' || {row}.binding_host_id END",
    )


def _of_port(row: str) -> tuple[str, ...]:
    """Return whom what belongs to a port concerns: its network, and the groups that count its addresses."""
    return (
        f"SELECT p.network_id FROM ports p WHERE p.id = {row}.port_id",  # noqa: S608 - NEW or OLD
        f"SELECT g.security_group_id FROM port_security_groups g WHERE g.port_id = {row}.port_id",  # noqa: S608
    )


TRIGGERS = (
    _noting("networks", "UPDATE", "NEW.id"),
    _noting("subnets", "INSERT", "NEW.network_id"),
    _noting("subnets", "UPDATE", "NEW.network_id"),
    _noting("subnets", "DELETE", "OLD.network_id"),
    _noting("ports", "INSERT", *_port("NEW")),
    _noting("ports", "UPDATE", *_port("NEW"), *_port("OLD")),
    _noting("ports", "DELETE", *_port("OLD")),
    _noting("port_addresses", "INSERT", *_of_port("NEW")),
    _noting("port_addresses", "DELETE", *_of_port("OLD")),
    _noting("security_groups", "UPDATE", "NEW.id"),
    _noting("security_group_rules", "INSERT", "NEW.security_group_id"),
    _noting("security_group_rules", "UPDATE", "NEW.security_group_id"),
    _noting("security_group_rules", "DELETE", "OLD.security_group_id"),
    _noting("port_security_groups", "INSERT", "NEW.security_group_id", _of_port("NEW")[0]),
    _noting("port_security_groups", "DELETE", "OLD.security_group_id", _of_port("OLD")[0]),
    _noting("routers", "UPDATE", "NEW.id"),
    _noting("floating_ips", "INSERT", "NEW.router_id"),
    _noting("floating_ips", "UPDATE", "NEW.router_id", "OLD.router_id"),
    _noting("floating_ips", "DELETE", "OLD.router_id"),
)
"""What comes to a network with its first port, and goes with its last, is noted with that port."""
