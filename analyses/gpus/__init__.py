"""GPUs that the lab adds to the catalogue, and the self-checks of those it has."""
