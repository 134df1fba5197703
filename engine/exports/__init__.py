"""Predicted steps in the formats of other tools."""
