"""Commands that compare the engine with published measurements, other tools and its targets."""
