"""A small image store that speaks Glance v2."""
