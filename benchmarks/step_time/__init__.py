"""Predicted step times, fitted to published training runs and held against others."""
