"""The scheduler as a service: messages on one side, the synchronizer on the other, pure placement between them."""

from skep.scheduler.service.scheduler import OnDecision, SchedulerService

__all__ = ["OnDecision", "SchedulerService"]
