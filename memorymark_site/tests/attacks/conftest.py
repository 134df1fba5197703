"""One site for all attacks that need a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memorymark_site.tests.attacks.serving import Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A real server; started where the first test asks for it."""
    served = Site(tmp_path_factory.mktemp("attacked"))
    yield served
    served.end()
