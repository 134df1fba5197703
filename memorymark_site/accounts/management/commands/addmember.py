"""``manage.py addmember NAME``: add a member to the lab."""

import secrets

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from memorymark_site.accounts import audit
from memorymark_site.accounts.management import check_password, typed_password
from memorymark_site.accounts.members import LIKE_ANOTHER, give_role, name_is_taken
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.roles import Role


class Command(BaseCommand):
    """Creates an account with a typed or generated password."""

    help = "Add a member to the lab."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--email", default="")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--admin", action="store_true", help="may manage the other members")
        which.add_argument(
            "--viewer", action="store_true", help="may read everything and change nothing"
        )
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
        role = Role.ADMIN if admin else Role.VIEWER if viewer else Role.MEMBER
        user = User(username=name, email=email)
        password = secrets.token_urlsafe(12) if generate else typed_password(name)
        user.set_password(password)
        if name_is_taken(name):
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
        self.stdout.write(f"{name} is now {role.label.lower()}.")
        if generate:
            self.stdout.write(f"Password: {password}")
