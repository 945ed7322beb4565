"""What tests of Skep and of its plug-ins share: stand-ins, builders, contract suites. Shipped with the package."""
