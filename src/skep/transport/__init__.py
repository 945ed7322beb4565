"""How processes reach each other: casts are hints, calls have deadlines, the same encoded messages everywhere."""
