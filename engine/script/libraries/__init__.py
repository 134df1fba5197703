"""Packages that scripts load models and train with, as they behave while traced."""
