"""Keys of `[scheduler]` and `[metrics]` that single filters, weighers and pre-filters read. Names are Nova's."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from skep.config.base import Section


class PlacementOptionSettings(Section, frozen=True, kw_only=True):
    """What filters, weighers and pre-filters are told, and how much weighers count."""

    max_io_ops_per_host: Annotated[
        int, Meta(ge=1, description="Operations on whole disks under way on a host, for IoOpsFilter and IoOpsWeigher")
    ] = 8
    max_instances_per_host: Annotated[
        int, Meta(ge=1, description="Servers on a host, for NumInstancesFilter and NumInstancesWeigher")
    ] = 50
    isolated_images: Annotated[
        tuple[str, ...], Meta(description="Ids of images that run on `isolated_hosts` only, for IsolatedHostsFilter")
    ] = ()
    isolated_hosts: Annotated[tuple[str, ...], Meta(description="Names of hosts for `isolated_images`")] = ()
    restrict_isolated_hosts_to_isolated_images: Annotated[
        bool, Meta(description="Whether other images stay off `isolated_hosts`")
    ] = True
    aggregate_image_properties_isolation_namespace: Annotated[
        str,
        Meta(description="AggregateImagePropertiesIsolation reads names that begin with it alone; empty: all names"),
    ] = ""
    aggregate_image_properties_isolation_separator: Annotated[
        str, Meta(description="What stands between that namespace and the rest of a name")
    ] = "."
    image_properties_default_architecture: Annotated[
        str, Meta(description="Architecture of images that name none, for ImagePropertiesFilter; empty: any")
    ] = ""
    limit_tenants_to_placement_aggregate: Annotated[
        bool, Meta(description="Whether projects that aggregates name (`filter_tenant_id...`) stay in those aggregates")
    ] = False
    placement_aggregate_required_for_tenants: Annotated[
        bool, Meta(description="With that: whether a project that no aggregate names gets no host")
    ] = False
    query_placement_for_image_type_support: Annotated[
        bool, Meta(description="Whether hosts must have the trait of the image's disk format")
    ] = False
    enable_isolated_aggregate_filtering: Annotated[
        bool, Meta(description="Whether aggregates with `trait:X` = `required` are for requests that require X alone")
    ] = False
    image_metadata_prefilter: Annotated[
        bool, Meta(description="Whether hosts must have the traits of the image's buses, models and architectures")
    ] = False
    io_ops_weight_multiplier: Annotated[
        float, Meta(description="Weight of operations on whole disks under way; negative: hosts with fewer come first")
    ] = -1.0
    num_instances_weight_multiplier: Annotated[
        float, Meta(description="Weight of the number of servers; negative: hosts with fewer come first")
    ] = 0.0
    hypervisor_version_weight_multiplier: Annotated[
        float, Meta(description="Weight of the hypervisor's version; negative: older ones come first")
    ] = 1.0
    pci_weight_multiplier: Annotated[
        float,
        Meta(
            description="Weight of PCI devices that are held; positive: free ones are left for servers that need many"
        ),
    ] = 1.0
    cross_cell_move_weight_multiplier: Annotated[
        float, Meta(description="How far a server that moves is kept in its cell")
    ] = 1000000.0
    lifetime_weight_multiplier: Annotated[
        float,
        Meta(description="Weight, for servers with the hint `lifetime`, of hosts that are occupied for as long anyway"),
    ] = 10.0
    image_props_weight_multiplier: Annotated[
        float, Meta(description="Weight of servers whose images have like properties; negative: they are kept apart")
    ] = 0.0
    image_props_weight_setting: Annotated[
        tuple[str, ...],
        Meta(description="How much each property counts there: `NAME=NUMBER`; empty: all of them alike"),
    ] = ()
    best_fit_weight_multiplier: Annotated[
        float, Meta(description="Weight of how full the host would be with the server, as a share of its own capacity")
    ] = 0.0
    fragmentation_weight_multiplier: Annotated[
        float, Meta(description="Weight of the room that is left for the kinds of servers that are asked for lately")
    ] = 0.0
    fragmentation_size_exponent: Annotated[
        float, Meta(ge=0, le=8, description="A kind counts as often as it is asked for, times its size to this power")
    ] = 0.5
    fragmentation_slot_exponent: Annotated[
        float,
        Meta(gt=0, le=1, description="How many of a kind still fit on a host counts to this power: 1 or less"),
    ] = 0.5
    fragmentation_departures: Annotated[
        int,
        Meta(ge=1, le=40, description="Room is also counted as if a part of what runs had gone: in so many steps"),
    ] = 1


class MetricsSettings(Section, frozen=True, kw_only=True):
    """How hosts are weighed by the metrics that they report."""

    weight_multiplier: Annotated[float, Meta(description="Weight of all metrics together")] = 1.0
    weight_setting: Annotated[
        tuple[str, ...],
        Meta(description="How much each metric counts: `NAME=NUMBER`, such as `cpu.percent=-1.0`; empty: none does"),
    ] = ()
    required: Annotated[bool, Meta(description="Whether hosts that lack one of the metrics get no server")] = True
    weight_of_unavailable: Annotated[
        float, Meta(description="Weight of a host that lacks one of them, where they are not required")
    ] = -10000.0
