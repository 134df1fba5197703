"""Imports of analyses that ran elsewhere: ``document`` checks them, ``services`` stores them.

``checks`` has what holds of every result, ``texts`` what holds of one about texts.
"""
