"""Processes that end themselves at chosen points, and walks over all of these points."""
