"""Imports of analyses that ran elsewhere: ``document`` checks them, ``services`` stores them."""
