"""Data samples: the input sizes that real data needs."""
