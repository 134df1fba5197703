"""All background work: the queue, leases, workers, the node process and recovery."""
