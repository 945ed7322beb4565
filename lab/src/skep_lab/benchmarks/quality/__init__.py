"""How well policies of placement pack two published traces: the field's own experiments, on Skep's own weigher."""
