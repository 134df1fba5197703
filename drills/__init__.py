"""Drills: start a lab of real processes on its own database, kill them and check the damage."""
