"""Which models of transformers are predicted: every type and task, tried against real steps."""
