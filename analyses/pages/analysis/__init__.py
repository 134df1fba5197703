"""The page of an analysis, and the parts it is made of."""
