"""What real trainings used, reported by themselves; they verify what has been adopted."""
