"""Forms of the account pages."""

from __future__ import annotations

from threading import Thread
from typing import Any

from django import forms
from django.contrib.auth.forms import PasswordResetForm, UserCreationForm
from django.contrib.auth.models import User

from memorymark_site.accounts import mail, tokens
from memorymark_site.accounts.members import LIKE_ANOTHER, name_is_taken
from memorymark_site.accounts.models import Scope
from memorymark_site.accounts.roles import Role, has_role


class AccountForm(UserCreationForm[User]):
    """A new account, of the first admin or of an invited member."""

    email = forms.EmailField(
        required=False,
        label="E-mail (optional)",
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )

    class Meta(UserCreationForm.Meta):
        fields = ("username", "email")

    def clean_username(self) -> str:
        """Refuse names that could be mistaken for another member's."""
        name = str(self.cleaned_data["username"])
        if name_is_taken(name):
            raise forms.ValidationError(LIKE_ANOTHER)
        return name


class ForgottenForm(PasswordResetForm):
    """The address to send a password reset link to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"].label = "E-mail"

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """Send in another thread.

        A response that waited for the mail server would take longer where an account exists, and
        so reveal which addresses have one.
        """
        Thread(target=super().send_mail, args=args, kwargs=kwargs, name=mail.MAILING).start()


class AddressForm(forms.Form):
    """A new e-mail address of an existing account."""

    email = forms.EmailField(
        required=False,
        label="E-mail",
        help_text="Notifications and password reset links go there. Leave blank for none.",
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )

    def __init__(self, member: User, data: object = None) -> None:
        super().__init__(data, initial={"email": member.email})  # type: ignore[arg-type]  # what a request has
        self._member = member

    def clean_email(self) -> str:

        email = str(self.cleaned_data["email"])
        if email == self._member.email:
            raise forms.ValidationError("This is your current address.")
        if email and mail.address_is_taken(email, self._member):
            raise forms.ValidationError("Another account uses this address.")
        return email


class InviteForm(forms.Form):
    """The role of a new member, and where to send the invitation."""

    role = forms.ChoiceField(
        choices=Role.choices,
        initial=Role.MEMBER,
        label="Role",
        help_text="Viewers can read everything. Members can also run analyses. Admins can change "
        "everything, including members.",
    )
    email = forms.EmailField(
        required=False,
        label="E-mail (optional)",
        help_text="Leave blank to send the link yourself.",
    )

    def clean_email(self) -> str:

        email = str(self.cleaned_data["email"])
        if email and User.objects.filter(email__iexact=email).exists():
            raise forms.ValidationError("An account already uses this address.")
        return email


class MemberSearch(forms.Form):
    """Part of the name or the address of the members to list."""

    q = forms.CharField(
        label="Search",
        required=False,
        max_length=200,
        widget=forms.TextInput(
            attrs={
                "type": "search",
                "autocomplete": "off",
                "spellcheck": "false",
                "placeholder": "Name or e-mail",
                "data-key": "/",
                "data-key-label": "Search",
            }
        ),
    )


class RoleForm(forms.Form):
    """A new role for an account."""

    role = forms.ChoiceField(choices=Role.choices)


class TokenForm(forms.Form):
    """A new API token.

    Tokens created here always expire, so that one forgotten in a script becomes worthless. Only
    ``manage.py token``, run on the server, creates tokens that never do.
    """

    DAYS = (7, 30, 90, 365)

    name = forms.CharField(
        max_length=100,
        label="Name",
        help_text="What it is for, e.g. nightly training on node-3.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scope = forms.ChoiceField(
        choices=Scope.choices,
        initial=Scope.READ,
        label="Access",
        help_text="Write access is needed to submit, cancel, adopt, label or import analyses.",
    )
    days = forms.TypedChoiceField(
        choices=[(days, f"{days} days") for days in DAYS],
        coerce=int,
        initial=90,
        label="Expires after",
    )

    def __init__(self, member: User, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]  # what a request has
        self._member = member
        if not has_role(member, Role.MEMBER):
            self.fields["scope"] = forms.ChoiceField(
                choices=[(Scope.READ, Scope.READ.label)], label="Access"
            )

    def clean_name(self) -> str:
        """Unique per member, so that a form sent twice creates one token."""
        name = str(self.cleaned_data["name"])
        if tokens.tokens_of(self._member).filter(name=name).exists():
            raise forms.ValidationError("You already have a token with this name. Choose another.")
        return name

    def create(self) -> str | None:
        """Create the token of a valid form; ``None``, with an error on the form, at the limit."""
        data = self.cleaned_data
        try:
            _, token = tokens.create(
                self._member, data["name"], Scope(data["scope"]), data["days"], actor=self._member
            )
        except tokens.TooManyTokens:
            self.add_error(
                None, f"You have {tokens.MAX_TOKENS} tokens, the maximum. Revoke one first."
            )
            return None
        return token
