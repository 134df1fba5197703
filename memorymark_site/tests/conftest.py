"""The lab of the role matrix, made once for all tests of a module."""

from __future__ import annotations

from copy import deepcopy

import pytest

from memorymark_site.tests.test_who_may_what import Lab


@pytest.fixture(scope="module")
def module_lab(module_db: None) -> Lab:
    """One user of every kind, and one of everything; modules add what else they need to it."""
    return Lab()


@pytest.fixture
def lab(module_lab: Lab, db: None) -> Lab:
    """The lab, for one test."""
    return deepcopy(module_lab)
