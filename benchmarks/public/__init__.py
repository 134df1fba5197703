"""Public training scripts, predicted as they lie in their repositories."""
