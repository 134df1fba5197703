"""allauth's forms for signing in and second factors, with our labels and one-time codes."""

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

MAX_NAME_LENGTH = 60
"""Characters in the name of a passkey."""


def _tidy(form: forms.Form) -> None:
    """Labels instead of placeholders, and the focus on the first field."""
    for number, field in enumerate(form.fields.values()):
        field.widget.attrs.pop("placeholder", None)
        if not number:
            field.widget.attrs["autofocus"] = True


@contextmanager
def _refused() -> Iterator[None]:
    """Refuse data that no browser sends: allauth parses it without checking."""
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
    """The password, again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _tidy(self)


class FirstCodeForm(ActivateTOTPForm):  # type: ignore[misc]  # allauth has no types
    """The first code of a new authenticator app."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Current code from the app"
        self.fields["code"].widget.attrs["inputmode"] = "numeric"
        _tidy(self)


class _GoodOnce:
    """A code from an app, or a recovery code, that works once.

    allauth remembers used codes in the memory of one process; the site has several.
    """

    user: Any
    fields: dict[str, forms.Field]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].label = "Code"
        self.fields["code"].help_text = "From your authenticator app, or a recovery code."
        _tidy(self)  # type: ignore[arg-type]  # a form, once it is mixed in

    def clean_code(self) -> str:
        """The code; a recovery code is audited.

        Of two who send the same code at once, the second waits here and is then refused.
        """
        with transaction.atomic():
            User.objects.select_for_update(no_key=True).get(pk=self.user.pk)
            code: str = super().clean_code()  # type: ignore[misc]  # of the form
            if throttle.take([throttle.of_code(self.user, normalize_user_code(code))]):
                raise get_adapter().validation_error("incorrect_code")
            authenticator = self.authenticator  # type: ignore[attr-defined]  # of the form
            if authenticator.type == Authenticator.Type.RECOVERY_CODES:
                authenticator.refresh_from_db()  # another object crossed the code out
                left = len(authenticator.wrap().get_unused_codes())
                audit.note(
                    self.user, Action.RECOVERY_CODE_USED, self.user.username, after=f"{left} left"
                )
        return code


class CodeForm(_GoodOnce, base.AuthenticateForm):  # type: ignore[misc]  # allauth has no types
    """A code at sign-in."""


class CodeAgainForm(_GoodOnce, base.ReauthenticateForm):  # type: ignore[misc]  # allauth has no types
    """A code, again."""


class PasskeyForm(AddWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A new passkey."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name, passwordless = self.fields["name"], self.fields["passwordless"]
        name.max_length, name.label = MAX_NAME_LENGTH, "Name"
        name.widget.attrs["maxlength"] = MAX_NAME_LENGTH
        name.help_text = "Where it is stored, e.g. my laptop or the blue key."
        passwordless.label = "Sign in without a password"
        passwordless.initial = True
        passwordless.help_text = "You will be asked for your fingerprint, face or PIN instead."

    def clean(self) -> dict[str, Any]:
        with _refused():
            cleaned: dict[str, Any] = super().clean()
        return cleaned

    def clean_name(self) -> str:
        return str(super().clean_name())[:MAX_NAME_LENGTH]


class PasskeyNameForm(EditWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A new name for a passkey."""

    name = forms.CharField(max_length=MAX_NAME_LENGTH, label="Name")


class _Checked:
    """A credential signed by a passkey, or made up."""

    def clean_credential(self) -> Authenticator:
        with _refused():
            return super().clean_credential()  # type: ignore[misc]  # of the form


class PasskeyStepForm(_Checked, AuthenticateWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A passkey after the password."""


class PasskeyAgainForm(_Checked, ReauthenticateWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A passkey, again."""


class PasskeySignInForm(_Checked, LoginWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    """A passkey alone."""
