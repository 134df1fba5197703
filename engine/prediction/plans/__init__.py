"""Plans: the ladder of moves on one GPU, and every other GPU beside it."""
