"""Small models, shared with the tests of the engine."""

from engine.tests.conftest import small_models

__all__ = ["small_models"]
