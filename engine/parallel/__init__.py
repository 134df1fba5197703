"""Several GPUs: what one of them holds and waits for."""
