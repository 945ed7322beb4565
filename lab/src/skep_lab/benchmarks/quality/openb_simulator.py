"""The experiment on openb as `skep simulate` runs it: hosts with a provider for each GPU, the service's own code.

The mix is not known from the start: the weigher learns it from what comes, as in a service.
"""

from __future__ import annotations

from pathlib import Path

from skep.placement.options import PlacementOptions
from skep.placement.settings import SchedulerSettings
from skep.placement.slots import Worthing
from skep.simulator.clouds import read as read_cloud
from skep.simulator.measures import utilisation
from skep.simulator.policies import SimulatedPolicy
from skep.simulator.simulation import Simulation
from skep.simulator.traces.flavors import GPU_MILLI
from skep.simulator.traces.openb import read as read_trace
from skep_lab.benchmarks.quality import openb


class Experiment:
    """The published files as a cloud and a trace of the simulator."""

    def __init__(self, nodes: Path, pods: Path, how: Worthing) -> None:
        self._plan, self._trace = read_cloud(nodes), read_trace(pods)
        self._pods = openb.read_pods(pods)
        self._capacity = openb.capacity(openb.read_nodes(nodes))
        self._spec_of = {pod: server.spec for pod, server in zip(self._pods, self._trace.servers, strict=True)}
        options = PlacementOptions(
            fragmentation_size_exponent=how.size_exponent,
            fragmentation_slot_exponent=how.slot_exponent,
            fragmentation_departures=how.departures,
        )
        settings = SchedulerSettings(weighers={"FragmentationWeigher": 1.0}, options=options)
        self._policy = SimulatedPolicy(name="FragmentationWeigher", settings=settings)

    def allocated(self, seed: int) -> float:
        """Return the percentage of the GPUs that is given out when all have arrived."""
        simulation = Simulation(self._plan, self._policy, units=self._trace.units, seed=seed)
        for number, pod in enumerate(openb.arrivals(self._pods, self._capacity, seed)):
            simulation.arrive(f"pod-{number}", self._spec_of[pod])
        return 100 * utilisation(simulation.known.table)[GPU_MILLI]
