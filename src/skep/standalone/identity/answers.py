"""What the identity service answers, in the words of Keystone's API: its document is made of these types."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict

Interface: TypeAlias = Literal["public", "internal", "admin"]
INTERFACES: tuple[Interface, ...] = ("public", "internal", "admin")


class SelfLink(TypedDict):
    """Where something is."""

    self: str


class ListLinks(SelfLink):
    """Where a list is, which is never cut into pages, as Keystone's is not by default."""

    previous: None
    next: None


class ShownList(TypedDict):
    """What all lists have."""

    links: ListLinks


class EmptyOptions(TypedDict):
    """Options, of which there are none."""


class NamedById(TypedDict):
    """Something by its id and its name."""

    id: str
    name: str


class ShownUser(TypedDict):
    """A user; never the password's hash."""

    id: str
    name: str
    domain_id: str
    enabled: bool
    description: str
    password_expires_at: str | None
    options: EmptyOptions
    links: SelfLink
    email: NotRequired[str]
    default_project_id: NotRequired[str]
    project_id: NotRequired[str]


class ShownProject(TypedDict):
    """A project."""

    id: str
    name: str
    domain_id: str
    parent_id: str
    is_domain: bool
    description: str
    enabled: bool
    tags: list[str]
    options: EmptyOptions
    links: SelfLink


class ShownRole(TypedDict):
    """A role; none is of a domain alone."""

    id: str
    name: str
    domain_id: None
    description: str | None
    options: EmptyOptions
    links: SelfLink


class ShownDomain(TypedDict):
    """A domain."""

    id: str
    name: str
    description: str
    enabled: bool
    tags: list[str]
    options: EmptyOptions
    links: SelfLink


class ShownGroup(TypedDict):
    """A group."""

    id: str
    name: str
    domain_id: str
    description: str
    links: SelfLink


class ReferenceInDomain(NamedById):
    """Something by its id and its name, which is unique in a domain."""

    domain: NamedById


class ShownRule(TypedDict):
    """An access rule, as a credential has it."""

    id: str
    service: str
    method: str
    path: str


class ShownRuleOfUser(ShownRule):
    """An access rule by itself."""

    links: SelfLink


class RoleOfCredential(NamedById):
    """A role of an application credential."""

    domain_id: None


class ShownCredential(TypedDict):
    """An application credential."""

    id: str
    name: str
    description: str
    user_id: str
    project_id: str
    roles: list[RoleOfCredential]
    expires_at: str | None
    unrestricted: bool
    links: SelfLink
    access_rules: NotRequired[list[ShownRule]]
    secret: NotRequired[str]


class CredentialOfToken(TypedDict):
    """The application credential by which a token was made."""

    id: str
    name: str
    restricted: bool
    access_rules: NotRequired[list[ShownRule]]


class WholeSystem(TypedDict):
    """The system as a place where somebody has a role."""

    all: bool


class UserOfToken(ReferenceInDomain):
    """Whose a token is."""

    password_expires_at: str | None


class EndpointOfToken(TypedDict):
    """An endpoint, as a token has it."""

    id: str
    interface: Interface
    region: str
    region_id: str
    url: str


class ServiceOfToken(TypedDict):
    """A service with its endpoints, as a token has it."""

    id: str
    type: str
    name: str
    endpoints: list[EndpointOfToken]


class ShownToken(TypedDict):
    """What a token is good for."""

    methods: list[str]
    user: UserOfToken
    audit_ids: list[str]
    issued_at: str
    expires_at: str
    project: NotRequired[ReferenceInDomain]
    is_domain: NotRequired[bool]
    domain: NotRequired[NamedById]
    application_credential: NotRequired[CredentialOfToken]
    system: NotRequired[WholeSystem]
    roles: NotRequired[list[NamedById]]
    catalog: NotRequired[list[ServiceOfToken]]


class ShownService(TypedDict):
    """A service of the catalogue."""

    id: str
    type: str
    name: str
    description: str
    enabled: bool
    links: SelfLink


class ShownEndpoint(EndpointOfToken):
    """An endpoint of the catalogue."""

    service_id: str
    enabled: bool
    links: SelfLink


class ShownRegion(TypedDict):
    """The one region."""

    id: str
    description: str
    parent_region_id: None
    links: SelfLink


class OneUser(TypedDict):
    """The answer with one user."""

    user: ShownUser


class ListedUsers(ShownList):
    """The answer with several users."""

    users: list[ShownUser]


class OneProject(TypedDict):
    """The answer with one project."""

    project: ShownProject


class ListedProjects(ShownList):
    """The answer with several projects."""

    projects: list[ShownProject]


class OneRole(TypedDict):
    """The answer with one role."""

    role: ShownRole


class ListedRoles(ShownList):
    """The answer with several roles."""

    roles: list[ShownRole]


class OneDomain(TypedDict):
    """The answer with one domain."""

    domain: ShownDomain


class ListedDomains(ShownList):
    """The answer with several domains."""

    domains: list[ShownDomain]


class OneGroup(TypedDict):
    """The answer with one group."""

    group: ShownGroup


class ListedGroups(ShownList):
    """The answer with several groups."""

    groups: list[ShownGroup]


class OneCredential(TypedDict):
    """The answer with one application credential."""

    application_credential: ShownCredential


class ListedCredentials(ShownList):
    """The answer with several application credentials."""

    application_credentials: list[ShownCredential]


class OneRuleOfUser(TypedDict):
    """The answer with one access rule."""

    access_rule: ShownRuleOfUser


class ListedRulesOfUser(ShownList):
    """The answer with several access rules."""

    access_rules: list[ShownRuleOfUser]


class OneService(TypedDict):
    """The answer with one service."""

    service: ShownService


class ListedServices(ShownList):
    """The answer with several services."""

    services: list[ShownService]


class OneEndpoint(TypedDict):
    """The answer with one endpoint."""

    endpoint: ShownEndpoint


class ListedEndpoints(ShownList):
    """The answer with several endpoints."""

    endpoints: list[ShownEndpoint]


class OneRegion(TypedDict):
    """The answer with one region."""

    region: ShownRegion


class ListedRegions(ShownList):
    """The answer with several regions."""

    regions: list[ShownRegion]


class OneToken(TypedDict):
    """The answer with what a token is good for."""

    token: ShownToken


class ListedSystem(ShownList):
    """The answer whether somebody has a role in the system."""

    system: list[WholeSystem]


class OneCatalogue(TypedDict):
    """The answer with the catalogue."""

    catalog: list[ServiceOfToken]
    links: SelfLink


class RoleInBrief(NamedById):
    """A role where it is about others that it implies."""

    links: SelfLink


class ShownInferences(TypedDict):
    """A role, and those that it implies by itself."""

    prior_role: RoleInBrief
    implies: list[RoleInBrief]


class ListedInferences(ShownList):
    """The answer with which roles imply others."""

    role_inferences: list[ShownInferences]


class OneInferences(TypedDict):
    """The answer with what one role implies."""

    role_inference: ShownInferences
    links: SelfLink


class ShownInference(TypedDict):
    """A role, and another that it implies."""

    prior_role: RoleInBrief
    implies: RoleInBrief


class OneInference(TypedDict):
    """The answer that a role implies another."""

    role_inference: ShownInference


class NamedOrNot(TypedDict):
    """Something by its id, with its name where that was asked for."""

    id: str
    name: NotRequired[str]


class NamedOrNotInDomain(NamedOrNot):
    """The same of something that a domain has."""

    domain: NotRequired[NamedById]


ScopeOfAssignment = TypedDict(
    "ScopeOfAssignment",
    {
        "project": NotRequired[NamedOrNotInDomain],
        "domain": NotRequired[NamedOrNot],
        "system": NotRequired[WholeSystem],
        "OS-INHERIT:inherited_to": NotRequired[Literal["projects"]],
    },
)
"""Where somebody has a role."""


class AssignmentLinks(TypedDict):
    """Where an assignment is."""

    assignment: str


class ShownAssignment(TypedDict):
    """Who has which role where."""

    role: NamedOrNot
    user: NotRequired[NamedOrNotInDomain]
    group: NotRequired[NamedOrNotInDomain]
    scope: ScopeOfAssignment
    links: AssignmentLinks


class ListedAssignments(ShownList):
    """The answer with who has which role where."""

    role_assignments: list[ShownAssignment]


class VersionLink(TypedDict):
    """Where a version is."""

    rel: Literal["self"]
    href: str


class ShownMediaType(TypedDict):
    """What a version is spoken in."""

    base: str
    type: str


ShownVersion = TypedDict(
    "ShownVersion",
    {
        "id": str,
        "status": Literal["stable"],
        "updated": str,
        "links": list[VersionLink],
        "media-types": list[ShownMediaType],
    },
)
"""A version of Keystone's API."""


class OneVersion(TypedDict):
    """The answer with one version."""

    version: ShownVersion


class VersionValues(TypedDict):
    """All versions, below a key of their own as Keystone has it."""

    values: list[ShownVersion]


class ListedVersions(TypedDict):
    """The answer with all versions."""

    versions: VersionValues
