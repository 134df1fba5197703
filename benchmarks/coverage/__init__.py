"""Coverage of the models of transformers: every type and task, tried against real steps."""
