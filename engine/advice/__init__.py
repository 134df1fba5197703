"""What else one could do: other GPUs, and changes to the workload."""
