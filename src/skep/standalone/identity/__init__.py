"""A small identity service that speaks Keystone v3."""
