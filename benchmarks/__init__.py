"""Commands that hold the engine against published measurements, other tools and its own aims."""
