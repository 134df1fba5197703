"""Single sign-on against a small provider: who gets in, as whom, and what does not hold."""
