"""What must hold of networks that old clients ask the compute API for: a part of `NetworksOfUsersContract`."""

from __future__ import annotations

import abc

import pytest

from skep.contracts.neighbours.networks_base import NetworksContractBase
from skep.contracts.neighbours.networks_world import THEIRS, NetworksWorld
from skep.domain.errors import BadRequest, NotFound, QuotaExceeded
from skep.domain.ids import new_uuid
from skep.neighbours.networks.base import WantedRule


class ProxiedGroupsContract(NetworksContractBase, abc.ABC):
    """Tests of the port `skep.neighbours.networks.base.ProxiedGroups`."""

    async def test_groups_are_listed_with_the_default_one(self, world: NetworksWorld) -> None:
        """Also where no group was made yet; those of others only to an admin who asks for all."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        found = await world.networks.list_groups(*world.asking(), of_all=True)
        assert [(one.name, one.project_id) for one in found] == [("default", world.project)]
        everyone = await world.networks.list_groups(*world.asking("admin"), of_all=True)
        assert {theirs["id"], found[0].id} <= {one.id for one in everyone}
        own = await world.networks.list_groups(*world.asking("admin"), of_all=False)
        assert [one.name for one in own] == ["default"]

    async def test_a_group_is_made_changed_and_deleted(self, world: NetworksWorld) -> None:
        """It is one of the network service."""
        made = await world.networks.create_group("web", "for all", *world.asking())
        assert (made.name, made.description, made.project_id) == ("web", "for all", world.project)
        changed = await world.networks.update_group(made.id, "net", "", *world.asking())
        assert (changed.id, changed.name, changed.description) == (made.id, "net", "")
        assert (await world.ask("GET", f"security-groups/{made.id}"))["name"] == "net"
        await world.networks.delete_group(made.id, *world.asking())
        assert await world.networks.security_groups([made.id], *world.asking()) == []

    async def test_groups_that_are_not_the_callers(self, world: NetworksWorld) -> None:
        """They are not there for him."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        for group in (theirs["id"], new_uuid()):
            with pytest.raises(NotFound):
                await world.networks.update_group(group, "mine", "", *world.asking())
            with pytest.raises(NotFound):
                await world.networks.delete_group(group, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.create_rule(_rule(group), *world.asking())

    async def test_groups_that_cannot_be(self, world: NetworksWorld) -> None:
        """A second default one, one over the quota."""
        with pytest.raises(BadRequest):
            await world.networks.create_group("default", "", *world.asking())
        await world.quota(security_group=0)
        with pytest.raises(QuotaExceeded):
            await world.networks.create_group("web", "", *world.asking())

    async def test_groups_that_stay(self, world: NetworksWorld) -> None:
        """The default one, and one that a port has."""
        [default] = await world.networks.list_groups(*world.asking(), of_all=False)
        used = await world.networks.create_group("web", "", *world.asking())
        await world.port(await world.network("10.0.0.0/24"), security_groups=[used.id])
        for group in (default.id, used.id):
            with pytest.raises(BadRequest):
                await world.networks.delete_group(group, *world.asking())
        with pytest.raises(BadRequest):
            await world.networks.update_group(default.id, "other", "", *world.asking())

    async def test_a_rule_is_made_and_deleted(self, world: NetworksWorld) -> None:
        """Of addresses of either version, or of a group."""
        group = await world.networks.create_group("web", "", *world.asking())
        for wanted, ethertype in (
            (_rule(group.id), "IPv4"),
            (_rule(group.id, cidr="2001:db8::/32"), "IPv6"),
            (_rule(group.id, remote_group=group.id), "IPv4"),
        ):
            made, after = await world.networks.create_rule(wanted, *world.asking())
            [rule] = [one for one in after.rules if one.id == made]
            assert (rule.direction, rule.ethertype, rule.protocol) == ("ingress", ethertype, "tcp")
            assert (rule.port_range_min, rule.port_range_max) == (22, 23)
            assert (rule.remote_ip_prefix, rule.remote_group_id) == (wanted.cidr, wanted.remote_group)
            assert rule.remote_group_id is None or after.names[group.id] == "web"
            await world.networks.delete_rule(made, *world.asking())
            with pytest.raises(NotFound):
                await world.networks.delete_rule(made, *world.asking())

    async def test_rules_that_cannot_be(self, world: NetworksWorld) -> None:
        """One that is there, one of what is no address, one over the quota, others' group."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        group = await world.networks.create_group("web", "", *world.asking())
        made, _ = await world.networks.create_rule(_rule(group.id), *world.asking())
        for bad in (_rule(group.id), _rule(group.id, cidr="10.0.0.0/99"), _rule(group.id, cidr="web")):
            with pytest.raises(BadRequest):
                await world.networks.create_rule(bad, *world.asking())
        with pytest.raises(NotFound):
            await world.networks.create_rule(_rule(group.id, remote_group=theirs["id"]), *world.asking())
        await world.networks.delete_rule(made, *world.asking())
        await world.quota(security_group_rule=1)
        with pytest.raises(QuotaExceeded):
            await world.networks.create_rule(_rule(group.id), *world.asking())

    async def test_rules_that_are_not_the_callers(self, world: NetworksWorld) -> None:
        """They are not there for him."""
        theirs = await world.make("security-group", by="admin", name="theirs", project_id=THEIRS)
        with pytest.raises(NotFound):
            await world.networks.delete_rule(theirs["security_group_rules"][0]["id"], *world.asking())


def _rule(group: str, *, cidr: str | None = None, remote_group: str | None = None) -> WantedRule:
    said = cidr if cidr is not None or remote_group is not None else "10.0.0.0/8"
    return WantedRule(group=group, protocol="tcp", ports=(22, 23), cidr=said, remote_group=remote_group)
