"""One real site, shared by all attacks that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memorymark_site.tests.attacks.serving import Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A real server, started by the first test that needs it."""
    served = Site(tmp_path_factory.mktemp("attacked"))
    yield served
    served.end()
