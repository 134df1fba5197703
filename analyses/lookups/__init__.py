"""Lookups: what the engine can say in seconds, before or beside an analysis."""
