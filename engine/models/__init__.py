"""Models: presets, the kinds and tasks there are, and what a config may say."""
