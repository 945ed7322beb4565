"""The conductor above the cells: places servers, follows deletes to their end, maps hosts, publishes the operator's will."""
