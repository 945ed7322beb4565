"""Servers are built, acted on and deleted while the cloud is killed and broken, and what came of it is counted."""
