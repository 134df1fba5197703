"""A sample lab to try MemoryMark on: invented people and dates, real predictions.

``make demo`` fills a data folder with it and starts the site.
"""
