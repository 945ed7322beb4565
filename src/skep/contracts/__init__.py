"""For authors of drivers, backends, transports and plug-ins: contract suites, and a whole cloud in one event loop."""
