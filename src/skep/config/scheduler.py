"""The keys of `[scheduler]`: how a host is chosen, and by which processes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import port_of_health
from skep.config.placement_options import PlacementOptionSettings


class SchedulerSettings(PlacementOptionSettings, frozen=True, kw_only=True):
    """How a host is chosen, and by which processes."""

    embedded: Annotated[
        bool,
        Meta(description="Whether the whole cloud's process runs a scheduler; false: only `skep serve scheduler` do"),
    ] = True
    health_port: Annotated[int, port_of_health("scheduler")] = 0
    max_attempts: Annotated[int, Meta(ge=1, description="Most hosts tried for one server in one cell")] = 3
    max_cells: Annotated[int, Meta(ge=1, description="Most cells tried for one server")] = 2
    normalization: Annotated[
        Literal["host", "min-max"],
        Meta(
            description="`host`: a score is a share of the host's own capacity, so a decision costs what changed; "
            "`min-max`: Nova's, scaled over all hosts that are left"
        ),
    ] = "host"
    host_subset_size: Annotated[int, Meta(ge=1, description="Choose at random among so many of the best hosts")] = 1
    enabled_filters: Annotated[
        tuple[str, ...],
        Meta(description="Filters that run, such as `ComputeFilter`, in this order; empty: Skep's own choice"),
    ] = ()
    enabled_weighers: Annotated[
        tuple[str, ...],
        Meta(
            description="Weighers beside Skep's own choice, or other multipliers for them: `NAME=NUMBER`, such as "
            "`QuietWeigher=0.5`; 0 leaves one out"
        ),
    ] = ()
    on_plugin_error: Annotated[
        Literal["fail", "skip"],
        Meta(
            description="When a filter or weigher of another package fails: `fail`: the server becomes ERROR, and "
            "its fault names the plug-in; `skip`: it is left out of that decision"
        ),
    ] = "fail"
    cpu_weight_multiplier: Annotated[float, Meta(description="Weight of free virtual CPUs; negative stacks")] = 1.0
    ram_weight_multiplier: Annotated[float, Meta(description="Weight of free memory; negative stacks")] = 1.0
    disk_weight_multiplier: Annotated[float, Meta(description="Weight of free disk; negative stacks")] = 1.0
    build_failure_weight_multiplier: Annotated[
        float, Meta(description="How far recent build failures push a host down")
    ] = 1000000.0
    soft_affinity_weight_multiplier: Annotated[
        float, Meta(description="Weight of group members on the host under the policy `soft-affinity`")
    ] = 1.0
    soft_anti_affinity_weight_multiplier: Annotated[
        float, Meta(description="Weight of their absence under the policy `soft-anti-affinity`")
    ] = 1.0
    topology_spread_weight_multiplier: Annotated[
        float, Meta(description="Weight of soft topology spread constraints (hint and extra spec `spread`)")
    ] = 2.0
    shuffle_best_same_weighed_hosts: Annotated[bool, Meta(description="Choose at random among equally good hosts")] = (
        False
    )
    partition: Annotated[
        bool,
        Meta(
            description="Several schedulers: each looks first among its own share of the hosts, to meet no other there"
        ),
    ] = True
    decision_log: Annotated[
        str,
        Meta(description="Directory of the decision log, for a replay; empty: none"),
    ] = ""
    decision_log_mib: Annotated[
        int, Meta(ge=1, description="Most MiB of all files in that directory; the oldest are removed")
    ] = 256
