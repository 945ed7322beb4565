"""What `skep simulate` shows: how far it is, measures in a table, charts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skep.cli.failures import CommandRefused
from skep.cli.output import print_rows
from skep.cli.tables import Table

if TYPE_CHECKING:
    from skep.simulator.simulation import SimulationOutcome

INSTALL_CHARTS = "charts need matplotlib: install Skep with its extra `charts`"
OnProgress = Callable[[int, int], None]
"""Told of what is done, and of all."""


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], OnProgress | None]]:
    """Show on a terminal how far each part is; programs are spared it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as bar:

        def show(part: str) -> OnProgress:
            task = bar.add_task(part, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield show


def prepare_charts(directory: Path | None) -> None:
    """Make the directory for charts before anything takes its time. Raises Refused where they cannot be drawn."""
    import importlib.util

    if directory is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandRefused(INSTALL_CHARTS)
    directory.mkdir(parents=True, exist_ok=True)


def draw_charts(outcomes: Sequence[SimulationOutcome], directory: Path | None, *, about: str = "") -> list[str]:
    """Write the charts, if a directory is said for them; return their paths. `about`: which trace on which cloud."""
    if directory is None:
        return []
    from skep.simulator.charts import draw

    return [str(path) for path in draw(outcomes, directory, about=about)]


def print_outcomes(outcomes: Sequence[SimulationOutcome], charts: Sequence[str]) -> None:
    """Print a line for each measure, a column for each policy, and where the charts are."""
    measures: list[tuple[str, Callable[[SimulationOutcome], str]]] = [
        ("placed", lambda one: str(one.placed)),
        ("refused", lambda one: str(one.refused)),
        ("refused by", lambda one: ", ".join(f"{stage} {count}" for stage, count in one.refused_by.items()) or "-"),
        ("first refusal after", lambda one: _hours(one.first_refusal_at)),
        ("most running", lambda one: str(one.most_running)),
        ("mean empty hosts", lambda one: f"{one.mean_empty_hosts:.1f}"),
        ("least empty hosts", lambda one: str(one.least_empty_hosts)),
    ]
    for name in outcomes[0].mean_utilisation:
        measures += [
            (f"{name}: mean in use", partial(_share, "mean_utilisation", name)),
            (f"{name}: most in use", partial(_share, "peak_utilisation", name)),
            (f"{name}: mean fragmented", partial(_share, "mean_fragmentation", name)),
        ]
    print_beside(
        [one.policy for one in outcomes], [(title, [value(one) for one in outcomes]) for title, value in measures]
    )
    for chart in charts:
        click.echo(f"wrote {chart}")


def print_beside(titles: Sequence[str], lines: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print named lines with a column for each title."""
    keys = [str(number) for number in range(len(titles))]
    rows = [{"measure": name, **dict(zip(keys, values, strict=True))} for name, values in lines]
    print_rows(rows, Table({"measure": "", **dict(zip(keys, titles, strict=True))}), "table")


def _share(measure: str, name: str, outcome: SimulationOutcome) -> str:
    shares: dict[str, float] = getattr(outcome, measure)
    return f"{100 * shares.get(name, 0.0):.2f} %"


def _hours(micros: int | None) -> str:
    return "-" if micros is None else f"{micros / 3_600_000_000:.1f} h"
