"""Filters and weighers of other packages: what their authors need, and nothing else (docs/plugins.md)."""

from skep.placement.hosts.view import HostView
from skep.placement.plugins.lifting import column_filter, column_weigher, host_filter, host_weigher
from skep.placement.plugins.one_host import OneHost
from skep.placement.request import PlacementRequest

__all__ = [
    "HostView",
    "OneHost",
    "PlacementRequest",
    "column_filter",
    "column_weigher",
    "host_filter",
    "host_weigher",
]
