"""The numbers of :mod:`engine.answer.figures`, of analyses as the site stores them."""
