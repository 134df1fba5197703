"""Lists the packages of the distribution; ``pyproject.toml`` says everything else about it.

``engine/`` is installed as ``memorymark``, without its tests. Sub-packages of a renamed folder have
to be listed by a program.

The site is an application rather than a library: its folders are installed side by side, as they
are here, in ``memorymark_app``, from where ``memorymark site`` starts it. None of their names can
be imported in the environment of somebody's training.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class BuildWithoutTests(build_py):  # type: ignore[misc]  # setuptools has no types
    """Leaves out pytest's fixtures, which stand beside the product's modules."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[1] != "conftest"]


def packages_in(folder: str, name: str) -> list[str]:
    """The package that a folder is installed as, and those in it, without tests."""
    inner = find_packages(folder, exclude=["tests", "*.tests", "tests.*", "*.tests.*"])
    return [name, *(f"{name}.{package}" for package in inner)]


CODE, FILES = ("engine", "analyses", "memorymark_site"), ("templates", "static", "docs")
application = [name for code in CODE for name in packages_in(code, f"memorymark_app.{code}")]
files = [f"memorymark_app.{name}" for name in FILES]
setup(
    cmdclass={"build_py": BuildWithoutTests},
    packages=[*packages_in("engine", "memorymark"), *application, *files],
)
