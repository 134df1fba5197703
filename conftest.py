"""What every test of the web site needs: no collected static files, and quick passwords."""

import pytest


def pytest_configure() -> None:
    from django.conf import settings

    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}
    settings.WHITENOISE_AUTOREFRESH = True  # it need not scan the folder at the start
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def _no_engine_left_waiting() -> object:
    """A test that ran the worker's task leaves no standby engine behind."""
    from analyses import worker

    yield
    worker.standby.close()
