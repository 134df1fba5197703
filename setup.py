"""Lists the packages of the distribution; ``pyproject.toml`` says everything else about it.

``engine/`` is installed as ``memorymark``, without its tests. Sub-packages of a renamed folder have
to be listed by a program.
"""

from setuptools import find_packages, setup

inner = find_packages("engine", exclude=["tests", "*.tests"])
setup(packages=["memorymark", *(f"memorymark.{name}" for name in inner)])
