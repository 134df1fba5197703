"""Analyses side by side: what was asked, what came out, and by how much they differ."""
