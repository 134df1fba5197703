"""The history: the table of all analyses, its filters, and what one does with many of them."""
