"""One matrix: rows (routes with an object), callers, and what must be true of each answer.

A caller without a right hears 403, or 404 where even the object is none of his business. Of another project's object
he hears, to the letter, what he hears of one that is not there. Nothing that is refused changes anything, and nothing
ends in a 5xx.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import httpx

from tests.support.documented import Documented

Whose: TypeAlias = Literal["own", "foreign", "missing"]
Right: TypeAlias = str
"""`any`: a valid token of a project. `token`: of whatever scope. `owner`: whose project it is, whatever his role. All
else names a role."""
Key: TypeAlias = tuple[str, str, str | None]
"""Method, path of the table, action: what a row is for."""

UNSUPPORTED = 501
"""Says that no driver can do it, and is the one 5xx that a row may expect."""

OF_A_REQUEST = re.compile(r"req-[0-9a-f-]{36}")
NOT_COMPARED = frozenset({"x-openstack-request-id", "x-compute-request-id", "content-length", "date"})


@dataclass(frozen=True)
class Thing:
    """What names an object in a path or a body: one of the caller's project, another project's, one that is not there.

    Without `foreign` it is the cloud's: nobody's, and everybody's.
    """

    own: str
    missing: str
    foreign: str | None = None

    def of(self, whose: Whose) -> str:
        """Return the one that is meant."""
        return {"own": self.own, "missing": self.missing, "foreign": self.foreign or self.own}[whose]


@dataclass(frozen=True)
class Caller:
    """A kind of caller."""

    name: str
    headers: Mapping[str, str]
    roles: frozenset[str] = frozenset()
    owns: bool = True
    """Whether what is `own` in the rows is of the caller's project."""
    himself: bool = False
    """Whether the user that is `own` in the rows is the caller."""
    known: bool = True
    """Whether the token is valid."""
    barred: bool = False
    """Whether the caller has no right that a rule gives, not even those of `any`."""

    def at(self, row: Row) -> Caller:
        """Return the caller as a row sees him: one that asks no rule bars nobody."""
        return replace(self, barred=False) if row.right in ("token", "owner") else self

    @property
    def is_admin(self) -> bool:
        """Whether every object is the caller's."""
        return "admin" in self.roles and not self.barred

    def has(self, right: Right) -> bool:
        """Tell whether the caller has a right to what is his project's."""
        return not self.barred and (right in ("any", "token", "owner") or self.is_admin or right in self.roles)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A route, asked of some object (or of none)."""

    method: str
    path: str
    """As in the table: with `{names}`."""
    service: str = ""
    """Which of several services behind one world is asked."""
    action: str | None = None
    right: Right
    fill: Mapping[str, Any] = field(default_factory=dict)
    """What stands for the names: texts, or things."""
    query: str = ""
    """With `{thing}`, where the query names the object."""
    body: Any = None
    """JSON in which things stand for themselves."""
    thing: Thing | None = None
    """The object. None: the route has none, or one that is everybody's."""
    of_user: bool = False
    """Whether the object is a user's and not a project's."""
    version: int | None = None
    """Microversion; None: the newest of the route."""
    served: int = 200
    missing: int = 404
    """What is answered to those with the right when the object is not there."""
    hidden: frozenset[int] = frozenset({403, 404})
    """What may be answered of another project's object, and of a missing one."""
    but: Mapping[str, int] = field(default_factory=dict)
    """Answers to callers that differ: by name for the own object, by `NAME of foreign` and `NAME of missing`."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Texts, or things."""
    asks_host: bool = False
    """Whether it asks a host, of which there is none here: those with the right wait, and hear `served`."""
    seen_by: tuple[str, ...] = ()
    """Callers who have the right to everybody's, as admins have."""

    def is_all_of(self, caller: Caller) -> bool:
        """Tell whether every object is the caller's here."""
        return caller.is_admin or caller.name in self.seen_by

    @property
    def key(self) -> Key:
        """What the row is for."""
        return (self.method, self.path, self.action)

    @property
    def whose(self) -> tuple[Whose, ...]:
        """Return which objects it is asked of."""
        if self.thing is None:
            return ("own",)
        return ("own", "missing") if self.thing.foreign is None else ("own", "foreign", "missing")

    def url(self, whose: Whose) -> str:
        """Return path and query."""
        words = {name: _filled(value, whose) for name, value in self.fill.items()}
        path = re.sub(r"{(\w+)}", lambda found: str(words[found[1]]), self.path)
        return path + (f"?{self.query}".format(thing=_filled(self.thing, whose)) if self.query else "")

    def content(self, whose: Whose) -> Any:
        """Return the body."""
        return _filled(self.body, whose)

    def names(self, whose: Whose) -> list[str]:
        """Return what names the object, the longest first."""
        things = [self.thing, *self.fill.values(), *self.headers.values(), *_things(self.body)]
        return sorted({one.of(whose) for one in things if isinstance(one, Thing)}, key=len, reverse=True)


@dataclass
class World:
    """What is asked, and how it is known whether it changed."""

    send: Callable[[str, str, Any, Row, Mapping[str, str]], Awaitable[httpx.Response]]
    """Method, url, body, row, headers of the caller."""
    changed: Callable[[], bool]
    """Tells whether anything was stored, or told to others, since `restore`."""
    restore: Callable[[], Awaitable[None]]
    """Makes all as it was at the beginning."""
    secrets: tuple[str, ...] = ()
    """Texts that stand in foreign objects: whoever is no admin must never read one."""


async def walk(
    world: World, rows: Iterable[Row], callers: Iterable[Caller], documented: Documented | None = None
) -> list[str]:
    """Ask every row by every caller, and return what should not have been answered, or not as it is documented."""
    wrong: list[str] = []
    callers = tuple(callers)
    for row in rows:
        for caller in callers:
            wrong += await _asked(world, row, caller, documented)
    return wrong


async def _asked(world: World, row: Row, caller: Caller, documented: Documented | None) -> list[str]:
    caller = caller.at(row)
    wrong: list[str] = []
    answers: dict[Whose, httpx.Response] = {}
    for whose in row.whose:
        answer = answers[whose] = await world.send(
            row.method, row.url(whose), row.content(whose), row, {**_filled(dict(row.headers), whose), **caller.headers}
        )
        changed = world.changed()
        problem = _judged(world, row, caller, whose, answer, changed=changed)
        if not problem and documented is not None:
            problem = documented.fault(answer)
        if problem:
            wrong.append(f"{_title(row, caller, whose)}: {problem}; answered {answer.status_code} {answer.text[:300]}")
        if changed:
            await world.restore()
    if "foreign" in answers and not row.is_all_of(caller):
        foreign, missing = (_told(row, whose, answers[whose]) for whose in ("foreign", "missing"))
        if foreign != missing:
            wrong.append(f"{_title(row, caller, 'foreign')}: told from a missing one: {foreign} and {missing}")
    return wrong


def _judged(world: World, row: Row, caller: Caller, whose: Whose, answer: httpx.Response, *, changed: bool) -> str:
    """Return what is wrong with an answer; nothing if all is well."""
    expected = expected_of(row, caller, whose)
    if answer.status_code >= 500 and not answer.status_code == row.served == UNSUPPORTED:
        return "a 5xx"
    if answer.status_code not in expected:
        return f"expected {' or '.join(str(one) for one in sorted(expected))}"
    if changed and not answer.is_success and not (row.asks_host and answer.status_code == row.served):
        return "it was refused, and changed something"
    if not row.is_all_of(caller) and any(
        secret in answer.text or secret in str(answer.headers) for secret in world.secrets
    ):
        return "it tells of another project's object"
    return ""


def expected_of(row: Row, caller: Caller, whose: Whose) -> frozenset[int]:
    """Return which statuses are right."""
    excepted = caller.name if whose == "own" else f"{caller.name} of {whose}"
    if excepted in row.but:
        return frozenset({row.but[excepted]})
    if not caller.known:
        return frozenset({401})
    if caller.barred:
        return row.hidden | {403} if row.thing is not None and row.thing.foreign is not None else frozenset({403})
    if row.thing is None:
        return frozenset({row.served if caller.has(row.right) else 403})
    if row.is_all_of(caller) or row.thing.foreign is None:
        if not caller.has(row.right) and caller.name not in row.seen_by:
            return frozenset({403})
        return frozenset({row.missing if whose == "missing" else row.served})
    if whose == "own" and (caller.himself if row.of_user else caller.owns):
        return frozenset({row.served if caller.has(row.right) else 403})
    return row.hidden


def _told(row: Row, whose: Whose, answer: httpx.Response) -> tuple[Any, ...]:
    """Return all that an answer says, but for the object's own names and for what differs each time."""
    headers = sorted((name, value) for name, value in answer.headers.items() if name not in NOT_COMPARED)
    text = OF_A_REQUEST.sub("REQUEST", answer.text)
    for name in row.names(whose):
        text = text.replace(name, "NAME")
        headers = [(key, value.replace(name, "NAME")) for key, value in headers]
    return answer.status_code, text, headers


def _title(row: Row, caller: Caller, whose: Whose) -> str:
    action = f" {row.action}" if row.action else ""
    return f"{row.method} {row.path}{action} {row.query} by {caller.name} of {whose}"


def _filled(value: Any, whose: Whose) -> Any:
    if isinstance(value, Thing):
        return value.of(whose)
    if isinstance(value, dict):
        return {key: _filled(item, whose) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, whose) for item in value]
    return value


def _things(value: Any) -> list[Thing]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [thing for item in value for thing in _things(item)]
    return [value] if isinstance(value, Thing) else []
