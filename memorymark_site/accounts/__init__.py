"""Members of the lab: signing in, the first admin, API tokens."""
