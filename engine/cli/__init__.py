"""The command line, ``memorymark``: flags in, tables or JSON out.

``main`` parses, ``commands`` and ``validate`` run, ``render`` and ``plan`` make the tables.
"""
