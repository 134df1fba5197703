"""A person's own training code, measured or traced."""
