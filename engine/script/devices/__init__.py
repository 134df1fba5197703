"""GPUs and processes that are not there, as a script sees them."""
