"""The site in a real browser: what a lab does with it, every page, and screenshots."""
