"""Moves that are made in a script while it is traced, so that it need not be changed to try them.

Each is made where the script would make it itself: in the arguments of its framework, if it uses
one, else around its modules, its backward pass and its optimizers. The trace has the line of code
that does the same in the script.
"""
