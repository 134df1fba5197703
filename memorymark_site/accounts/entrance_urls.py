"""Addresses that django-allauth has to find, by the names it looks them up by.

Only those that are wanted: its pages for signing up, e-mail addresses and the like are not here.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponseBase
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from django.views.generic import View

from memorymark_site.accounts.factors import passkey_views as passkeys
from memorymark_site.accounts.factors import views as factors
from memorymark_site.accounts.factors.rule import needs_no_factor
from memorymark_site.accounts.roles import Role, needs
from memorymark_site.accounts.views import SignIn


def _open(view: type[View]) -> Callable[..., HttpResponseBase]:
    """For who is not signed in yet."""
    return require_http_methods(["GET", "HEAD", "POST"])(view.as_view())


def _own(view: type[View]) -> Callable[..., HttpResponseBase]:
    """For everybody, about how they sign in themselves."""
    return needs_no_factor(needs(Role.VIEWER)(never_cache(_open(view))))


def _shown(view: type[View]) -> Callable[..., HttpResponseBase]:
    """The same where there is nothing to do, but to look."""
    return require_safe(_own(view))


urlpatterns = [
    path("accounts/login/", _open(SignIn), name="account_login"),
    path("accounts/login/code/", _open(factors.SecondStep), name="mfa_authenticate"),
    path("accounts/login/passkey/", _open(passkeys.SignInByPasskey), name="mfa_login_webauthn"),
    path("account/confirm/", _own(factors.PasswordAgain), name="account_reauthenticate"),
    path("account/confirm/code/", _own(factors.CodeAgain), name="mfa_reauthenticate"),
    path(
        "account/confirm/passkey/",
        _own(passkeys.PasskeyAgain),
        name="mfa_reauthenticate_webauthn",
    ),
    path("account/app/", _own(factors.AddApp), name="mfa_activate_totp"),
    path("account/app/remove/", _own(factors.RemoveApp), name="mfa_deactivate_totp"),
    path("account/passkeys/add/", _own(passkeys.AddPasskey), name="mfa_add_webauthn"),
    path(
        "account/passkeys/<int:pk>/rename/",
        _own(passkeys.RenamePasskey),
        name="mfa_edit_webauthn",
    ),
    path(
        "account/passkeys/<int:pk>/remove/",
        _own(passkeys.RemovePasskey),
        name="mfa_remove_webauthn",
    ),
    path("account/recovery-codes/", _shown(factors.RecoveryCodes), name="mfa_view_recovery_codes"),
    path(
        "account/recovery-codes/new/",
        _own(factors.NewRecoveryCodes),
        name="mfa_generate_recovery_codes",
    ),
    path(
        "account/recovery-codes/download/",
        _shown(factors.DownloadRecoveryCodes),
        name="mfa_download_recovery_codes",
    ),
]
