"""From trials to an answer: search, recommendation, savings, verdict, check.

Pure functions, alike for predicted and measured trials.
"""
