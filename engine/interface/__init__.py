"""Requests and results of the engine: what goes in and what comes out."""
