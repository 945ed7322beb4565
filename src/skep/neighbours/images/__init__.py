"""The port towards images, from which servers boot."""
