"""The API database: what was asked for, where things are, who may ask, what the operator wants."""
