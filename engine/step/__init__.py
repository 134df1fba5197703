"""The training step: what it runs, on which batch, with which optimizer and adaptation."""
