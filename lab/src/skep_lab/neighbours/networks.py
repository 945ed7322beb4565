"""A real Neutron on loopback, without agents: `scripts/bootstrap neutron` installs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx

from skep_lab.neighbours.identity_and_images import post
from skep_lab.neighbours.programs import account, programs, run, tokens
from skep_lab.neighbours.wsgi import WsgiService

GROUP = "neutron"
PART = str(programs(GROUP) / "neutron-db-manage")
DRIVER = Path(__file__).parent / "inside/skep_wires.py"
THREADS = 8
POINTS = "[neutron.ml2.mechanism_drivers]\nskep_wires = skep_wires:SkepWires\n"
TABLES = """
import sys
from neutron.db.migration.models import head
import sqlalchemy
head.get_metadata().create_all(sqlalchemy.create_engine(sys.argv[1]))
"""
"""Its migrations know MySQL only; its models know what they make."""
MADE_OF_DRIVER = "Metadata-Version: 2.1\nName: skep-wires\nVersion: 1\n"


class RealNeutron:
    """Neutron's API with a driver that wires ports itself, tells the compute service of it, and binds them anywhere."""

    def __init__(self, folder: Path, auth_url: str, database: str) -> None:
        """Take a folder for configuration and logs, and the URL of an empty PostgreSQL database."""
        self._folder = folder
        self._file = folder / "neutron.conf"
        self._auth_url = auth_url
        self._database = database
        environment = {
            "OS_NEUTRON_CONFIG_DIR": str(folder),
            "OS_NEUTRON_CONFIG_FILES": self._file.name,
            "PYTHONPATH": str(folder / "drivers"),
        }
        self.service = WsgiService(GROUP, "neutron.wsgi.api", folder, environment, THREADS)

    @property
    def url(self) -> str:
        """Its address, without a version."""
        return self.service.url

    def prepare(self) -> None:
        """Write the configuration and make the tables; blocks for a while."""
        self._folder.mkdir(mode=0o700)
        drivers = self._folder / "drivers"
        points = drivers / "skep_wires-1.dist-info"
        points.mkdir(parents=True)
        shutil.copy(DRIVER, drivers)
        (points / "METADATA").write_text(MADE_OF_DRIVER)
        (points / "entry_points.txt").write_text(POINTS)
        self._file.write_text(self._configuration())
        run(programs(GROUP) / "python", "-c", TABLES, self._database)

    async def populate(self, token: str) -> str:
        """Make a network to the outside and the pool that `networks: auto` takes addresses of; return its id."""
        headers = {"X-Auth-Token": token}
        async with httpx.AsyncClient(base_url=self.url, timeout=60.0, headers=headers, trust_env=False) as client:
            network = await self._made(
                client, "network", name="public", **{"router:external": True, "is_default": True}, **_FLAT
            )
            await self._made(
                client,
                "subnet",
                network_id=network["id"],
                name="public",
                ip_version=4,
                cidr="192.0.2.0/24",
                enable_dhcp=False,
            )
            await self._made(
                client,
                "subnetpool",
                name="shared",
                prefixes=["10.64.0.0/12"],
                default_prefixlen=26,
                shared=True,
                is_default=True,
            )
        return str(network["id"])

    async def _made(self, client: httpx.AsyncClient, kind: str, **facts: Any) -> Any:
        return (await post(client, f"/v2.0/{kind}s", {kind: facts}))[kind]

    def _configuration(self) -> str:
        return f"""
[DEFAULT]
core_plugin = ml2
service_plugins = router,qos,tag,auto_allocate,network_ip_availability,revisions,timestamp
transport_url = fake://
rpc_workers = 0
state_path = {self._folder}/state
api_paste_config = {programs(GROUP).parent}/etc/neutron/api-paste.ini
auth_strategy = keystone
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
send_events_interval = 1
dhcp_agents_per_network = 0
[database]
connection = {self._database}
max_pool_size = 20
[ml2]
type_drivers = flat,vxlan
tenant_network_types = vxlan
mechanism_drivers = skep_wires
extension_drivers = port_security,qos,dns
[ml2_type_flat]
flat_networks = outside
[ml2_type_vxlan]
vni_ranges = 1:65000
[securitygroup]
enable_security_group = true
[quotas]
quota_network = -1
quota_subnet = -1
quota_port = -1
quota_router = -1
quota_floatingip = -1
quota_security_group = -1
quota_security_group_rule = -1
[oslo_messaging_notifications]
driver = noop
[oslo_concurrency]
lock_path = {self._folder}/locks
{tokens(self._auth_url, "neutron")}
{account("nova", self._auth_url, "neutron")}
"""


_FLAT = {"provider:network_type": "flat", "provider:physical_network": "outside"}
