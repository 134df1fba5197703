from __future__ import annotations

import pytest
from django.core.management import call_command

pytestmark = pytest.mark.database


def test_the_migrations_match_the_models(db: None) -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
