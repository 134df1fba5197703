"""Signing in with the lab's OpenID Connect provider: whom it lets in, the protocol, the pages."""
