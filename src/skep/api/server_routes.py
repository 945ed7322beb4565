"""Rows of the route table for servers and what hangs below them."""

from __future__ import annotations

from functools import partial

from skep.api.actions import ACTION_ROWS, GONE_ACTIONS
from skep.api.handlers import (
    guest_questions,
    instance_actions,
    migrations,
    server_actions,
    server_addresses,
    server_create,
    server_interfaces,
    server_list,
    server_metadata,
    server_migrations,
    server_passwords,
    server_tags,
    server_topology,
    server_volumes,
    servers,
    soft_deletes,
)
from skep.api.roles import ANY_SCOPE
from skep.api.routing import Route
from skep.api.schemas import migrations as migration_schemas
from skep.api.schemas import server_answers as answers
from skep.api.schemas import server_queries as queries
from skep.api.schemas import servers as bodies
from skep.api.schemas.fields import Anything
from skep.api.schemas.validation import Body

_RULE = "os_compute_api:servers"
_METADATA = "os_compute_api:server-metadata"
_TAGS = "os_compute_api:os-server-tags"
_ACTIONS = "os_compute_api:os-instance-actions"
_VOLUMES = "os_compute_api:os-volumes-attachments"

_of_server = partial(Route, target="object")
"""A row whose rule is checked for the owner of the server that the path names."""
_tagged = partial(_of_server, since=26)

_SERVERS = (
    Route(
        method="POST",
        path="/servers",
        handler=server_create.create,
        rule=f"{_RULE}:create",
        status=202,
        body=bodies.CREATE,
        response=answers.CREATED,
        intake=True,
    ),
    Route(
        method="GET",
        path="/servers",
        handler=server_list.index,
        rule=f"{_RULE}:index",
        query=queries.LIST,
        response=answers.LISTED,
    ),
    Route(
        method="GET",
        path="/servers/detail",
        handler=server_list.detail,
        rule=f"{_RULE}:detail",
        query=queries.LIST,
        response=answers.DETAILED,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}",
        handler=servers.show,
        rule=f"{_RULE}:show",
        query=queries.SHOW,
        response=answers.SHOWN,
    ),
    _of_server(
        method="PUT",
        path="/servers/{id}",
        handler=servers.update,
        rule=f"{_RULE}:update",
        body=bodies.UPDATE,
        response=answers.UPDATED,
    ),
    _of_server(method="DELETE", path="/servers/{id}", handler=soft_deletes.delete, rule=f"{_RULE}:delete", status=204),
)

_action = partial(_of_server, method="POST", path="/servers/{id}/action")
_SERVER_ACTIONS = (
    *(
        _action(
            action=row.key,
            handler=server_actions.act,
            rule=row.rule,
            body=row.body or bodies.any_value(row.key),
            status=row.status,
            response=row.response,
            since=row.since,
            until=row.until,
        )
        for row in ACTION_ROWS
    ),
    *(
        Route(
            method="POST",
            path="/servers/{id}/action",
            action=key,
            handler=server_actions.given_up,
            rule=ANY_SCOPE,
            body=Body(Anything()),
            status=202,
        )
        for key in sorted(GONE_ACTIONS)
    ),
)

_SERVER_METADATA = (
    _of_server(
        method="GET",
        path="/servers/{id}/metadata",
        handler=server_metadata.index,
        rule=f"{_METADATA}:index",
        response=answers.METADATA,
    ),
    _of_server(
        method="POST",
        path="/servers/{id}/metadata",
        handler=server_metadata.create,
        rule=f"{_METADATA}:create",
        body=bodies.METADATA_SET,
        response=answers.METADATA,
    ),
    _of_server(
        method="PUT",
        path="/servers/{id}/metadata",
        handler=server_metadata.update_all,
        rule=f"{_METADATA}:update_all",
        body=bodies.METADATA_SET,
        response=answers.METADATA,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/metadata/{key}",
        handler=server_metadata.show,
        rule=f"{_METADATA}:show",
        response=answers.METADATA_ITEM,
    ),
    _of_server(
        method="PUT",
        path="/servers/{id}/metadata/{key}",
        handler=server_metadata.update,
        rule=f"{_METADATA}:update",
        body=bodies.METADATA_ITEM,
        response=answers.METADATA_ITEM,
    ),
    _of_server(
        method="DELETE",
        path="/servers/{id}/metadata/{key}",
        handler=server_metadata.delete,
        rule=f"{_METADATA}:delete",
        status=204,
    ),
)

_SERVER_TAGS = (
    _tagged(
        method="GET",
        path="/servers/{id}/tags",
        handler=server_tags.index,
        rule=f"{_TAGS}:index",
        response=answers.TAGS,
    ),
    _tagged(
        method="PUT",
        path="/servers/{id}/tags",
        handler=server_tags.update_all,
        rule=f"{_TAGS}:update_all",
        body=bodies.TAGS_SET,
        response=answers.TAGS,
    ),
    _tagged(
        method="DELETE",
        path="/servers/{id}/tags",
        handler=server_tags.delete_all,
        rule=f"{_TAGS}:delete_all",
        status=204,
    ),
    _tagged(
        method="GET",
        path="/servers/{id}/tags/{tag}",
        handler=server_tags.show,
        rule=f"{_TAGS}:show",
        status=204,
    ),
    _tagged(
        method="PUT",
        path="/servers/{id}/tags/{tag}",
        handler=server_tags.update,
        rule=f"{_TAGS}:update",
        status=201,
        partly=204,
    ),
    _tagged(
        method="DELETE",
        path="/servers/{id}/tags/{tag}",
        handler=server_tags.delete,
        rule=f"{_TAGS}:delete",
        status=204,
    ),
)

_BELOW_SERVERS = (
    _of_server(
        method="GET",
        path="/servers/{id}/os-instance-actions",
        handler=instance_actions.index,
        rule=f"{_ACTIONS}:list",
        query=queries.ACTIONS,
        response=answers.ACTIONS,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-instance-actions/{request_id}",
        handler=instance_actions.show,
        rule=f"{_ACTIONS}:show",
        response=answers.ACTION,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/migrations",
        handler=migrations.of_server,
        rule=f"{_RULE}:migrations:index",
        response=migration_schemas.OF_SERVER,
        since=23,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/migrations/{migration_id}",
        handler=migrations.one_of_server,
        rule=f"{_RULE}:migrations:show",
        response=migration_schemas.ONE_OF_SERVER,
        since=23,
    ),
    _of_server(
        method="DELETE",
        path="/servers/{id}/migrations/{migration_id}",
        handler=server_migrations.abort,
        rule=f"{_RULE}:migrations:delete",
        status=202,
        since=24,
    ),
    _of_server(
        method="POST",
        path="/servers/{id}/migrations/{migration_id}/action",
        action="force_complete",
        handler=server_migrations.act,
        rule=f"{_RULE}:migrations:force_complete",
        body=bodies.FORCE_COMPLETE,
        status=202,
        since=22,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/diagnostics",
        handler=guest_questions.diagnostics,
        rule="os_compute_api:os-server-diagnostics",
        until=guest_questions.STANDARD_SINCE - 1,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/diagnostics",
        handler=guest_questions.diagnostics,
        rule="os_compute_api:os-server-diagnostics",
        response=answers.DIAGNOSTICS,
        since=guest_questions.STANDARD_SINCE,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-server-password",
        handler=server_passwords.show,
        rule="os_compute_api:os-server-password:show",
        response=answers.PASSWORD,
    ),
    _of_server(
        method="DELETE",
        path="/servers/{id}/os-server-password",
        handler=server_passwords.clear,
        rule="os_compute_api:os-server-password:clear",
        status=204,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/topology",
        handler=server_topology.show,
        rule="compute:server:topology:index",
        response=answers.TOPOLOGY,
        since=78,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/ips",
        handler=server_addresses.index,
        rule="os_compute_api:ips:index",
        response=answers.ADDRESSES,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/ips/{label}",
        handler=server_addresses.show,
        rule="os_compute_api:ips:show",
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-interface",
        handler=server_addresses.interfaces,
        rule="os_compute_api:os-attach-interfaces:list",
        response=answers.INTERFACES,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-interface/{port_id}",
        handler=server_addresses.interface,
        rule="os_compute_api:os-attach-interfaces:show",
        response=answers.INTERFACE,
    ),
    _of_server(
        method="POST",
        path="/servers/{id}/os-interface",
        handler=server_interfaces.attach,
        rule="os_compute_api:os-attach-interfaces:create",
        body=bodies.ATTACH_INTERFACE,
        response=answers.INTERFACE,
    ),
    _of_server(
        method="DELETE",
        path="/servers/{id}/os-interface/{port_id}",
        handler=server_interfaces.detach,
        rule="os_compute_api:os-attach-interfaces:delete",
        status=202,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-volume_attachments",
        handler=server_volumes.index,
        rule=f"{_VOLUMES}:index",
        query=queries.VOLUMES,
        response=answers.VOLUMES,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-volume_attachments/{volume_id}",
        handler=server_volumes.show,
        rule=f"{_VOLUMES}:show",
        response=answers.VOLUME,
    ),
    _of_server(
        method="POST",
        path="/servers/{id}/os-volume_attachments",
        handler=server_volumes.attach,
        rule=f"{_VOLUMES}:create",
        body=bodies.ATTACH_VOLUME,
        response=answers.VOLUME_MADE,
        until=100,
    ),
    _of_server(
        method="POST",
        path="/servers/{id}/os-volume_attachments",
        handler=server_volumes.attach,
        rule=f"{_VOLUMES}:create",
        body=bodies.ATTACH_VOLUME,
        status=202,
        since=101,
    ),
    _of_server(
        method="PUT",
        path="/servers/{id}/os-volume_attachments/{volume_id}",
        handler=server_volumes.update,
        rule=f"{_VOLUMES}:update",
        body=bodies.UPDATE_VOLUME,
        status=202,
    ),
    _of_server(
        method="DELETE",
        path="/servers/{id}/os-volume_attachments/{volume_id}",
        handler=server_volumes.detach,
        rule=f"{_VOLUMES}:delete",
        status=202,
    ),
    _of_server(
        method="GET",
        path="/servers/{id}/os-security-groups",
        handler=server_addresses.security_groups,
        rule="os_compute_api:os-security-groups:list",
        response=answers.SECURITY_GROUPS,
    ),
)

SERVER_ROUTES: tuple[Route, ...] = (
    *_SERVERS,
    *_SERVER_ACTIONS,
    *_SERVER_METADATA,
    *_SERVER_TAGS,
    *_BELOW_SERVERS,
)
