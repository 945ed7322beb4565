"""The library os-vif: makes ports of an Open vSwitch out of what Neutron's binding says.

It runs inside the agent, with the agent's own rights, so that there is no helper that raises them. The library is
imported in the main thread, when the agent starts: threads that import it do not end.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.plugged.kinds import Plug
from skep.domain.ids import InstanceUuid
from skep.telemetry.oslo_threads import use_threads

LIBRARY = "os_vif"
PLUGIN = "vif_plug_ovs"
"""The part of it for an Open vSwitch."""
SECONDS = 10
"""So long the database of a switch may take to answer."""


class OsVif:
    """The switch of one host."""

    def __init__(self, ovsdb: str, *, library: Any = None) -> None:
        """`ovsdb`: where the database of the switch is reached. `library` stands for os-vif where it is given.

        To be made in the main thread.
        """
        self._ovsdb = ovsdb
        is_there = library is None and importlib.util.find_spec(LIBRARY) is not None
        self._library = _imported(ovsdb) if is_there else library

    def missing(self) -> tuple[str, ...]:
        """Return what this host lacks for ports of a switch."""
        lacks = []
        if self._library is None:
            lacks.append("the package os-vif (the extra skep[neutron])")
        kind, _, path = self._ovsdb.partition(":")
        if kind == "unix" and not Path(path).exists():
            lacks.append(f"an Open vSwitch at {path} (the option ovsdb)")
        return tuple(lacks)

    def check(self, port: str) -> None:
        """Raise DriverError `InstanceUnacceptable` where this host lacks something for a port of a switch."""
        lacks = self.missing()
        if lacks:
            raise DriverError("InstanceUnacceptable", f"port {port}: the host lacks {'; '.join(lacks)}")

    def plug(self, plug: Plug, instance: InstanceUuid) -> None:
        """Make the port of a switch; one that is there stays. Raises DriverError."""
        self._do("plug", plug, instance)

    def unplug(self, plug: Plug, instance: InstanceUuid) -> None:
        """Remove the port of a switch, and the links that were made for it. Raises DriverError."""
        self._do("unplug", plug, instance)

    def _do(self, action: str, plug: Plug, instance: InstanceUuid) -> None:
        lacks = self.missing()
        if lacks:
            raise DriverError("NetworksUnavailable", f"port {plug.port}: the host lacks {'; '.join(lacks)}")
        library = self._library
        try:
            server = library.objects.instance_info.InstanceInfo(uuid=instance, name=instance, project_id="")
            getattr(library, action)(_vif(library.objects, plug), server)
        except Exception as error:  # the library raises errors of many others
            raise DriverError("NetworksUnavailable", f"os-vif: {type(error).__name__}: {error}") from error


def _imported(ovsdb: str) -> Any:
    """Return os-vif; its calls run in this process and not in a helper."""
    use_threads()
    library = importlib.import_module(LIBRARY)
    library.initialize()
    settings = importlib.import_module("oslo_config.cfg").CONF
    for name, value in (("ovsdb_connection", ovsdb), ("ovs_vsctl_timeout", SECONDS)):
        settings.set_override(name, value, group="os_vif_ovs")
    # What was read when the plugin was loaded is of another database.
    library.initialize(reset=True)
    importlib.import_module(f"{PLUGIN}.privsep").vif_plug.set_client_mode(False)
    return library


def _vif(objects: Any, plug: Plug) -> Any:
    """Return a port as the library knows it."""
    said: dict[str, Any] = {
        "id": plug.port,
        "address": plug.mac,
        "plugin": "ovs",
        "network": objects.network.Network(id=plug.network, bridge=plug.bridge, mtu=plug.mtu),
        "port_profile": objects.vif.VIFPortProfileOpenVSwitch(
            interface_id=plug.port, datapath_type=plug.datapath, create_port=True
        ),
    }
    if plug.kind == "vhostuser":
        return objects.vif.VIFVHostUser(**said, vif_name=f"vhu{plug.port}"[:14], path=plug.source, mode=plug.mode)
    if plug.between:
        return objects.vif.VIFBridge(**said, vif_name=plug.device, bridge_name=plug.between)
    return objects.vif.VIFOpenVSwitch(**said, vif_name=plug.device, bridge_name=plug.bridge)
