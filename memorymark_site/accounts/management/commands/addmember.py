"""``manage.py addmember NAME``: a further member of the lab."""

import secrets

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from memorymark_site.accounts import audit
from memorymark_site.accounts.management.typed import check_password, typed_password
from memorymark_site.accounts.members import give_role
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.names import LIKE_ANOTHER, is_taken
from memorymark_site.accounts.roles import Role


class Command(BaseCommand):
    """Makes an account with a password from the terminal or a generated one."""

    help = "Add a member to the lab."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the name and what kind of account it is."""
        parser.add_argument("name")
        parser.add_argument("--email", default="")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--admin", action="store_true", help="may manage the other members")
        which.add_argument("--viewer", action="store_true", help="may look, and change nothing")
        parser.add_argument(
            "--generate", action="store_true", help="print a generated password; do not ask for one"
        )

    def handle(
        self,
        *,
        name: str,
        email: str,
        admin: bool,
        viewer: bool,
        generate: bool,
        **_options: object,
    ) -> None:
        """Check everything, then make the account."""
        role = Role.ADMIN if admin else Role.VIEWER if viewer else Role.MEMBER
        user = User(username=name, email=email)
        password = secrets.token_urlsafe(12) if generate else typed_password(name)
        user.set_password(password)
        if is_taken(name):
            raise CommandError(LIKE_ANOTHER)
        try:
            user.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        check_password(password, user)
        with transaction.atomic():
            user.save()
            give_role(user, role)
            audit.note(None, Action.MEMBER_JOINED, name, after=role)
        self.stdout.write(f"{name} is {role.label.lower()} now.")
        if generate:
            self.stdout.write(f"Password: {password}")
