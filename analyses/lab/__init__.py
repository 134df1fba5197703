"""The lab's own settings: defaults of an analysis, prices of GPUs; admins change them."""
