"""Forms of the account pages."""

from __future__ import annotations

from threading import Thread
from typing import Any

from django import forms
from django.contrib.auth.forms import PasswordResetForm, UserCreationForm
from django.contrib.auth.models import User

from memorymark_site.accounts import address, tokens
from memorymark_site.accounts.models import Scope
from memorymark_site.accounts.names import LIKE_ANOTHER, is_taken
from memorymark_site.accounts.roles import Role, has_role

MAILING = "mailing"
"""The thread in which e-mail is sent to who has forgotten a password."""


class AccountForm(UserCreationForm[User]):
    """Name, e-mail and password of a new account: of the first admin, and of who is invited."""

    email = forms.EmailField(
        required=False,
        label="E-mail (optional)",
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )

    class Meta(UserCreationForm.Meta):
        fields = ("username", "email")

    def clean_username(self) -> str:
        """One that nobody mistakes for somebody else's."""
        name = str(self.cleaned_data["username"])
        if is_taken(name):
            raise forms.ValidationError(LIKE_ANOTHER)
        return name


class ForgottenForm(PasswordResetForm):
    """Where to send a link for a new password."""

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """Send it when the answer is on its way.

        An answer that waits for the mail server comes later where there is somebody to write to,
        and so tells which addresses have an account.
        """
        Thread(target=super().send_mail, args=args, kwargs=kwargs, name=MAILING).start()


class AddressForm(forms.Form):
    """The e-mail address of an account that is there."""

    email = forms.EmailField(
        required=False,
        label="E-mail",
        help_text="Notifications and links for a new password go there. Empty for none.",
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )

    def __init__(self, member: User, data: object = None) -> None:
        super().__init__(data, initial={"email": member.email})  # type: ignore[arg-type]  # what a request has
        self._member = member

    def clean_email(self) -> str:
        """Another one than now, and nobody else's."""
        email = str(self.cleaned_data["email"])
        if email == self._member.email:
            raise forms.ValidationError("That is what it is now.")
        if email and address.is_taken(email, self._member):
            raise forms.ValidationError("Another account has this address.")
        return email


class InviteForm(forms.Form):
    """What somebody is to be, and where the invitation is sent."""

    role = forms.ChoiceField(
        choices=Role.choices,
        initial=Role.MEMBER,
        label="Role",
        help_text="A viewer reads everything and changes nothing, a member submits analyses, an "
        "admin changes everything, the members too.",
    )
    email = forms.EmailField(
        required=False,
        label="E-mail (optional)",
        help_text="Without one you pass the link on yourself.",
    )

    def clean_email(self) -> str:
        """One who has an account needs no other."""
        email = str(self.cleaned_data["email"])
        if email and User.objects.filter(email__iexact=email).exists():
            raise forms.ValidationError("There is an account with this address already.")
        return email


class RoleForm(forms.Form):
    """What an account is to be from now on."""

    role = forms.ChoiceField(choices=Role.choices)


class TokenForm(forms.Form):
    """What a new API token is for, what it may do, and how long it works.

    A token of the page always ends: one that is forgotten in a script is then worth nothing some
    day. One that never ends takes ``manage.py token``, so somebody who runs the machine.
    """

    DAYS = (7, 30, 90, 365)

    name = forms.CharField(
        max_length=100,
        label="Name",
        help_text="What it is for, such as nightly training on node-3.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    scope = forms.ChoiceField(
        choices=Scope.choices,
        initial=Scope.READ,
        label="It may",
        help_text="To submit, cancel, adopt, label and push analyses takes write.",
    )
    days = forms.TypedChoiceField(
        choices=[(days, f"{days} days") for days in DAYS],
        coerce=int,
        initial=90,
        label="It works for",
    )

    def __init__(self, member: User, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]  # what a request has
        self._member = member
        if not has_role(member, Role.MEMBER):
            self.fields["scope"] = forms.ChoiceField(
                choices=[(Scope.READ, Scope.READ.label)], label="It may"
            )

    def clean_name(self) -> str:
        """Two by one name could not be told apart; so a form sent twice makes one token too."""
        name = str(self.cleaned_data["name"])
        if tokens.tokens_of(self._member).filter(name=name).exists():
            raise forms.ValidationError("You have a token of this name; choose another.")
        return name

    def make(self) -> str | None:
        """Make the token of a valid form; where there are too many, the form says so."""
        data = self.cleaned_data
        try:
            _, token = tokens.make(
                self._member, data["name"], Scope(data["scope"]), data["days"], actor=self._member
            )
        except tokens.TooManyTokens:
            self.add_error(None, f"You have {tokens.MOST_TOKENS} tokens; revoke one first.")
            return None
        return token
