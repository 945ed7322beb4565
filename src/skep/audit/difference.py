"""What an audit finds: differences, each of a known kind and with the values that prove it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Kind = Literal[
    "mapping_without_request",
    "request_without_mapping",
    "mapping_without_row",
    "mapping_without_cell",
    "row_without_mapping",
    "staged_elsewhere",
    "away_everywhere",
    "open_attempt_of_deleted",
    "claim_unnamed",
    "slot_unnamed",
    "slot_missing",
    "group_policy_broken",
    "mapping_of_deleted_row",
    "row_without_attempt",
    "secrets_kept",
    "agent_not_mapped",
    "host_without_agent",
    "host_without_cell",
    "attempt_without_host",
    "host_counts_other_servers",
    "spec_without_server",
    "server_without_spec",
    "member_without_server",
    "quota_sum",
    "quota_charge_without_server",
    "server_without_quota_charge",
    "quota_charge_differs",
    "port_without_server",
    "interfaces_differ",
    "bindings_differ",
    "attachment_without_server",
    "volumes_differ",
    "host_not_told",
    "server_in_doubt",
    "server_deleted_since",
    "guest_missing",
    "guest_unknown",
]

MEANINGS: dict[Kind, str] = {
    "mapping_without_request": "a server has neither a cell nor a build request: it will never be built",
    "request_without_mapping": "a build request of a server that has a cell, is deleted or is not mapped at all",
    "mapping_without_row": "the cell of a server that is not deleted has no row of it",
    "mapping_without_cell": "a server is mapped to a cell that does not exist: its delete would never end",
    "row_without_mapping": "a cell has an undeleted row of a server that is mapped elsewhere, deleted or not mapped",
    "staged_elsewhere": "a staged row whose server is mapped elsewhere, was deleted, or has a higher attempt",
    "away_everywhere": "a server is away from the cell that it is mapped to, and no move hands it over",
    "open_attempt_of_deleted": "an attempt is open although its server's row is deleted or missing",
    "claim_unnamed": "a claim that no open attempt and no current mapping names: it only holds resources",
    "slot_unnamed": "a group's slot that no open attempt and no current mapping names: it keeps members out",
    "slot_missing": "a member of a group has no slot: others may be placed as if it were not there",
    "group_policy_broken": "members of a group are where its policy forbids it",
    "mapping_of_deleted_row": "a cell has deleted a server and the API database, though recorded as informed, has not",
    "row_without_attempt": "a server on a host has no open attempt there: a delete would leave its guest behind",
    "secrets_kept": "a server's password or files are still stored although its build is over",
    "agent_not_mapped": "an agent counts as mapped to its cell, and is not: its host gets no servers",
    "host_without_agent": "a host is mapped to a cell whose database does not know its agent",
    "host_without_cell": "a host is mapped to a cell that does not exist",
    "attempt_without_host": "an attempt is open on a host unknown to its cell: no report and no fence can close it",
    "host_counts_other_servers": "a host that is quiet has more or fewer guests than its cell has servers on it",
    "spec_without_server": "a RequestSpec is stored of a server that does not exist",
    "server_without_spec": "a server that waits for a cell has no RequestSpec: it cannot be placed",
    "member_without_server": "a server group names a member that does not exist",
    "quota_sum": "a project's sum differs from the sum of its charges",
    "quota_charge_without_server": "a quota charge of a server that does not exist",
    "server_without_quota_charge": "a server without a quota charge",
    "quota_charge_differs": "a soft-deleted server is charged, or one that is not is charged nothing",
    "port_without_server": "ports of a server that does not exist: they hold addresses, and users' ports are in use",
    "interfaces_differ": "the row of a server says other interfaces than the network service, and nothing will tell it",
    "bindings_differ": "ports of a server are bound to a host that does not have it",
    "attachment_without_server": "a server that does not exist has volumes: no other server can use them",
    "volumes_differ": "the row of a server says other volumes than the volume service",
    "host_not_told": "a database went back in time, and this host has not reported its guests yet",
    "server_in_doubt": "a database went back in time, and guests or databases contradict each other about a server",
    "server_deleted_since": "a database went back in time, and a host remembers that this unbuilt server was deleted",
    "guest_missing": "a database went back in time, and the host of a server has no guest of it",
    "guest_unknown": "a database went back in time, and a host has a guest of a server that no row knows",
}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that two places say differently."""

    kind: Kind
    subject: str
    """What it is about: an instance, a project, a claim."""
    evidence: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, bytes]:
        """What makes it the same difference in another look, its evidence included."""
        return (self.kind, self.subject, msgspec.json.encode(self.evidence, order="deterministic"))


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at everything."""

    differences: tuple[Difference, ...]
    unread: tuple[str, ...] = ()
    """What could not be read and why; nothing is concluded from silence."""
    checked: dict[str, int] = {}
    """How much was compared, by noun."""


def confirmed(first: Iterable[Difference], second: Iterable[Difference]) -> tuple[Difference, ...]:
    """Return what both looks found, unchanged: the rest was work under way."""
    before = {difference.key for difference in first}
    return tuple(difference for difference in second if difference.key in before)
