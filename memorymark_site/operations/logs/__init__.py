"""Log lines: for people or as JSON, about what, and never with a secret."""
