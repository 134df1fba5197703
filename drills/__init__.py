"""Drills: a lab of real processes on a database of its own, and what happens when they die."""
