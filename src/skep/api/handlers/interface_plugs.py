"""Interfaces that the host of a server gives to its guest, or takes from it, while the server is there.

So it is where the driver of the host can do that (capability `attach_interface`). A port is there first; then the row
names the interface, in the unit that begins the action of the host. What the guest did not get, or has no more, leaves
the server: its row says so when the action ends, and a super conductor has the port released.
"""

from __future__ import annotations

from functools import partial

from skep.api.handlers.server_actions import begin_with
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import ApiRequest
from skep.database.cell import interfaces
from skep.domain.actions import ACTIONS, PLUG_INTERFACE, UNPLUG_INTERFACE
from skep.domain.vifs import PlugInterface, Vif


async def plug(request: ApiRequest, found: LocatedServer, vif: Vif) -> None:
    """Have the host of a server give its guest an interface. Raises Conflict where the row does not allow it."""
    write = partial(interfaces.plug, uuid=found.instance.uuid, vif=vif)
    await begin_with(request, found, ACTIONS[PLUG_INTERFACE], PlugInterface(vif=vif), write)


async def unplug(request: ApiRequest, found: LocatedServer, vif: Vif) -> None:
    """Have the host of a server take an interface from its guest. Raises Conflict where the row does not allow it."""
    write = partial(interfaces.has, uuid=found.instance.uuid, port_id=vif.id)
    await begin_with(request, found, ACTIONS[UNPLUG_INTERFACE], PlugInterface(vif=vif), write)
