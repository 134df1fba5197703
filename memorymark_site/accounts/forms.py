"""Forms of the account pages."""

from django import forms
from django.contrib.auth.forms import BaseUserCreationForm
from django.contrib.auth.models import User

from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope


class SetupForm(BaseUserCreationForm[User]):
    """Name, e-mail and password of the lab's first admin."""

    email = forms.EmailField(required=False, label="E-mail (optional)")

    class Meta:
        model = User
        fields = ("username", "email")


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
        help_text="To submit, cancel, adopt and push analyses takes write.",
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
            _, token = tokens.make(self._member, data["name"], Scope(data["scope"]), data["days"])
        except tokens.TooManyTokens:
            self.add_error(None, f"You have {tokens.MOST_TOKENS} tokens; revoke one first.")
            return None
        return token
