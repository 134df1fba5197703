"""Second factors: what members have besides a password, the lab's rule for it, and its pages."""
