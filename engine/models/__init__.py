"""What is trained: the models known here, their configs, and how one is built without weights."""
