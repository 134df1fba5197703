"""The bottom of the engine: fields and their values, errors, and what any process needs."""
