"""Leads the suite's own compute clients through a story at each microversion; they judge every answer by their schemas.

A request goes to the other end of the pipe as a line of JSON on standard output, and its answer comes back as a line on
standard input. So do the few things that users cannot do: `{"build": SERVER}`. The last line is `{"wrong": [...]}`.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from tempest.lib import exceptions
from tempest.lib.services.compute import base_compute_client
from tempest.lib.services.compute.aggregates_client import AggregatesClient
from tempest.lib.services.compute.availability_zone_client import AvailabilityZoneClient
from tempest.lib.services.compute.extensions_client import ExtensionsClient
from tempest.lib.services.compute.flavors_client import FlavorsClient
from tempest.lib.services.compute.hypervisor_client import HypervisorClient
from tempest.lib.services.compute.keypairs_client import KeyPairsClient
from tempest.lib.services.compute.limits_client import LimitsClient
from tempest.lib.services.compute.migrations_client import MigrationsClient
from tempest.lib.services.compute.quota_classes_client import QuotaClassesClient
from tempest.lib.services.compute.quotas_client import QuotasClient
from tempest.lib.services.compute.server_groups_client import ServerGroupsClient
from tempest.lib.services.compute.servers_client import ServersClient
from tempest.lib.services.compute.services_client import ServicesClient

Given = dict[str, Any]


def say(line: Given) -> Any:
    """Send one line and return what the other end answers."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    return json.loads(sys.stdin.readline())


class AnswerOverPipe(dict[str, str]):
    """Headers of an answer by their small names, and its status."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(headers, status=str(status))
        self.status = status
        self.reason = ""


class SignedByToken:
    """Signs requests by a token; the address is the other end of the pipe."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_request(
        self, _method: str, url: str, headers: dict[str, str] | None = None, body: Any = None, filters: Any = None
    ) -> tuple[str, dict[str, str], Any]:
        address = f"{self.base_url(filters)}/{url}"
        return address, {**(headers or {}), "X-Auth-Token": self._token}, body

    def base_url(self, filters: Any = None, auth_data: Any = None) -> str:
        del filters, auth_data
        return "http://cloud/v2.1"


def through_the_pipe(kind: Any, token: str) -> Any:
    """Return a client of a kind whose requests go through the pipe."""

    def send(url: str, method: str, headers: Any = None, body: Any = None, chunked: bool = False, **_more: Any) -> Any:
        del chunked
        answer = say({"method": method, "url": url, "headers": headers, "body": body})
        return AnswerOverPipe(answer["status"], answer["headers"]), answer["body"].encode()

    client = kind(SignedByToken(token), "compute", "here")
    client.raw_request = send
    client._log_request = lambda *_words, **_more: None
    return client


class StoryOfClients:
    """What one user asks at one microversion."""

    def __init__(self, given: Given, token: str, version: str) -> None:
        self.given, self.token = given, token
        self.minor = int(version.split(".")[1])
        self.wrong: list[str] = []
        base_compute_client.COMPUTE_MICROVERSION = version

    def client(self, kind: Any) -> Any:
        return through_the_pipe(kind, self.token)

    def ask(self, call: Callable[..., Any], *words: Any, **named: Any) -> Any:
        """Call one method of a client; what it says against the answer is noted."""
        try:
            return call(*words, **named)
        except (exceptions.InvalidHTTPResponseBody, exceptions.InvalidHTTPResponseHeader) as error:
            said = " ".join(str(error).split())[:600]
        except exceptions.TempestException as error:
            said = repr(error)[:300]
        except exceptions.RestClientException as error:
            said = repr(error)[:300]
        self.wrong.append(f"2.{self.minor} {self.token} {call.__qualname__}: {said}")
        return None


def servers(story: StoryOfClients) -> None:
    """Tell a server's life as far as it needs no host."""
    ask, client = story.ask, story.client(ServersClient)
    networks: Given = {"networks": "none"} if story.minor >= 37 else {}
    made = ask(
        client.create_server,
        name="one",
        imageRef=story.given["image"],
        flavorRef="1",
        metadata={"a": "b"},
        **networks,
    )
    if made is None:
        return
    server = made["server"]["id"]
    several = ask(
        client.create_server, name="several", flavorRef="1", imageRef=story.given["image"], min_count=2, **networks
    )
    ask(client.show_server, server)
    say({"build": server})
    ask(client.show_server, server)
    ask(client.list_servers)
    ask(client.list_servers, detail=True)
    ask(client.list_servers, detail=True, limit=1)
    ask(client.update_server, server, name="uno", accessIPv4="192.0.2.1")
    ask(client.list_addresses, server)
    ask(client.list_server_metadata, server)
    ask(client.set_server_metadata, server, {"c": "d"})
    ask(client.update_server_metadata, server, {"e": "f"})
    ask(client.set_server_metadata_item, server, "e", {"e": "g"})
    ask(client.show_server_metadata_item, server, "e")
    ask(client.delete_server_metadata_item, server, "e")
    ask(client.lock_server, server)
    ask(client.unlock_server, server)
    _tags(story, client, server)
    actions = ask(client.list_instance_actions, server)
    for action in actions["instanceActions"] if actions else ():
        ask(client.show_instance_action, server, action["request_id"])
    if story.minor >= 23 and story.token == "admin":
        ask(client.list_in_progress_live_migration, server)
    ask(client.delete_server, server)
    for one in (several or {}).get("servers", ()):
        ask(client.delete_server, one["id"])


def _tags(story: StoryOfClients, client: Any, server: str) -> None:
    if not 26 <= story.minor <= 98:
        return  # the suite has no schemas of tags from 2.99 on
    story.ask(client.update_all_tags, server, ["blue", "green"])
    story.ask(client.list_tags, server)
    story.ask(client.check_tag_existence, server, "blue")
    story.ask(client.update_tag, server, "red")
    story.ask(client.delete_tag, server, "red")
    story.ask(client.delete_all_tags, server)


def small_things(story: StoryOfClients) -> None:
    """Ask for what members may see and make beside servers."""
    ask = story.ask
    ask(story.client(ExtensionsClient).list_extensions)
    ask(story.client(AvailabilityZoneClient).list_availability_zones)
    ask(story.client(LimitsClient).show_limits)
    flavors = story.client(FlavorsClient)
    ask(flavors.list_flavors)
    ask(flavors.list_flavors, detail=True)
    ask(flavors.show_flavor, "1")
    ask(flavors.list_flavor_extra_specs, "1")
    quotas = story.client(QuotasClient)
    ask(quotas.show_quota_set, story.given["project"])
    ask(quotas.show_default_quota_set, story.given["project"])
    groups = story.client(ServerGroupsClient)
    policy: Given = {"policy": "affinity"} if story.minor >= 64 else {"policies": ["affinity"]}
    group = ask(groups.create_server_group, name="together", **policy)
    ask(groups.list_server_groups)
    if group is not None:
        ask(groups.show_server_group, group["server_group"]["id"])
        ask(groups.delete_server_group, group["server_group"]["id"])


def key_pairs(story: StoryOfClients) -> None:
    """Import a key, look at it and delete it."""
    client = story.client(KeyPairsClient)
    story.ask(client.create_keypair, name="mine", public_key=story.given["public_key"])
    story.ask(client.list_keypairs)
    story.ask(client.show_keypair, "mine")
    story.ask(client.delete_keypair, "mine")


def of_admins(story: StoryOfClients) -> None:
    """Ask for what only admins may."""
    ask, minor = story.ask, story.minor
    ask(story.client(AvailabilityZoneClient).list_availability_zones, detail=True)
    ask(story.client(MigrationsClient).list_migrations)
    _flavors(story)
    quotas = story.client(QuotasClient)
    ask(quotas.show_quota_set, story.given["project"], detail=True)
    ask(quotas.update_quota_set, story.given["project"], cores=100_000)
    ask(quotas.delete_quota_set, story.given["project"])
    classes = story.client(QuotaClassesClient)
    ask(classes.show_quota_class_set, "default")
    ask(classes.update_quota_class_set, "default", cores=100_000)
    services = story.client(ServicesClient)
    ask(services.list_services)
    hypervisors = story.client(HypervisorClient)
    ask(hypervisors.list_hypervisors)
    if minor < 88:  # the suite has no schema with `uptime`, which came then
        listed = ask(hypervisors.list_hypervisors, detail=True)
        for one in listed["hypervisors"] if listed else ():
            ask(hypervisors.show_hypervisor, one["id"])
        ask(hypervisors.show_hypervisor_statistics)
    aggregates = story.client(AggregatesClient)
    made = ask(aggregates.create_aggregate, name="rack")
    if made is not None:
        number = made["aggregate"]["id"]
        ask(aggregates.list_aggregates)
        ask(aggregates.show_aggregate, number)
        ask(aggregates.update_aggregate, number, name="rack-2")
        ask(aggregates.set_metadata, number, metadata={"ssd": "true"})
        ask(aggregates.add_host, number, host=story.given["host"])
        ask(aggregates.remove_host, number, host=story.given["host"])
        ask(aggregates.delete_aggregate, number)


def _flavors(story: StoryOfClients) -> None:
    ask, client = story.ask, story.client(FlavorsClient)
    made = ask(client.create_flavor, name="new", ram=64, vcpus=1, disk=1, **{"os-flavor-access:is_public": False})
    if made is None:
        return
    flavor = made["flavor"]["id"]
    if story.minor >= 55:
        ask(client.update_flavor, flavor, description="new")
    ask(client.add_flavor_access, flavor, story.given["project"])
    ask(client.list_flavor_access, flavor)
    ask(client.remove_flavor_access, flavor, story.given["project"])
    ask(client.set_flavor_extra_spec, flavor, **{"hw:cpu_policy": "dedicated"})
    ask(client.show_flavor_extra_spec, flavor, "hw:cpu_policy")
    ask(client.update_flavor_extra_spec, flavor, "hw:cpu_policy", **{"hw:cpu_policy": "shared"})
    ask(client.unset_flavor_extra_spec, flavor, "hw:cpu_policy")
    ask(client.delete_flavor, flavor)


def main() -> None:
    """Tell all stories at the microversions that the first line names."""
    given = json.loads(sys.stdin.readline())
    wrong: list[str] = []
    for version in given["versions"]:
        for token, stories in (("member", (servers, small_things, key_pairs)), ("admin", (servers, of_admins))):
            story = StoryOfClients(given, token, version)
            for tell in stories:
                tell(story)
            wrong += story.wrong
    sys.stdout.write(json.dumps({"wrong": wrong}) + "\n")


if __name__ == "__main__":
    main()
