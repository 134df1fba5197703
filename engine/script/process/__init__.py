"""The process that a script runs in: its start, its steps, and what it may not do."""
