"""Each filter for one host: True lets it through. One that the request does not concern lets everybody through."""

from __future__ import annotations

from skep.domain.conditions import amount
from skep.placement.filters.extra_spec_values import matches
from skep.placement.filters.volume import COMPARE
from skep_lab.reference_scheduler import attribute_filters, isolating_filters
from skep_lab.reference_scheduler.cloud import ReferenceCloud, ReferenceHost, free
from skep_lab.reference_scheduler.question import Question, Rule


def reports(host: ReferenceHost, asked: Question) -> bool:
    """What is free on the host is known."""
    return asked.cloud.is_ready(host)


def forced_host(host: ReferenceHost, asked: Question) -> bool:
    """The host of `az:host:node`."""
    spec = asked.request.spec
    return spec.forced_host in (None, host.name) and _may_be_called(spec.forced_node, host)


def requested_host(host: ReferenceHost, asked: Question) -> bool:
    """The host of API 2.74."""
    spec = asked.request.spec
    return spec.requested_host in (None, host.name) and _may_be_called(spec.requested_node, host)


def _may_be_called(name: str | None, host: ReferenceHost) -> bool:
    """Tell whether a host's hypervisor has this name, for all that is known of it."""
    return name is None or host.usage is None or host.usage.hypervisor_hostname == name


def cell(host: ReferenceHost, asked: Question) -> bool:
    """An enabled cell, or the one that the request is limited to."""
    flags = asked.cloud.cell_of(host)
    if not flags.known or host.cell in asked.request.exclude_cells:
        return False
    return host.cell == asked.request.cell if asked.request.cell is not None else not flags.disabled


def compute(host: ReferenceHost, asked: Question) -> bool:
    """Up and enabled."""
    return asked.cloud.is_up(host) and not host.disabled


def availability_zone(host: ReferenceHost, asked: Question) -> bool:
    """The zone, if the user named one."""
    return asked.request.spec.availability_zone in (None, asked.cloud.zone_of(host))


def aggregate_extra_specs(host: ReferenceHost, asked: Question) -> bool:
    """For each scoped extra spec some aggregate of the host has a value that is wanted."""
    aggregates = [one.metadata for _, one in asked.cloud.aggregates_of(host)]
    return all(
        any(matches(value.strip(), wanted) for has in aggregates if key in has for value in has[key].split(","))
        for key, wanted in asked.request.aggregate_specs
    )


def aggregate_membership(host: ReferenceHost, asked: Question) -> bool:
    """A member of every required aggregate."""
    return set(asked.request.spec.required_aggregates) <= {number for number, _ in asked.cloud.aggregates_of(host)}


def traits(host: ReferenceHost, asked: Question) -> bool:
    """All required traits and none of the forbidden ones."""
    has = set(host.usage.traits) if host.usage is not None else set()
    return has >= set(asked.request.required_traits) and has.isdisjoint(asked.request.forbidden_traits)


def capacity(host: ReferenceHost, asked: Question) -> bool:
    """Everything free that is asked for."""
    return all(free(host, name) >= wanted for name, wanted in asked.request.resources.items())


def group_affinity(host: ReferenceHost, asked: Question) -> bool:
    """Where the other members are."""
    return not _has_policy(asked, "affinity") or not asked.members or host.node in asked.members


def group_anti_affinity(host: ReferenceHost, asked: Question) -> bool:
    """Where there is room for one more member."""
    group = asked.request.spec.group
    if group is None or not _has_policy(asked, "anti-affinity"):
        return True
    return asked.members.get(host.node, 0) < group.max_server_per_host


def _has_policy(asked: Question, policy: str) -> bool:
    group = asked.request.spec.group
    return group is not None and group.policy == policy


def topology_spread(host: ReferenceHost, asked: Question) -> bool:
    """A domain that may get one more member, for each hard constraint."""
    return all(
        domain_of(asked.cloud, host, constraint.key) in excess
        and excess[domain_of(asked.cloud, host, constraint.key)] <= 0
        for constraint, excess in asked.excess.items()
        if constraint.hard
    )


def domain_of(cloud: ReferenceCloud, host: ReferenceHost, key: str) -> str:
    """Return the host's zone, its rack (the empty one if it has none), or the host itself."""
    if key == "zone":
        return cloud.zone_of(host)
    racks = (one.metadata["rack"] for _, one in cloud.aggregates_of(host) if one.metadata.get("rack"))
    return next(racks, "") if key == "rack" else host.node


def same_host(host: ReferenceHost, asked: Question) -> bool:
    """A host of one of the servers in the hint."""
    names = asked.request.spec.same_host_names
    return names is None or host.name in names


def different_host(host: ReferenceHost, asked: Question) -> bool:
    """No host of the servers in the hint."""
    return host.name not in asked.request.spec.different_host_names


def ignored_hosts(host: ReferenceHost, asked: Question) -> bool:
    """Not tried before."""
    return host.node not in asked.request.ignore and host.name not in asked.request.spec.ignore_hosts


def volume_told(host: ReferenceHost, asked: Question) -> bool:
    """The volume service tells of the host, where something is asked of it."""
    return not asked.request.volume_specs or bool(asked.cloud.states_of(host, "volume"))


def volume(host: ReferenceHost, asked: Question) -> bool:
    """The largest number of each field satisfies its condition."""
    for name, wanted in asked.request.volume_specs:
        condition = amount(wanted)
        values = [
            state[name] for state in asked.cloud.states_of(host, "volume") if isinstance(state.get(name), int | float)
        ]
        if condition is None or not values or not COMPARE[condition.operator](max(values), condition.value):
            return False
    return True


def same_host_as_volume(host: ReferenceHost, asked: Question) -> bool:
    """The volume is on the host."""
    wanted = asked.request.volume_wanted
    return wanted is None or any(wanted in state.get("volumes", ()) for state in asked.cloud.states_of(host, "volume"))


def inside(_host: ReferenceHost, asked: Question) -> bool:
    """No request that is compared here asks anything of the inside of hosts (`domain/nested` has its own tests)."""
    return asked.request.nested is None


RULES: dict[str, Rule] = {
    "ReportsFilter": reports,
    "ForcedHostFilter": forced_host,
    "RequestedHostFilter": requested_host,
    "CellFilter": cell,
    "ComputeFilter": compute,
    "AvailabilityZoneFilter": availability_zone,
    "AggregateInstanceExtraSpecsFilter": aggregate_extra_specs,
    "AggregateMembershipFilter": aggregate_membership,
    "TraitsFilter": traits,
    "CapacityFilter": capacity,
    "ResourceGroupsFilter": inside,
    "PciPassthroughFilter": inside,
    "NUMATopologyFilter": inside,
    "ServerGroupAffinityFilter": group_affinity,
    "ServerGroupAntiAffinityFilter": group_anti_affinity,
    "SameHostFilter": same_host,
    "DifferentHostFilter": different_host,
    "IgnoredHostsFilter": ignored_hosts,
    "TopologySpreadFilter": topology_spread,
    "VolumeStateFilter": volume_told,
    "VolumeFilter": volume,
    "SameHostAsVolumeFilter": same_host_as_volume,
    **attribute_filters.RULES,
    **isolating_filters.RULES,
}
"""By the name of the engine's stage."""

EVEN_IF_FORCED = frozenset(
    {
        "ReportsFilter",
        "ForcedHostFilter",
        "CellFilter",
        "RefusedKeysFilter",
        "CapacityFilter",
        "ServerGroupAffinityFilter",
        "ServerGroupAntiAffinityFilter",
        "IgnoredHostsFilter",
        "TopologySpreadFilter",
    }
)
"""Those that judge a forced host, too."""
