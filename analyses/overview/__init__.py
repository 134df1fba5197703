"""The overview's numbers, each from queries that do not grow with the lab."""
