"""Servers that have ports of a network service that is not Skep's own, or may have some."""

from __future__ import annotations

from skep.database.api.holders import Holders
from skep.database.api.network_tables import port_holders

_of_ports = Holders(port_holders)

hold, hold_living, hold_ended, hold_gone = (
    _of_ports.hold,
    _of_ports.hold_living,
    _of_ports.hold_ended,
    _of_ports.hold_gone,
)
releasable, noted, gone, end = _of_ports.releasable, _of_ports.noted, _of_ports.gone, _of_ports.end
look_soon, take_due, looked_at = _of_ports.look_soon, _of_ports.take_due, _of_ports.looked_at
