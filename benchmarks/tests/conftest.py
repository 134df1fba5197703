"""Small models, shared with the engine's tests."""

from engine.conftest import small_models

__all__ = ["small_models"]
