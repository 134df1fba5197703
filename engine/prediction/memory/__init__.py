"""Memory outside the traced step: phases of a run, the host, what grows from step to step."""
