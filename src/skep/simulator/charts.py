"""Pictures of what a simulation found: one line for each policy, over time. Needs matplotlib (the extra `charts`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from skep.domain.clock import SECOND
from skep.simulator.simulation import Outcome, Sample

HOUR = 3600 * SECOND
_SIZE = (9.0, 4.5)
_DPI = 120


def draw(outcomes: Sequence[Outcome], directory: Path) -> list[Path]:
    """Write PNG files into a directory, which is made: utilisation, fragmentation, failures and empty hosts.

    Raises ModuleNotFoundError where matplotlib is not installed, OSError as the disk does.
    """
    directory.mkdir(parents=True, exist_ok=True)
    classes = list(outcomes[0].mean_utilisation)
    charts: list[tuple[str, str, dict[str, Callable[[Sample], float]]]] = [
        ("utilisation", "share of capacity in use", {name: _share(name, "utilisation") for name in classes}),
        (
            "fragmentation",
            "share of what is free that the next request cannot have",
            {name: _share(name, "fragmentation") for name in classes},
        ),
        ("failures", "servers refused", {"": lambda sample: float(sample.refused)}),
        ("empty-hosts", "hosts that hold nothing", {"": lambda sample: float(sample.empty_hosts)}),
    ]
    return [_chart(outcomes, directory / f"{name}.png", title, lines) for name, title, lines in charts]


def _share(name: str, measure: str) -> Callable[[Sample], float]:
    def share(sample: Sample) -> float:
        shares: dict[str, float] = getattr(sample, measure)
        return shares.get(name, 0.0)

    return share


def _chart(outcomes: Sequence[Outcome], path: Path, title: str, lines: dict[str, Callable[[Sample], float]]) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, outcome in enumerate(outcomes):
        hours = [sample.at / HOUR for sample in outcome.samples]
        for colour, (name, value) in enumerate(lines.items()):
            axes.plot(
                hours,
                [value(sample) for sample in outcome.samples],
                label=f"{outcome.policy} {name}".strip(),
                color=f"C{colour if len(lines) > 1 else number}",
                linestyle=("-", "--", ":", "-.")[number % 4] if len(lines) > 1 else "-",
                linewidth=1.2,
            )
    axes.set_title(title)
    axes.set_xlabel("hours since the first server")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path)
    return path
