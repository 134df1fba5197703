"""Forms of the account pages."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User

from memorymark_site.accounts.roles import Role


class AccountForm(UserCreationForm[User]):
    """Name, e-mail and password of a new account: of the first admin, and of who is invited."""

    email = forms.EmailField(required=False, label="E-mail (optional)")

    class Meta:
        model = User
        fields = ("username", "email")


class InviteForm(forms.Form):
    """What somebody is to be, and where the invitation is sent."""

    role = forms.ChoiceField(
        choices=[
            (Role.MEMBER, "Member: submits analyses and changes their own"),
            (Role.VIEWER, "Viewer: reads everything, changes nothing"),
            (Role.ADMIN, "Admin: changes everything, members too"),
        ],
        initial=Role.MEMBER,
        label="Role",
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
