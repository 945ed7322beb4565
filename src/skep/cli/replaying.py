"""`skep simulate --replay`: recorded decisions once more, by the same policy or by others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.failures import CommandRefused, Failed
from skep.cli.output import print_json
from skep.cli.simulated import draw_charts, prepare_charts, print_beside, print_outcomes, progress

if TYPE_CHECKING:
    from skep.simulator.policies import SimulatedPolicy
    from skep.simulator.replay import DecisionDifference, ReplayCounts
    from skep.simulator.simulation import SimulationOutcome
    from skep.simulator.what_if import Comparison

RECORDED = "recorded"


def replay_same(path: Path, *, as_json: bool) -> None:
    """Decide once more; status 1 unless all decisions come out the same."""
    from skep.simulator.replay import Tally

    tally = Tally()
    _decide(path, tally, "segments")
    figures = dataclasses.asdict(tally)
    if as_json:
        print_json(figures)
    else:
        figures.pop("differences")
        for name, value in figures.items():
            click.echo(f"{name.replace('_', ' '):>12}  {value}")
        _print_differences(tally.differences, "replayed")
    if tally.reproduced != tally.decisions:
        raise Failed(f"{tally.decisions - tally.reproduced} of {tally.decisions} decisions differ from the log")


def replay_otherwise(
    path: Path, policies: Sequence[SimulatedPolicy], options: dict[str, Any], *, as_json: bool
) -> None:
    """Show what other policies would have decided, and what would have become of the cloud."""
    from skep.simulator.what_if import Comparison

    prepare_charts(options["charts"])
    comparisons = [Comparison(policy=policy) for policy in policies]
    for comparison, policy in zip(comparisons, policies, strict=True):
        _decide(path, comparison, policy.name)
    if not any(one.decisions for one in comparisons):
        raise CommandRefused(f"{path}: the log has no decision")
    outcomes = _courses(path, policies, options)
    charts = draw_charts(outcomes, options["charts"], about=path.name)
    if as_json:
        decided = [_figures(one) for one in comparisons]
        print_json({"log": str(path), "decided": decided, "policies": outcomes, "charts": charts})
        return
    first = comparisons[0]
    click.echo(f"{first.decisions} decisions ({first.dry_runs} dry runs), each on what the scheduler knew then")
    lines = [
        ("decided otherwise", ["-", *(str(one.differing) for one in comparisons)]),
        ("on another host", ["-", *(str(one.other_host) for one in comparisons)]),
        ("refused", [str(first.refused_as_recorded), *(str(one.refused_by_policy) for one in comparisons)]),
        ("of these placed when recorded", ["-", *(str(one.refused_only_by_policy) for one in comparisons)]),
    ]
    print_beside([RECORDED, *(policy.name for policy in policies)], lines)
    for comparison, policy in zip(comparisons, policies, strict=True):
        _print_differences(comparison.differences, policy.name)
    click.echo(f"{outcomes[0].servers} servers one after the other, each policy with what it made of the cloud")
    print_outcomes(outcomes, charts)


def _decide(path: Path, counted: ReplayCounts, title: str) -> None:
    from skep.scheduler.decision_log.reading import entries, segments
    from skep.simulator.replay import replay

    files = segments(path)
    with progress() as show:
        told = show(title)
        for number, file in enumerate(files):
            if told is not None:
                told(number, len(files))
            replay(entries(file), counted)


def _courses(path: Path, policies: Sequence[SimulatedPolicy], options: dict[str, Any]) -> list[SimulationOutcome]:
    """Place the log's servers anew under the recorded policy and under the others."""
    from skep.simulator import recorded
    from skep.simulator.policies import checked
    from skep.simulator.simulation import run
    from skep.simulator.what_if import recorded_settings

    trace, plan = recorded.read(path, empty=options["empty"])
    before = checked(RECORDED, recorded_settings(path))
    with progress() as show:
        return [
            run(trace, plan, one, seed=options["seed"], samples=options["samples"], on_progress=show(one.name))
            for one in (before, *policies)
        ]


def _figures(comparison: Comparison) -> dict[str, Any]:
    assert comparison.policy is not None
    figures = {
        field.name: getattr(comparison, field.name)
        for field in dataclasses.fields(comparison)
        if field.name not in {"policy", "differences"}
    }
    return {
        "policy": comparison.policy.name,
        **figures,
        "differing": comparison.differing,
        "refused_as_recorded": comparison.refused_as_recorded,
        "refused_by_policy": comparison.refused_by_policy,
        "differences": [dataclasses.asdict(one) for one in comparison.differences],
    }


def _print_differences(differences: Sequence[DecisionDifference], title: str) -> None:
    for one in differences:
        click.echo(f"segment {one.segment} of {one.run}, decision {one.decision}, {one.instance}:")
        click.echo(f"  recorded: {one.recorded}")
        click.echo(f"  {title}: {one.replayed}")
