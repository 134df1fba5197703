"""Versions of packages: those installed, other environments, and the private names of each."""
