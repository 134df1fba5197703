"""Attacks on the site, each carried out as an attacker would; SECURITY.md lists what stops them."""
