"""What following the recommendations saves the lab.

Realised where the recommendation is adopted, else potential.
"""
