"""Results as they are stored, and the decision that each has."""
