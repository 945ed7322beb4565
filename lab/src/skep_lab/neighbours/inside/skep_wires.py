"""A mechanism driver for Neutron's ML2 in a cloud without agents: ports are bound at once and wired a moment later.

It does for ports and floating addresses what agents of a network and of a router would be seen to do by users.
"""

import threading
from collections.abc import Callable
from typing import Any

from neutron_lib import constants, context
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.plugins import constants as plugins
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api

WIRING_SECONDS = 0.5
UNBINDABLE = "unbindable"
"""No port is bound to a host whose name begins with it."""


class SkepWires(api.MechanismDriver):  # type: ignore[misc]
    """Binds every port on every host."""

    @property
    def connectivity(self) -> Any:
        """Frames of any kind."""
        return portbindings.CONNECTIVITY_L2

    def initialize(self) -> None:
        """Follow floating addresses."""
        for event in (events.AFTER_CREATE, events.AFTER_UPDATE):
            registry.subscribe(self._floating_address, resources.FLOATING_IP, event)

    def bind_port(self, port: Any) -> None:
        """Bind a port by the first of its segments, as an Open vSwitch would have it."""
        if not port.host or port.host.startswith(UNBINDABLE) or not port.segments_to_bind:
            return
        details = {portbindings.CAP_PORT_FILTER: True, portbindings.VIF_DETAILS_CONNECTIVITY: self.connectivity}
        segment = port.segments_to_bind[0][api.ID]
        port.set_binding(segment, portbindings.VIF_TYPE_OVS, details, status=constants.PORT_STATUS_DOWN)

    def create_port_postcommit(self, port: Any) -> None:
        """Wire a port that is bound."""
        self._wire(port)

    def update_port_postcommit(self, port: Any) -> None:
        """Wire a port that is bound."""
        self._wire(port)

    def filter_hosts_with_segment_access(
        self, context: Any, segments: Any, candidate_hosts: Any, agent_getter: Any
    ) -> set[str]:
        """Every host reaches every network."""
        return set(candidate_hosts)

    def _wire(self, port: Any) -> None:
        is_down = port.current["status"] != constants.PORT_STATUS_ACTIVE
        if is_down and port.current["admin_state_up"] and port.vif_type == portbindings.VIF_TYPE_OVS:
            _soon(_wired, port.current["id"], port.host)

    def _floating_address(self, resource: str, event: str, trigger: Any, payload: Any) -> None:
        known = payload.latest_state
        bound = known.get("fixed_port_id") or known.get("port_id")
        status = constants.FLOATINGIP_STATUS_ACTIVE if bound else constants.FLOATINGIP_STATUS_DOWN
        _soon(_shown, payload.resource_id or known["id"], status)


def _soon(act: Callable[..., None], *facts: str) -> None:
    timer = threading.Timer(WIRING_SECONDS, act, facts)
    timer.daemon = True
    timer.start()


def _wired(port_id: str, host: str) -> None:
    administrator = context.get_admin_context()
    directory.get_plugin().update_port_status(administrator, port_id, constants.PORT_STATUS_ACTIVE, host)


def _shown(address_id: str, status: str) -> None:
    routers = directory.get_plugin(plugins.L3)
    routers.update_floatingip_status(context.get_admin_context(), address_id, status)
