"""The placement engine: which host of which cell each server goes to. A function of columns, without I/O or a clock."""
