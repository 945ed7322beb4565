"""The conductor above the cells: places servers, follows deletes to their end, maps hosts, publishes what is wanted."""
