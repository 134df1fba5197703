"""Your own training: its step (``--factory module:function``), traced or run, and its data.

A factory names and loads the step, a request says what to find out; samples tell the input size.
"""
