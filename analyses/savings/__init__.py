"""The lab's savings from following the recommendations.

Realised where the recommendation is adopted, else potential.
"""
