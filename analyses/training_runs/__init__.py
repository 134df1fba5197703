"""Training runs: ``services`` stores their reports, ``side_by_side`` shows them with analyses."""
