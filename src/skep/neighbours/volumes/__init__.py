"""Volumes that servers have: the ports towards the service that keeps them, and who answers there."""
