"""The rules of a create: what a body asks for, and why it cannot be had. Pure, except for what `lookups` remembers."""
