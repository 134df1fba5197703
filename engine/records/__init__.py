"""Records of training runs, and their comparison with predictions."""
