"""Answers from trials: search, recommendation, savings, verdict, check.

Pure functions, alike for predicted and measured trials.
"""
