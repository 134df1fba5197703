"""Example scripts that the engine can analyse, to copy from; the tests run them."""
