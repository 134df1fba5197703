"""Analyses that ran elsewhere and are pushed into the lab's history."""
