"""The command palette: one search over pages, models, analyses and members."""
