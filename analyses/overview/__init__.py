"""What the overview counts, each by queries that do not grow with the lab."""
