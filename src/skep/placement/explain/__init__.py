"""Why a decision was what it was: counts for users, hosts for admins."""

from skep.placement.explain.stages import runs, stage_counts

__all__ = ["runs", "stage_counts"]
