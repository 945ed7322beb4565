"""Rows of the compute API's matrix: every route and action once or more often, and who has the right to it.

The rights are Nova's defaults, written down once more: policy and this table check one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from skep.api.actions import GONE_ACTIONS
from skep.api.schemas.consoles import BY_ACTION
from skep.domain.ids import new_uuid
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT
from skep_lab.compute_api.servers import IMAGE
from tests.support.access.compute_world import Things
from tests.support.access.matrix import Row, Thing
from tests.support.public_keys import ssh_key

PUBLIC_KEY = ssh_key()
ADDRESS_ACTIONS = {
    "addFixedIp": {"networkId": new_uuid()},
    "removeFixedIp": {"address": "10.0.0.9"},
    "addFloatingIp": {"address": "203.0.113.9", "fixed_address": "10.0.0.9"},
    "removeFloatingIp": {"address": "203.0.113.9"},
}
_SERVER = "/servers/{id}"
NO_PORT = "11111111-2222-4333-8444-555555555555"
_FLAVOR = "/flavors/{flavor_id}"
_AGGREGATE = "/os-aggregates/{aggregate_id}"
_HYPERVISOR = "/os-hypervisors/{hypervisor_id}"
_QUOTA = "/os-quota-sets/{project}"


def compute_rows(things: Things, place: str) -> list[Row]:
    """Return all rows; another project's server is at `place`."""
    above = (
        _flavors(things),
        _groups_and_quotas(things),
        _hosts(things),
        _images(things),
        _networks_by_proxy(),
        _volumes_by_proxy(),
        _key_pairs(things),
        _usage(things),
    )
    return [*server_rows(things, place), *(row for rows in above for row in rows)]


def server_rows(things: Things, place: str) -> list[Row]:
    """Return the rows of servers; another project's is at `place`."""
    server = things.by_place[place]
    return [*_servers(things, server), *_lists_and_creates(things, server)]


def _servers(things: Things, server: Thing) -> Iterator[Row]:
    """Yield what is done to one server."""
    row = partial(Row, thing=server, fill={"id": server})
    yield row(method="GET", path=_SERVER, right="reader")
    yield row(method="PUT", path=_SERVER, right="member", body={"server": {"name": "new"}})
    yield row(method="DELETE", path=_SERVER, right="member", served=204)
    yield from _actions(things, server)
    metadata = {"metadata": {"key": "new"}}
    yield row(method="GET", path=f"{_SERVER}/metadata", right="reader")
    yield row(method="POST", path=f"{_SERVER}/metadata", right="member", body=metadata)
    yield row(method="PUT", path=f"{_SERVER}/metadata", right="member", body=metadata)
    for key in ("key", "no such key"):
        there = 200 if key == "key" else 404
        item = partial(Row, thing=server, fill={"id": server, "key": key}, path=f"{_SERVER}/metadata/{{key}}")
        yield item(method="GET", right="reader", served=there)
        yield item(method="PUT", right="member", body={"meta": {key: "new"}})
        yield item(method="DELETE", right="member", served=204 if there == 200 else 404)
    tags = f"{_SERVER}/tags"
    yield row(method="GET", path=tags, right="reader")
    yield row(method="PUT", path=tags, right="member", body={"tags": ["new"]})
    yield row(method="DELETE", path=tags, right="member", served=204)
    for tag in ("tag", "other"):
        there = tag == "tag"
        item = partial(Row, thing=server, fill={"id": server, "tag": tag}, path=f"{tags}/{{tag}}")
        yield item(method="GET", right="reader", served=204 if there else 404)
        yield item(method="PUT", right="member", served=204 if there else 201)
        yield item(method="DELETE", right="member", served=204 if there else 404)
    actions = f"{_SERVER}/os-instance-actions"
    yield row(method="GET", path=actions, right="reader")
    made = {"id": things.server, "request_id": things.request}
    yield Row(method="GET", path=f"{actions}/{{request_id}}", right="reader", thing=things.server, fill=made)
    moves = f"{_SERVER}/migrations"
    yield row(method="GET", path=moves, right="manager")
    one = {"id": server, "migration_id": "1"}
    yield Row(method="GET", path=f"{moves}/{{migration_id}}", right="admin", thing=server, fill=one, served=404)
    for version in (47, 48):
        yield row(
            method="GET", path=f"{_SERVER}/diagnostics", right="admin", version=version, served=409, asks_host=True
        )
    yield row(method="GET", path=f"{_SERVER}/topology", right="reader")
    password = f"{_SERVER}/os-server-password"
    yield row(method="GET", path=password, right="reader")
    yield row(method="DELETE", path=password, right="member", served=204)
    end = partial(Row, thing=server, fill=one, right="manager", served=409)
    yield end(method="DELETE", path=f"{moves}/{{migration_id}}")
    force = {"force_complete": None}
    yield end(method="POST", path=f"{moves}/{{migration_id}}/action", action="force_complete", body=force)
    yield from _interfaces(server)
    yield from _volumes(server)
    console = {"remote_console": {"protocol": "serial", "type": "serial"}}
    consoles = f"{_SERVER}/remote-consoles"
    yield row(method="POST", path=consoles, right="member", body=console, served=409, asks_host=True)


def _interfaces(server: Thing) -> Iterator[Row]:
    """Yield what is read of the interfaces of a server, and how they are changed."""
    row = partial(Row, thing=server, fill={"id": server}, method="GET", right="reader")
    yield row(path=f"{_SERVER}/ips")
    yield row(path=f"{_SERVER}/ips/{{label}}", fill={"id": server, "label": "private"}, served=404)
    yield row(path=f"{_SERVER}/os-security-groups")
    yield row(path=f"{_SERVER}/os-interface")
    yield row(path=f"{_SERVER}/os-interface/{{port_id}}", fill={"id": server, "port_id": "1"}, served=404)
    change = partial(Row, thing=server, right="member")
    wanted = {"interfaceAttachment": {"port_id": NO_PORT}}
    yield change(method="POST", path=f"{_SERVER}/os-interface", fill={"id": server}, body=wanted, served=404)
    gone = {"id": server, "port_id": NO_PORT}
    yield change(method="DELETE", path=f"{_SERVER}/os-interface/{{port_id}}", fill=gone, served=404)


def _volumes(server: Thing) -> Iterator[Row]:
    """Yield what is read of the volumes of a server, and how they are changed."""
    several = f"{_SERVER}/os-volume_attachments"
    one, gone = f"{several}/{{volume_id}}", {"id": server, "volume_id": NO_PORT}
    yield Row(thing=server, fill={"id": server}, method="GET", path=several, right="reader")
    yield Row(thing=server, fill=gone, method="GET", path=one, right="reader", served=404)
    change = partial(Row, thing=server, right="member", served=404)
    wanted = {"volumeAttachment": {"volumeId": NO_PORT}}
    for version in (100, 101):
        yield change(method="POST", path=several, fill={"id": server}, body=wanted, version=version)
    yield change(method="PUT", path=one, fill=gone, body=wanted)
    yield change(method="DELETE", path=one, fill=gone)


def _actions(things: Things, server: Thing) -> Iterator[Row]:
    row = partial(Row, method="POST", path=f"{_SERVER}/action")
    own: dict[str, Any] = {"thing": server, "fill": {"id": server}}
    stopped: dict[str, Any] = {"thing": things.stopped, "fill": {"id": things.stopped}}
    yield row(action="os-start", right="member", body={"os-start": None}, served=202, **stopped)
    yield row(action="os-stop", right="member", body={"os-stop": None}, served=202, **own)
    for kind in ("SOFT", "HARD"):
        yield row(action="reboot", right="member", body={"reboot": {"type": kind}}, served=202, **own)
    yield row(action="pause", right="member", body={"pause": None}, served=202, **own)
    yield row(action="unpause", right="member", body={"unpause": None}, served=409, **own)
    yield row(action="suspend", right="member", body={"suspend": None}, served=202, **own)
    yield row(action="resume", right="member", body={"resume": None}, served=409, **own)
    image = {"createImage": {"name": "new"}}
    yield row(action="createImage", right="member", body=image, served=202, **own)
    backup = {"createBackup": {"name": "new", "backup_type": "daily", "rotation": 1}}
    yield row(action="createBackup", right="member", body=backup, served=202, **own)
    yield row(action="shelve", right="member", body={"shelve": None}, served=202, **own)
    yield row(action="shelveOffload", right="admin", body={"shelveOffload": None}, served=409, **own)
    yield row(action="unshelve", right="member", body={"unshelve": None}, served=409, **own)
    yield row(action="rebuild", right="member", body={"rebuild": {"imageRef": IMAGE}}, served=202, **own)
    yield row(action="migrate", right="manager", body={"migrate": None}, served=202, **own)
    resize = {"resize": {"flavorRef": "2"}}
    yield row(action="resize", right="member", body=resize, served=202, **own)
    yield row(action="evacuate", right="admin", body={"evacuate": {}}, served=409, **own)
    live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    yield row(action="os-migrateLive", right="manager", body=live, served=202, **own)
    yield row(action="confirmResize", right="member", body={"confirmResize": None}, served=409, **own)
    yield row(action="revertResize", right="member", body={"revertResize": None}, served=409, **own)
    yield row(action="lock", right="member", body={"lock": None}, served=202, **own)
    yield row(action="unlock", right="member", body={"unlock": None}, served=202, **own)
    yield row(action="os-resetState", right="admin", body={"os-resetState": {"state": "error"}}, served=202, **own)
    yield row(action="forceDelete", right="member", body={"forceDelete": None}, served=202, **own)
    yield row(action="restore", right="member", body={"restore": None}, served=409, **own)
    output = {"os-getConsoleOutput": {"length": 1}}
    yield row(action="os-getConsoleOutput", right="member", body=output, served=409, asks_host=True, **own)
    yield row(action="rescue", right="member", body={"rescue": None}, **own)
    for key in ("addSecurityGroup", "removeSecurityGroup"):
        yield row(action=key, right="member", body={key: {"name": "nowhere"}}, served=404, **own)
    yield row(action="unrescue", right="member", body={"unrescue": None}, served=409, **own)
    yield row(action="changePassword", right="member", body={"changePassword": {"adminPass": "x"}}, served=202, **own)
    yield row(action="trigger_crash_dump", right="member", body={"trigger_crash_dump": None}, served=202, **own)
    yield row(action="injectNetworkInfo", right="admin", body={"injectNetworkInfo": None}, served=202, **own)
    for name, kinds in BY_ACTION.items():
        given_out = name in {"os-getSerialConsole", "os-getVNCConsole"}
        asked = {name: {"type": kinds[0]}}
        yield row(action=name, right="member", body=asked, served=409 if given_out else 400, asks_host=given_out, **own)
    for name in GONE_ACTIONS:
        given_up = frozenset({410})
        yield row(action=name, right="token", body={name: None}, served=410, missing=410, hidden=given_up, **own)
    for name, said in ADDRESS_ACTIONS.items():
        yield row(action=name, right="member", body={name: said}, served=404, **own)


def _lists_and_creates(things: Things, server: Thing) -> Iterator[Row]:
    """Yield what names objects beside the path, or none."""
    new: dict[str, Any] = {"name": "new", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
    create = partial(Row, method="POST", path="/servers", right="member", served=202, missing=400)
    refused = frozenset({400, 403})
    yield create(body={"server": new})
    flavor = {"server": {**new, "flavorRef": things.flavor}}
    yield create(body=flavor, thing=things.flavor, hidden=refused)
    group = {"server": new, "os:scheduler_hints": {"group": things.group}}
    yield create(body=group, thing=things.group, hidden=refused)
    for path in ("/servers", "/servers/detail"):
        row = partial(Row, method="GET", path=path)
        yield row(right="reader")
        yield row(right="admin", query="all_tenants=1")
        yield row(right="reader", query=f"project_id={OTHER_PROJECT}")
        yield row(right="reader", query=f"tenant_id={OTHER_PROJECT}&host=host-1&name=sesame")
        for order in ("", "&sort_key=display_name"):
            marker: dict[str, Any] = {"thing": server, "hidden": refused, "missing": 400}
            yield row(right="reader", query=f"marker={{thing}}{order}", but={"admin": 400}, **marker)
        listed = frozenset({200, 403})
        yield row(right="reader", query="uuid={thing}", thing=server, hidden=listed, missing=200)


def _flavors(things: Things) -> Iterator[Row]:
    """Yield what is asked of flavors; a private one is another project's."""
    private, public = things.flavor, things.public_flavor
    yield Row(method="GET", path="/flavors", right="token")
    yield Row(method="GET", path="/flavors/detail", right="token")
    yield Row(method="GET", path="/flavors", right="token", query="is_public=None")
    yield Row(
        method="GET",
        path="/flavors",
        right="token",
        query="marker={thing}",
        thing=private,
        missing=400,
        hidden=frozenset({400}),
        but={"admin": 400, **{f"{name}{whose}": 400 for name in ("system", "domain") for whose in ("", " of foreign")}},
    )
    sizes = {"name": "new", "ram": 64, "vcpus": 1, "disk": 1}
    yield Row(method="POST", path="/flavors", right="admin", body={"flavor": sizes})
    yield Row(method="GET", path=_FLAVOR, right="owner", thing=private, fill={"flavor_id": private})
    row = partial(Row, thing=private, fill={"flavor_id": private})
    hw = {"hw:cpu_policy": "shared"}
    yield row(method="PUT", path=_FLAVOR, right="admin", body={"flavor": {"description": "new"}})
    yield row(method="DELETE", path=_FLAVOR, right="admin", served=202)
    specs = f"{_FLAVOR}/os-extra_specs"
    yield row(method="GET", path=specs, right="reader")
    yield row(method="POST", path=specs, right="admin", body={"extra_specs": hw})
    item = partial(Row, path=f"{specs}/{{key}}", thing=private)
    known = {"flavor_id": private, "key": "hw:mem_page_size"}
    yield item(method="GET", right="reader", fill=known)
    yield item(method="PUT", right="admin", fill=known, body={"hw:mem_page_size": "any"})
    yield item(method="DELETE", right="admin", fill=known)
    yield row(method="GET", path=f"{_FLAVOR}/os-flavor-access", right="admin")
    action = f"{_FLAVOR}/action"
    add = {"addTenantAccess": {"tenant": "cccc"}}
    yield row(method="POST", path=action, action="addTenantAccess", right="admin", body=add, served=400, missing=400)
    remove = {"removeTenantAccess": {"tenant": PROJECT}}
    own = Thing(private.own, private.missing)
    yield Row(
        method="POST",
        path=action,
        action="removeTenantAccess",
        right="admin",
        body=remove,
        thing=own,
        fill={"flavor_id": own},
    )
    yield Row(method="GET", path=_FLAVOR, right="token", thing=public, fill={"flavor_id": public})


def _groups_and_quotas(things: Things) -> Iterator[Row]:
    group = "/os-server-groups/{group_id}"
    yield Row(method="GET", path="/os-server-groups", right="reader")
    yield Row(method="GET", path="/os-server-groups", right="reader", query="all_projects=1")
    new = {"server_group": {"name": "new", "policy": "affinity"}}
    yield Row(method="POST", path="/os-server-groups", right="member", body=new)
    row = partial(Row, path=group, thing=things.group, fill={"group_id": things.group})
    yield row(method="GET", right="reader")
    yield row(method="DELETE", right="member", served=204)
    yield Row(method="GET", path="/limits", right="any")
    project = Thing(PROJECT, "c" * 32, OTHER_PROJECT)
    quota = partial(Row, thing=project, fill={"project": project}, missing=400)
    limits = "tenant_id={thing}"
    yield Row(
        method="GET",
        path="/limits",
        right="any",
        query=limits,
        thing=project,
        missing=200,
    )
    yield quota(method="GET", path=_QUOTA, right="reader")
    yield quota(method="GET", path=_QUOTA, right="reader", query="user_id=member")
    yield quota(method="GET", path=f"{_QUOTA}/detail", right="reader")
    yield quota(method="GET", path=f"{_QUOTA}/defaults", right="any", hidden=frozenset({200}))
    yield quota(method="PUT", path=_QUOTA, right="admin", body={"quota_set": {"cores": 7}})
    yield Row(
        method="DELETE",
        path=_QUOTA,
        right="admin",
        served=202,
        missing=202,
        thing=project,
        fill={"project": project},
    )
    for method, body in (("GET", None), ("PUT", {"quota_class_set": {"cores": 7}})):
        path, fill = "/os-quota-class-sets/{name}", {"name": "default"}
        yield Row(method=method, path=path, right="admin", fill=fill, body=body)


def _key_pairs(things: Things) -> Iterator[Row]:
    """Yield what is done to key pairs: each user has one of the same name."""
    one = "/os-keypairs/{name}"
    row = partial(Row, right="any", query="user_id={thing}", thing=things.user, of_user=True, hidden=frozenset({403}))
    new = {"name": "new", "public_key": PUBLIC_KEY}
    yield Row(method="POST", path="/os-keypairs", right="any", body={"keypair": new}, served=201)
    of_other = {"keypair": {**new, "user_id": things.user}}
    yield row(method="POST", path="/os-keypairs", query="", body=of_other, served=201, missing=201)
    yield row(method="GET", path="/os-keypairs", missing=200)
    yield row(method="GET", path=one, fill={"name": "mine"})
    yield row(method="DELETE", path=one, fill={"name": "mine"}, served=204)


def _hosts(things: Things) -> Iterator[Row]:
    """Yield what is the operator's."""
    yield Row(method="GET", path="/os-aggregates", right="admin")
    yield Row(method="POST", path="/os-aggregates", right="admin", body={"aggregate": {"name": "new"}})
    row = partial(Row, thing=things.aggregate, fill={"aggregate_id": things.aggregate}, right="admin")
    yield row(method="GET", path=_AGGREGATE)
    yield row(method="PUT", path=_AGGREGATE, body={"aggregate": {"name": "new"}})
    yield row(method="DELETE", path=_AGGREGATE)
    action = partial(row, method="POST", path=f"{_AGGREGATE}/action")
    yield action(action="add_host", body={"add_host": {"host": "host-9"}})
    yield action(action="remove_host", body={"remove_host": {"host": "host-9"}}, served=404)
    yield action(action="set_metadata", body={"set_metadata": {"metadata": {"ssd": "true"}}})
    cache = {"cache": [{"id": IMAGE}]}
    yield row(method="POST", path=f"{_AGGREGATE}/images", body=cache, served=202)
    yield Row(method="GET", path="/os-availability-zone", right="any")
    yield Row(method="GET", path="/os-availability-zone/detail", right="admin")
    for path in ("/os-hypervisors", "/os-hypervisors/detail", "/os-hypervisors/statistics"):
        yield Row(method="GET", path=path, right="admin")
    hypervisor = partial(Row, method="GET", right="admin", thing=things.hypervisor)
    yield hypervisor(path=_HYPERVISOR, fill={"hypervisor_id": things.hypervisor})
    yield hypervisor(path=f"{_HYPERVISOR}/uptime", fill={"hypervisor_id": things.hypervisor}, served=400)
    for name in ("search", "servers"):
        fill = {"hypervisor_id": things.host}
        yield Row(method="GET", path=f"{_HYPERVISOR}/{name}", right="admin", thing=things.host, fill=fill)
    yield Row(method="GET", path="/os-services", right="admin")
    wanted = {"host": things.host, "binary": "nova-compute"}
    for name, more in (
        ("enable", {}),
        ("disable", {}),
        ("disable-log-reason", {"disabled_reason": "new"}),
        ("force-down", {"forced_down": True}),
    ):
        yield Row(method="PUT", path=f"/os-services/{name}", right="admin", thing=things.host, body={**wanted, **more})
    service = partial(Row, path="/os-services/{service_id}", right="admin", thing=things.service)
    yield service(method="PUT", fill={"service_id": things.service}, body={"status": "disabled"})
    yield service(method="DELETE", fill={"service_id": things.service}, served=204)
    old = partial(Row, right="admin", thing=things.host, fill={"host": things.host})
    yield Row(method="GET", path="/os-hosts", right="admin")
    yield Row(method="GET", path="/os-hosts", right="admin", query="zone=nova")
    yield old(method="GET", path="/os-hosts/{host}")
    yield old(method="PUT", path="/os-hosts/{host}", body={"status": "disable"})
    for power in ("startup", "shutdown", "reboot"):
        yield old(method="GET", path=f"/os-hosts/{{host}}/{power}", served=501)
    yield Row(method="GET", path="/os-migrations", right="admin")
    yield Row(method="GET", path="/os-migrations", right="manager", query=f"project_id={PROJECT}")
    yield Row(method="GET", path="/extensions", right="any")
    yield Row(method="GET", path="/extensions/{alias}", right="any", fill={"alias": "os-aggregates"})


def _images(things: Things) -> Iterator[Row]:
    """Yield what is asked of images; the embedded image service judges, as by its own API."""
    path = "/images/{image_id}"
    service = {"service": 200}
    row = partial(Row, thing=things.image, fill={"image_id": things.image})
    for listed in ("/images", "/images/detail"):
        yield Row(method="GET", path=listed, right="reader", but=service)
        yield Row(method="GET", path=listed, right="reader", query="name=sesame&property-key=sesame", but=service)
        hidden = frozenset({400, 403})
        marker: dict[str, Any] = {"query": "marker={thing}", "thing": things.image, "missing": 400, "hidden": hidden}
        yield Row(method="GET", path=listed, right="reader", but=service, **marker)
    yield row(method="GET", path=path, right="reader", but=service)
    yield row(method="DELETE", path=path, right="member", served=204)
    metadata = {"metadata": {"key": "new"}}
    yield row(method="GET", path=f"{path}/metadata", right="reader", but=service)
    yield row(method="POST", path=f"{path}/metadata", right="member", body=metadata)
    yield row(method="PUT", path=f"{path}/metadata", right="member", body=metadata)
    for key in ("key", "none"):
        there = key == "key"
        fill = {"image_id": things.image, "key": key}
        item = partial(Row, path=f"{path}/metadata/{{key}}", thing=things.image, fill=fill)
        yield item(method="GET", right="reader", served=200 if there else 404, but={"service": 200 if there else 404})
        yield item(method="PUT", right="member", body={"meta": {key: "new"}})
        yield item(
            method="DELETE",
            right="member",
            served=204 if there else 404,
            but={} if there else {"reader": 404, "service": 404},
        )


def _networks_by_proxy() -> Iterator[Row]:
    """Yield what is asked of networks, of which this API has none: who may ask is told so."""
    row = partial(Row, served=404)
    groups, group = "/os-security-groups", "/os-security-groups/{group_id}"
    one = {"group_id": new_uuid()}
    said = {"security_group": {"name": "new", "description": ""}}
    yield row(method="GET", path=groups, right="reader")
    yield row(method="POST", path=groups, right="member", body=said)
    yield row(method="GET", path=group, right="reader", fill=one)
    yield row(method="PUT", path=group, right="member", fill=one, body=said)
    yield row(method="DELETE", path=group, right="member", fill=one)
    rule = {"parent_group_id": new_uuid(), "ip_protocol": "tcp", "from_port": 22, "to_port": 22}
    yield row(method="POST", path="/os-security-group-rules", right="member", body={"security_group_rule": rule})
    fill = {"rule_id": new_uuid()}
    yield row(method="DELETE", path="/os-security-group-rules/{rule_id}", right="member", fill=fill)
    yield row(method="GET", path="/os-floating-ip-pools", right="any")
    yield row(method="GET", path="/os-floating-ips", right="reader")
    yield row(method="POST", path="/os-floating-ips", right="member", body={"pool": "public"})
    floating = partial(row, path="/os-floating-ips/{floating_id}", fill={"floating_id": new_uuid()})
    yield floating(method="GET", right="reader")
    yield floating(method="DELETE", right="member")
    for networks in ("/os-networks", "/os-tenant-networks"):
        yield row(method="GET", path=networks, right="reader")
        one = {"network_id": new_uuid()}
        yield row(method="GET", path=f"{networks}/{{network_id}}", right="reader", fill=one)


def _volumes_by_proxy() -> Iterator[Row]:
    """Yield what is asked of volumes, of which this API has none: who may ask is told so."""
    row = partial(Row, served=404)
    made = {"/os-volumes": {"volume": {"size": 1}}, "/os-snapshots": {"snapshot": {"volume_id": new_uuid()}}}
    for path, body in made.items():
        noun = "volume_id" if path == "/os-volumes" else "snapshot_id"
        for several in (path, f"{path}/detail"):
            yield row(method="GET", path=several, right="reader")
        yield row(method="POST", path=path, right="member", body=body)
        one = partial(row, path=f"{path}/{{{noun}}}", fill={noun: new_uuid()})
        yield one(method="GET", right="reader")
        yield one(method="DELETE", right="member")


def _usage(things: Things) -> Iterator[Row]:
    """Yield what projects used, and what other services tell of servers."""
    project = Thing(PROJECT, "c" * 32, OTHER_PROJECT)
    usage = "/os-simple-tenant-usage"
    period = "start=2020-01-01T00:00:00&end=2100-01-01T00:00:00"
    yield Row(method="GET", path=usage, right="admin", query=f"{period}&detailed=1")
    of_one = partial(Row, method="GET", path=f"{usage}/{{project}}", thing=project, fill={"project": project})
    yield of_one(right="reader", query=period, missing=200)
    marker: dict[str, Any] = {"thing": things.server, "hidden": frozenset({400, 403}), "missing": 400}
    yield Row(method="GET", path=usage, right="admin", query=f"{period}&marker={{thing}}", **marker)
    audits = "/os-instance_usage_audit_log"
    yield Row(method="GET", path=audits, right="admin")
    yield Row(method="GET", path=f"{audits}/{{before}}", right="admin", fill={"before": "2026-01-31 12:00:00"})
    events = partial(Row, method="POST", path="/os-server-external-events", right="service", thing=things.server)
    seen = ("service",)
    event = {"name": "network-changed", "server_uuid": things.server}
    yield events(body={"events": [event]}, seen_by=seen, missing=207, hidden=frozenset({403}))
    token = {"token": "none"}
    yield Row(method="GET", path="/os-console-auth-tokens/{token}", right="admin", fill=token, served=404)
    snapshots = "/os-assisted-volume-snapshots"
    info = {"snapshot_id": "s", "type": "qcow2", "new_file": "f"}
    snapshot = {"snapshot": {"volume_id": "v", "create_info": info}}
    yield Row(method="POST", path=snapshots, right="service", body=snapshot, served=400)
    told = "delete_info=%7B%22volume_id%22%3A%22v%22%7D"
    fill = {"snapshot_id": "s"}
    yield Row(
        method="DELETE",
        path=f"{snapshots}/{{snapshot_id}}",
        right="service",
        fill=fill,
        query=told,
        served=400,
        version=1,
    )
