from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from analyses.tests.factories import make_user
from memorymark_site.accounts.tests.fake_provider import CLIENT, SECRET, FakeProvider
from memorymark_site.accounts.tests.single_sign_on.walking import (
    GRACE,
    LOGIN,
    PASSWORD,
)
from memorymark_site.environment import OidcSettings

if TYPE_CHECKING:
    pass


@pytest.fixture
def idp() -> Iterator[FakeProvider]:
    provider = FakeProvider()
    provider.claims = dict(GRACE)
    yield provider
    provider.end()


@pytest.fixture(autouse=True)
def oidc(idp: FakeProvider, settings: Settings, db: None) -> OidcSettings:
    settings.OIDC = OidcSettings(idp.url, CLIENT, SECRET, "Lab login", "nobody")
    oidc: OidcSettings = settings.OIDC
    return oidc


@pytest.fixture
def ada() -> User:
    return make_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def here(ada: User) -> Client:
    client = Client()
    client.post(LOGIN, {"login": "ada", "password": PASSWORD})
    return client
