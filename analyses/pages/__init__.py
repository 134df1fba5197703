"""The pages that members see.

A module or a folder for each page, with its views, forms and presentation.
"""
