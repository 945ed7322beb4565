"""The engine and the reference scheduler, told of the same clouds: stories that hypothesis writes."""
