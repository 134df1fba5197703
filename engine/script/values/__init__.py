"""Values of fake tensors: what a script reads of them, and what it may depend on."""
