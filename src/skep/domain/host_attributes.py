"""What extra specs (`capabilities:NAME`) and the hint `query` (`$NAME`) call the attributes of hosts: Nova's names.

A name may be followed by keys where the attribute is a mapping: `cpu_info` and then `features`, say.
"""

from __future__ import annotations

FACTS = frozenset(
    {
        "cpu_allocation_ratio",
        "cpu_info",
        "disk_allocation_ratio",
        "failed_builds",
        "host",
        "host_ip",
        "hypervisor_hostname",
        "hypervisor_type",
        "hypervisor_version",
        "nodename",
        "ram_allocation_ratio",
        "stats",
        "supported_instances",
        "total_usable_disk_gb",
        "total_usable_ram_mb",
        "uuid",
        "vcpus_total",
    }
)
"""Those that stay as they are while servers come and go."""

AMOUNTS = frozenset(
    {
        "disk_mb_used",
        "free_disk_mb",
        "free_ram_mb",
        "metrics",
        "num_instances",
        "num_io_ops",
        "vcpus_used",
    }
)
"""Those that change with what runs on the host."""

ATTRIBUTES = FACTS | AMOUNTS
