"""Attacks on the site, each tried as an attacker would; SECURITY.md lists what stops them."""
