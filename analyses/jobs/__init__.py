"""All work that somebody claims: the queue, the lease, the workers, the node and recovery."""
