"""Forms of signing in and of second factors: allauth's, with each code good for one time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allauth.account.forms import LoginForm, ReauthenticateForm
from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base import forms as base
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn.forms import (
    AddWebAuthnForm,
    AuthenticateWebAuthnForm,
    EditWebAuthnForm,
    LoginWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.contrib.auth.models import User
from django.db import transaction

from memorymark_site.accounts import audit, throttle
from memorymark_site.accounts.models import Action

LONGEST_NAME = 60
"""Characters of what a passkey is called."""


def _tidy(form: forms.Form) -> None:
    """Labels say what a field is for, so nothing stands in it; the first one is at hand."""
    for number, field in enumerate(form.fields.values()):
        field.widget.attrs.pop("placeholder", None)
        if not number:
            field.widget.attrs["autofocus"] = True


@contextmanager
def _refused() -> Iterator[None]:
    """What is not what browsers send is wrong as well: allauth reads it without looking first."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise get_adapter().validation_error("incorrect_code") from error


class SignInForm(LoginForm):  # type: ignore[misc]  # allauth has no types
    """Name and password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _tidy(self)


class PasswordAgainForm(ReauthenticateForm):  # type: ignore[misc]  # allauth has no types
    """The password of who is signed in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _tidy(self)


class FirstCodeForm(ActivateTOTPForm):  # type: ignore[misc]  # allauth has no types
    """The first code of a new authenticator app, which shows that it has the key."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Code that the app shows now"
        self.fields["code"].widget.attrs["inputmode"] = "numeric"
        _tidy(self)


class _GoodOnce:
    """A code of an app, or a recovery code, that nobody can use again.

    allauth remembers the codes that were used in the memory of one process; the site has several.
    """

    user: Any
    fields: dict[str, forms.Field]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Code"
        self.fields["code"].help_text = "Of your authenticator app, or one of your recovery codes."
        _tidy(self)  # type: ignore[arg-type]  # a form, once it is mixed in

    def clean_code(self) -> str:
        """The code, noted where it was a recovery code.

        Of two who send one at once the second waits here, and then sees that it was used.
        """
        with transaction.atomic():
            User.objects.select_for_update(no_key=True).get(pk=self.user.pk)
            code: str = super().clean_code()  # type: ignore[misc]  # of the form
            if throttle.take([throttle.of_code(self.user, normalize_user_code(code))]):
                raise get_adapter().validation_error("incorrect_code")
            authenticator = self.authenticator  # type: ignore[attr-defined]  # of the form
            if authenticator.type == Authenticator.Type.RECOVERY_CODES:
                authenticator.refresh_from_db()  # the code was crossed out in another object
                left = len(authenticator.wrap().get_unused_codes())
                audit.note(
                    self.user, Action.RECOVERY_CODE_USED, self.user.username, after=f"{left} left"
                )
        return code


class CodeForm(_GoodOnce, base.AuthenticateForm):  # type: ignore[misc]  # allauth has no types
    """A code at sign-in."""


class CodeAgainForm(_GoodOnce, base.ReauthenticateForm):  # type: ignore[misc]  # allauth has no types
    """A code of who is signed in."""


class PasskeyForm(AddWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A new passkey."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name, passwordless = self.fields["name"], self.fields["passwordless"]
        name.max_length, name.label = LONGEST_NAME, "Name"
        name.widget.attrs["maxlength"] = LONGEST_NAME
        name.help_text = "What it is on, such as my laptop or the blue key."
        passwordless.label = "It signs me in without the password"
        passwordless.initial = True
        passwordless.help_text = "It then asks for your fingerprint, face or PIN instead."

    def clean(self) -> dict[str, Any]:
        """With the passkey, where a browser has made it for us."""
        with _refused():
            cleaned: dict[str, Any] = super().clean()
        return cleaned

    def clean_name(self) -> str:
        """As given, or a number; never longer than fits."""
        return str(super().clean_name())[:LONGEST_NAME]


class PasskeyNameForm(EditWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """Another name for a passkey."""

    name = forms.CharField(max_length=LONGEST_NAME, label="Name")


class _Checked:
    """What a browser says that a passkey has signed; or what somebody has made up."""

    def clean_credential(self) -> Authenticator:
        """The passkey, where it has signed what it was asked to."""
        with _refused():
            return super().clean_credential()  # type: ignore[misc]  # of the form


class PasskeyStepForm(_Checked, AuthenticateWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A passkey after the password."""


class PasskeyAgainForm(_Checked, ReauthenticateWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A passkey of who is signed in."""


class PasskeySignInForm(_Checked, LoginWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A passkey alone."""
