"""Lists the packages of the distribution; ``pyproject.toml`` says everything else about it.

``engine/`` is installed as ``memorymark``, without its tests. Sub-packages of a renamed folder have
to be listed by a program.

The site is an application rather than a library: its folders are installed side by side, as they
are here, in ``memorymark_app``, from where ``memorymark site`` starts it. None of their names can
be imported in the environment of somebody's training.
"""

from setuptools import find_packages, setup


def packages_in(folder: str, name: str) -> list[str]:
    """The package that a folder is installed as, and those in it, without tests."""
    inner = find_packages(folder, exclude=["tests", "*.tests", "tests.*", "*.tests.*"])
    return [name, *(f"{name}.{package}" for package in inner)]


CODE, FILES = ("engine", "analyses", "memorymark_site"), ("templates", "static", "docs")
application = [name for code in CODE for name in packages_in(code, f"memorymark_app.{code}")]
files = [f"memorymark_app.{name}" for name in FILES]
setup(packages=[*packages_in("engine", "memorymark"), *application, *files])
