"""Commands of ``manage.py`` about accounts, and the passwords typed into them."""

from __future__ import annotations

from getpass import getpass

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError


def find_member(name: str) -> User:
    """The member of that name.

    Raises:
        CommandError: If there is none.
    """
    try:
        return User.objects.get(username=name)
    except User.DoesNotExist as error:
        raise CommandError(f"there is no member {name!r}") from error


def typed_password(name: str) -> str:
    """A password for an account, typed twice.

    Raises:
        CommandError: The two differ.
    """
    password = getpass(f"Password for {name}: ")
    if password != getpass("Once more: "):
        raise CommandError("the two passwords differ; nothing was changed")
    return password


def check_password(password: str, user: User) -> None:
    """Check a password by the rules of the pages.

    Raises:
        CommandError: With what is wrong.
    """
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
