"""From trials to an answer: search, recommendation, savings, verdict. Pure functions."""
