"""Generated texts, and the longest sequences that fit."""
