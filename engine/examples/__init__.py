"""Examples of training code that the engine can analyse; the tests run them."""
