"""Forms of the account pages."""

from django import forms
from django.contrib.auth.forms import BaseUserCreationForm
from django.contrib.auth.models import User


class SetupForm(BaseUserCreationForm[User]):
    """Name, e-mail and password of the lab's first admin."""

    email = forms.EmailField(required=False, label="E-mail (optional)")

    class Meta:
        model = User
        fields = ("username", "email")
