"""The pages on which people sign in, manage their account and, as admins, the members."""
