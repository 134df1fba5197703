"""``python -m engine.measurement``: the process of one trial; see :mod:`engine.measurement.child`.

It ends with its parent from its first moment on, though loading what it needs takes seconds.
"""

from ..core.process import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    from .child import main  # loads torch and transformers

    main()
