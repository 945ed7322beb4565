"""Pictures of what a simulation found: over time, a colour for each policy. Needs matplotlib (the extra `charts`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skep.domain.clock import SECOND
from skep.simulator.simulation import Sample, SimulationOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNITS = (("seconds", 1), ("minutes", 60), ("hours", 3_600), ("days", 86_400))
_FEWEST = 4
"""A trace is shown in the largest unit of which it has so many."""
_WIDTH, _HEIGHT, _FURTHER = 9.0, 4.5, 2.5
"""Inches; each further panel is somewhat lower."""
_DPI = 120

Value = Callable[[Sample], float]


def draw(outcomes: Sequence[SimulationOutcome], directory: Path, *, about: str = "") -> list[Path]:
    """Write PNG files into a directory, which is made: utilisation, fragmentation, failures and empty hosts.

    `about`: which trace on which cloud, beside each title. Raises ModuleNotFoundError where matplotlib is not
    installed, OSError as the disk does.
    """
    directory.mkdir(parents=True, exist_ok=True)
    classes = list(outcomes[0].mean_utilisation)
    charts: list[tuple[str, str, dict[str, Value], bool]] = [
        ("utilisation", "capacity in use", {name: _share(name, "utilisation") for name in classes}, True),
        (
            "fragmentation",
            "free, but not for the next request",
            {name: _share(name, "fragmentation") for name in classes},
            True,
        ),
        ("failures", "servers refused so far", {"": lambda sample: float(sample.refused)}, False),
        ("empty-hosts", "hosts that hold nothing", {"": lambda sample: float(sample.empty_hosts)}, False),
    ]
    return [
        _chart(outcomes, directory / f"{name}.png", f"{title}: {about}" if about else title, panels, shares=shares)
        for name, title, panels, shares in charts
    ]


def _share(name: str, measure: str) -> Value:
    def share(sample: Sample) -> float:
        shares: dict[str, float] = getattr(sample, measure)
        return shares.get(name, 0.0)

    return share


def unit_of(micros: int) -> tuple[str, int]:
    """Return the name of the unit in which so long a time is shown, and its microseconds."""
    fitting = [(name, seconds * SECOND) for name, seconds in _UNITS if micros >= _FEWEST * seconds * SECOND]
    return fitting[-1] if fitting else (_UNITS[0][0], _UNITS[0][1] * SECOND)


def _chart(
    outcomes: Sequence[SimulationOutcome], path: Path, title: str, panels: dict[str, Value], *, shares: bool
) -> Path:
    """Draw a panel for each value, one below the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = _HEIGHT + _FURTHER * (len(panels) - 1)
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    unit, micros = unit_of(max(one.samples[-1].at for one in outcomes))
    for number, (axis, (name, value)) in enumerate(zip(axes, panels.items(), strict=True)):
        _panel(axis, outcomes, name, value, micros, shares=shares)
        if number == 0:
            axis.legend(fontsize="small")
    figure.suptitle(title)
    axes[-1].set_xlabel(f"{unit} since the first server")
    figure.savefig(path)
    return path


def _panel(
    axis: Axes, outcomes: Sequence[SimulationOutcome], name: str, value: Value, micros: int, *, shares: bool
) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for number, outcome in enumerate(outcomes):
        times = [sample.at / micros for sample in outcome.samples]
        values = [value(sample) for sample in outcome.samples]
        # Where two policies do the same, the first is seen beneath the second.
        style, width = ("-", 1.2) if number == 0 else ("--", 1.0)
        axis.plot(times, values, label=outcome.policy, color=f"C{number}", linestyle=style, linewidth=width)
    if shares:
        axis.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    else:
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    if name:
        axis.set_ylabel(name)
    # Where nothing was refused, a scale of fractions of servers would say nothing.
    axis.set_ylim(bottom=0, top=None if shares else max(1.0, axis.get_ylim()[1]))
    axis.grid(visible=True, alpha=0.3)
