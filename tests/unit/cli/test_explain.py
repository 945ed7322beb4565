"""Decision records in words."""

from __future__ import annotations

from typing import Any

from skep.cli import explain

STAGES = [{"stage": "availability zone nova", "left": 4}, {"stage": "capacity", "left": 0}]


def attempt(number: int, host: str | None, outcome: str | None, **more: Any) -> dict[str, Any]:
    return {
        "attempt": number,
        "host": host,
        "outcome": outcome,
        "under_way": outcome is None,
        "started_at": "2026-01-31T12:00:00.000000",
        "ended_at": None if outcome is None else "2026-01-31T12:00:01.500000",
        "explanation": None,
        "error": None,
        "message": None,
        **more,
    }


def placement(*attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "server": "s1",
        "name": "one",
        "request_id": "req-1",
        "status": "ACTIVE",
        "task_state": None,
        "zone": "nova",
        "flavor": "m1.tiny",
        "asks_for": {"VCPU": 1, "MEMORY_MB": 512},
        "created_at": "2026-01-31T12:00:00.000000",
        "launched_at": "2026-01-31T12:00:02.250000",
        "fault": None,
        "waiting": False,
        "deleted": False,
        "cell": "cell1",
        "host": "h2",
        "attempts": list(attempts),
        **more,
    }


def explained(**more: Any) -> dict[str, Any]:
    return {"summary": "6 hosts considered", "considered": 6, "stages": [], "nearest": [], **more}


def test_an_attempt_that_is_no_build_says_what_it_is_for() -> None:
    lines = explain.text(
        placement(attempt(1, "h1", "built", role="build"), attempt(2, "h2", None, role="move_target"))
    ).splitlines()
    assert "Attempt 1 on h1: built after 1.50 s" in lines
    assert "Attempt 2 (move target) on h2: under way" in lines


def done(action: str, second: int, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "request_id": f"req-{action}",
        "user_id": "u1",
        "started_at": f"2026-01-31T12:00:{second:02}.000000",
        "updated_at": f"2026-01-31T12:00:{second + 1:02}.000000",
        "message": None,
        "events": [],
        "migrations": [],
        **more,
    }


def test_an_owner_reads_why_an_action_failed() -> None:
    """Of events, owners read the outcome only."""
    failed = {"event": "cold_migrate", "result": "Error"}
    told = placement(
        attempt(1, "h1", "built"),
        actions=[done("create", 0), done("resize", 20, message="No valid host: none", events=[failed])],
    )
    assert explain.text(told).splitlines()[-4:] == [
        "Action resize (req-resize): failed after 1.00 s",
        "  at 2026-01-31T12:00:20.000000, by user u1",
        "  No valid host: none",
        "  cold_migrate: Error",
    ]


def test_a_life_of_which_the_beginning_is_not_told_says_so() -> None:
    newest = [done("lock", 10), done("unlock", 20)]
    said = "  its newest 2 actions are told; there are earlier ones"
    assert said in explain.text(placement(actions=newest, more_actions=True)).splitlines()
    assert "earlier" not in explain.text(placement(actions=newest, more_actions=False))


def test_a_life_is_told_in_order() -> None:
    failed = {"event": "cold_migrate", "host": "h1", "result": "Error", "details": "No valid host was found"}
    move = {"id": "m1", "type": "migration", "status": "finished", "source": "h1", "destination": "h2"}
    build, target = attempt(1, "h1", "built"), attempt(2, "h2", "built", role="move_target")
    told = placement(
        build,
        {**target, "started_at": "2026-01-31T12:00:30.000000", "ended_at": "2026-01-31T12:00:31.000000"},
        actions=[
            done("create", 0),
            done("resize", 20, message="Error", events=[failed]),
            done("migrate", 30, migrations=[move]),
            done("reboot", 40),
        ],
        task_state="rebooting",
    )
    assert [line for line in explain.text(told).splitlines()[4:] if line] == [
        "Action create (req-create)",
        "  at 2026-01-31T12:00:00.000000, by user u1",
        "Attempt 1 on h1: built after 1.50 s",
        "Action resize (req-resize): failed after 1.00 s",
        "  at 2026-01-31T12:00:20.000000, by user u1",
        "  cold_migrate on h1: Error: No valid host was found",
        "Action migrate (req-migrate): done after 1.00 s",
        "  at 2026-01-31T12:00:30.000000, by user u1",
        "  migration m1 from h1 to h2: finished",
        "Attempt 2 (migrate) on h2: built after 1.00 s",
        "Action reboot (req-reboot): under way",
        "  at 2026-01-31T12:00:40.000000, by user u1",
    ]


def test_a_server_that_was_built_at_the_second_try() -> None:
    first = attempt(1, "h1", "failed", error="HypervisorUnavailable", message="injected failure")
    second = attempt(2, "h2", "built", explanation=explained(scores={"h2": {"CPUWeigher": 1.0, "RAMWeigher": 0.5}}))
    assert explain.text(placement(first, second)).splitlines() == [
        "Server one (s1): ACTIVE",
        "  asks for 1 VCPU, 512 MEMORY_MB (flavor m1.tiny)",
        "  is on h2 in cell cell1, zone nova",
        "  running 2.25 s after it was asked for",
        "",
        "Attempt 1 on h1: failed after 1.50 s",
        "  HypervisorUnavailable: injected failure",
        "",
        "Attempt 2 on h2: built after 1.50 s",
        "  6 hosts considered",
        "  scores of h2, before their multipliers: CPUWeigher 1, RAMWeigher 0.5",
    ]


def test_near_misses_say_which_cause_it_is_and_where_to_look() -> None:
    off = {"node": "n", "stage": "being up and enabled", "lacks": {}}
    why = explained(nearest=[{**off, "host": "h1", "cause": "disabled: bad disk"}, {**off, "host": "h2"}])
    assert list(explain.explanation(why))[1:] == [
        "near miss: h1 fails only on being up and enabled (disabled: bad disk)",
        "near miss: h2 fails only on being up and enabled",
    ]


def test_weights_say_which_weighers_made_the_difference() -> None:
    why = explained(
        scores={"h2": {"CPUWeigher": 0.5, "RAMWeigher": 1.0}, "h1": {"CPUWeigher": 0.5, "RAMWeigher": 0.5}},
        contributions={"h2": {"CPUWeigher": 1.0, "RAMWeigher": 1.0}, "h1": {"CPUWeigher": 1.0, "RAMWeigher": 0.5}},
        sums={"h2": 2.0, "h1": 1.5},
    )
    assert list(explain.explanation(why))[1:] == [
        "weight of h2: 2 (RAMWeigher 1)",
        "weight of h1: 1.5 (RAMWeigher 0.5)",
        "  the same for all of these: CPUWeigher 1",
    ]
    alike = explained(contributions={"h2": {"CPUWeigher": 1.0}, "h1": {"CPUWeigher": 1.0}}, sums={"h2": 1.0, "h1": 1.0})
    assert list(explain.explanation(alike))[1:] == [
        "weight of h2: 1",
        "weight of h1: 1",
        "  the same for all of these: CPUWeigher 1",
        "  equal weights: a hash decides, so that equal servers spread",
    ]
    first = explained(
        contributions={"h2": {"CPUWeigher": 1.0}, "h1": {"CPUWeigher": 2.0}},
        sums={"h2": 1.0, "h1": 2.0},
        preferred=True,
    )
    assert list(explain.explanation(first))[1:] == [
        "weight of h2: 1 (CPUWeigher 1)",
        "weight of h1: 2 (CPUWeigher 2)",
        "  chosen although others weigh more: alternates of the first decision are preferred",
    ]
    shared_out = explained(
        contributions={"h2": {"CPUWeigher": 1.0}, "h1": {"CPUWeigher": 2.0}}, sums={"h2": 1.0, "h1": 2.0}
    )
    assert list(explain.explanation(shared_out))[1:] == [
        "weight of h2: 1 (CPUWeigher 1)",
        "weight of h1: 2 (CPUWeigher 2)",
        f"  chosen although others weigh more: {explain.NOT_THE_BEST}",
    ]
    for worth in (1.0, -1.0):
        alone = explained(contributions={"h2": {"CPUWeigher": worth}, "h1": {}}, sums={"h2": worth, "h1": 0.0})
        assert list(explain.explanation(alone))[1:] == [
            f"weight of h2: {worth:g} (CPUWeigher {worth:g})",
            "weight of h1: not weighed: no other was left",
        ]


def test_a_server_without_a_host() -> None:
    why = explained(
        stages=STAGES,
        nearest=[{"host": "h1", "node": "n1", "stage": "capacity", "lacks": {"MEMORY_MB": 1024}}],
        rejected={f"h{number}": "capacity" for number in range(1, 8)},
        advice="it would fit with 1 VCPU less; 3 hosts could hold it",
    )
    shown = placement(
        attempt(1, None, "no_valid_host", explanation=why),
        status="ERROR",
        cell="cell0",
        host=None,
        launched_at=None,
        fault="No valid host: 2 of at least 3 servers fit, so none was placed; "
        "for the next one: 6 hosts considered; it would fit with 1 VCPU less; 3 hosts could hold it",
    )
    assert explain.text(shown).splitlines() == [
        "Server one (s1): ERROR",
        "  asks for 1 VCPU, 512 MEMORY_MB (flavor m1.tiny)",
        "  is on no host; its record is kept in cell0",
        "  No valid host: 2 of at least 3 servers fit, so none was placed",
        "",
        "Attempt 1: no valid host",
        "  6 hosts considered",
        "      4 left by availability zone nova",
        "      0 left by capacity",
        "  near miss: h1 lacks 1024 MEMORY_MB",
        "  it would fit with 1 VCPU less",
        "  3 hosts could hold it",
        "  rejected by capacity: h1, h2, h3, h4, h5 and 2 more",
    ]


def test_a_build_that_is_refused_its_ports_says_so_and_counts_no_hosts() -> None:
    no_port = "Port p1 could not be found."
    refused = attempt(1, None, "refused", message=no_port)
    more = {"status": "ERROR", "cell": "cell0", "host": None, "launched_at": None, "fault": f"Failed. {no_port}"}
    assert explain.text(placement(refused, **more)).splitlines() == [
        "Server one (s1): ERROR",
        "  asks for 1 VCPU, 512 MEMORY_MB (flavor m1.tiny)",
        "  is on no host; its record is kept in cell0",
        f"  Failed. {no_port}",
        "",
        "Attempt 1: refused",
        f"  {no_port}",
    ]
    assert explain.reason(placement(refused, **more)) == f"Failed. {no_port}"


def test_what_attempts_say_is_not_said_before_them_too() -> None:
    why = explained(stages=STAGES, summary="6 hosts considered; 0 left by capacity", advice="it would fit elsewhere")
    plain = "No valid host: 6 hosts considered; 0 left by capacity; it would fit elsewhere"
    shown = explain.text(placement(attempt(1, None, "no_valid_host", explanation=why), fault=plain, status="ERROR"))
    assert shown.count("it would fit elsewhere") == 1
    assert "  No valid host\n" in shown
    unexplained = explain.text(placement(attempt(1, None, "no_valid_host"), fault=plain, status="ERROR"))
    assert f"  {plain}\n" in unexplained


def test_what_is_undone_later_was_built_all_the_same() -> None:
    """A fault of a server that goes on is told by its action alone."""
    later = "2026-01-31T13:00:00.000000"
    first = attempt(1, "h1", "undone", error="InstanceReplaced", message="the attempt was given up and is undone")
    first = {**first, "built_at": first["ended_at"], "ended_at": later}
    second = attempt(2, "h1", "built", role="move_target")
    second = {**second, "started_at": "2026-01-31T12:00:30.000000", "ended_at": "2026-01-31T12:00:31.500000"}
    told = placement(first, second, fault="NoSpaceLeft", launched_at=later)
    shown = explain.text({**told, "actions": [done("create", 0), done("rebuild", 20)]})
    assert "Attempt 1 on h1: built after 1.50 s, undone since\n" in shown
    assert "Attempt 2 (rebuild) on h1: built after 1.50 s" in shown
    assert "InstanceReplaced" not in shown
    assert "NoSpaceLeft" not in shown


def test_five_near_misses_are_shown() -> None:
    near = [{"host": f"h{number}", "node": "n", "stage": "capacity", "lacks": {"VCPU": 1}} for number in range(5)]
    shown = explain.text(placement(attempt(1, None, "no_valid_host", explanation=explained(nearest=near))))
    assert "near misses, each lacks 1 VCPU: h0, h1, h2, h3, h4" in shown
    for miss in near:
        del miss["host"]
    owned = explain.text(placement(attempt(1, None, "no_valid_host", explanation=explained(nearest=near))))
    assert "near misses, each lacks 1 VCPU: 5 hosts" in owned


def test_near_misses_that_are_not_shown_are_counted() -> None:
    near = [{"host": f"h{number}", "node": "n", "stage": "capacity", "lacks": {"VCPU": 1}} for number in range(7)]
    for known, total, said in ((5, 6, "1 more fails"), (5, 9, "4 more fail"), (7, 7, "2 more fail")):
        told = list(explain.explanation(explained(nearest=near[:known], near=total)))
        assert told[1:] == ["near misses, each lacks 1 VCPU: h0, h1, h2, h3, h4", f"and {said} on one thing only"]


def test_counts_of_another_member_of_the_request_say_so() -> None:
    told = list(explain.explanation(explained(beside=1)))
    assert told == [
        "counted for the server of this request that found no host after 1 other server had found one:",
        "6 hosts considered",
    ]


def test_an_owner_reads_that_a_server_is_nowhere() -> None:
    shown = placement(attempt(1, None, "no_valid_host"), zone="nova")
    for name in ("cell", "host"):
        del shown[name]
    assert "  is on no host\n" in explain.text(shown)


def test_an_owner_reads_no_host() -> None:
    why = explained(stages=STAGES, nearest=[{"stage": "trait", "lacks": {}}])
    shown = placement(attempt(1, None, "built", explanation=why))
    for name in ("cell", "host"):
        del shown[name]
    text = explain.text(shown)
    assert "is in zone nova" in text
    assert "near miss: a host fails only on trait" in text


def test_a_server_that_waits_or_is_gone() -> None:
    waiting = placement(waiting=True, cell=None, host=None, status="BUILD", task_state="scheduling", launched_at=None)
    assert explain.text(waiting).splitlines()[:1] == ["Server one (s1): BUILD (scheduling)"]
    assert "waits for a host" in explain.text(waiting)
    assert "Attempt 1 on h1: under way" in explain.text(placement(attempt(1, "h1", None)))
    purged = placement(name=None, status=None, asks_for=None, created_at=None, deleted=True)
    assert explain.text(purged).splitlines()[0] == "Server ? (s1): deleted"


def test_the_reason_in_one_line() -> None:
    failed = attempt(1, "h1", "failed", error="NoSpaceLeft")
    good = attempt(2, "h2", "built", explanation=explained())
    assert explain.reason(placement(good)) == "best of 6"
    assert explain.reason(placement(failed, good)) == "failed on h1: NoSpaceLeft; then best of 6"
    narrowed = attempt(1, "h2", "built", explanation=explained(stages=STAGES[:1]))
    assert explain.reason(placement(narrowed)) == "best of 4 left of 6"
    assert explain.reason(placement(failed, fault="No valid host")) == "No valid host"
    assert explain.reason(placement()) == ""
