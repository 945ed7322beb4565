"""Filters that keep some requests to some hosts, and those that keep crowds away from one host."""

from __future__ import annotations

from skep_lab.reference_scheduler.attributes import io_ops, servers
from skep_lab.reference_scheduler.cloud import ReferenceHost
from skep_lab.reference_scheduler.question import Question, Rule


def _said(host: ReferenceHost, asked: Question, *keys: str, beginning: str | None = None) -> list[str]:
    """Return the words that metadata of the host's aggregates have under these keys, or under all that begin so."""
    return [
        word.strip()
        for _, one in asked.cloud.aggregates_of(host)
        for key, value in one.metadata.items()
        if key in keys or (beginning is not None and key.startswith(beginning))
        for word in value.split(",")
    ]


def multi_tenancy(host: ReferenceHost, asked: Question) -> bool:
    """No aggregate of the host lists projects, or one lists this."""
    projects = _said(host, asked, beginning="filter_tenant_id")
    return not projects or asked.request.spec.project_id in projects


def type_affinity(host: ReferenceHost, asked: Question) -> bool:
    """No aggregate of the host lists flavors, or one lists this."""
    flavors = _said(host, asked, "instance_type")
    return not flavors or asked.request.spec.flavor.name in flavors


def aggregate_image_properties(host: ReferenceHost, asked: Question) -> bool:
    """Of each property of the image that the host's aggregates name, they have the image's value."""
    image, options = asked.request.spec.image, asked.options
    namespace = options.aggregate_image_properties_isolation_namespace
    prefix = namespace + options.aggregate_image_properties_isolation_separator if namespace else ""
    for name, value in (image.properties if image is not None else {}).items():
        values = _said(host, asked, name) if value and name.startswith(prefix) else []
        if values and value not in values:
            return False
    return True


def isolated_hosts(host: ReferenceHost, asked: Question) -> bool:
    """Isolated images on isolated hosts; if these are restricted, nothing else there."""
    image, options = asked.request.spec.image, asked.options
    isolated_image = image is not None and image.id in options.isolated_images
    isolated_host = host.name in options.isolated_hosts
    if options.restrict_isolated_hosts_to_isolated_images:
        return isolated_image == isolated_host
    return isolated_host or not isolated_image


def _limit(host: ReferenceHost, asked: Question, key: str, default: int) -> int:
    """Return the least number of the host's aggregates; the default where they have none, or one is no number."""
    said = [one.metadata[key] for _, one in asked.cloud.aggregates_of(host) if key in one.metadata]
    try:
        return min((int(text) for text in said), default=default)
    except ValueError:
        return default


def few_io_ops(host: ReferenceHost, asked: Question) -> bool:
    """Fewer operations than the option says."""
    return io_ops(host) < asked.options.max_io_ops_per_host


def few_io_ops_by_aggregate(host: ReferenceHost, asked: Question) -> bool:
    """Fewer operations than the host's aggregates say."""
    return io_ops(host) < _limit(host, asked, "max_io_ops_per_host", asked.options.max_io_ops_per_host)


def few_servers(host: ReferenceHost, asked: Question) -> bool:
    """Fewer servers than the option says."""
    return servers(host) < asked.options.max_instances_per_host


def few_servers_by_aggregate(host: ReferenceHost, asked: Question) -> bool:
    """Fewer servers than the host's aggregates say."""
    return servers(host) < _limit(host, asked, "max_instances_per_host", asked.options.max_instances_per_host)


def all_hosts(_host: ReferenceHost, _asked: Question) -> bool:
    """Everybody."""
    return True


RULES: dict[str, Rule] = {
    "AggregateMultiTenancyIsolation": multi_tenancy,
    "AggregateTypeAffinityFilter": type_affinity,
    "AggregateImagePropertiesIsolation": aggregate_image_properties,
    "IsolatedHostsFilter": isolated_hosts,
    "IoOpsFilter": few_io_ops,
    "AggregateIoOpsFilter": few_io_ops_by_aggregate,
    "NumInstancesFilter": few_servers,
    "AggregateNumInstancesFilter": few_servers_by_aggregate,
    "AllHostsFilter": all_hosts,
}
