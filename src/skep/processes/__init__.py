"""Puts the parts together into processes. The only place that knows which adapter is used where."""
