"""Measured trials: a real training step on the local device, each in a fresh process."""
