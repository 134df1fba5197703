"""Showing one analysis to people without an account, by a link that ends."""
