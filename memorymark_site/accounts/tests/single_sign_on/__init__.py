"""Single sign-on with a small provider: who gets in, as whom, and what is refused."""
