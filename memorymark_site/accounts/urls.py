"""Addresses of the account pages, and those that django-allauth looks up by its own names.

Of allauth's pages only those listed here exist: none for signing up or for e-mail addresses.
"""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.views import LogoutView
from django.http import HttpResponseBase
from django.urls import include, path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from django.views.generic import View

from memorymark_site.accounts.pages import account, audit, entrance, factors, members
from memorymark_site.accounts.pages import single_sign_on as sso
from memorymark_site.accounts.roles import Role, needs
from memorymark_site.accounts.second_factors import needs_no_factor

_ViewFunction = Callable[..., HttpResponseBase]
_form = require_http_methods(["GET", "HEAD", "POST"])


def _own(view: _ViewFunction) -> _ViewFunction:
    """Open a view about signing in to every member, even before they have a second factor."""
    return needs_no_factor(needs(Role.VIEWER)(view))


def _factor(view: type[View]) -> _ViewFunction:
    return _own(never_cache(_form(view.as_view())))


def _factor_read_only(view: type[View]) -> _ViewFunction:
    return require_safe(_factor(view))


_pages = [
    path("accounts/logout/", _own(LogoutView.as_view()), name="logout"),
    path("accounts/sso/", sso.start, name="sso"),
    path("accounts/sso/callback/", sso.callback, name="sso-callback"),
    path("account/sso/link/", sso.link, name="sso-link"),
    path("account/sso/unlink/", sso.unlink, name="sso-unlink"),
    path("accounts/forgotten/", _form(entrance.Forgotten.as_view()), name="forgotten"),
    path("accounts/reset/<uidb64>/<token>/", _form(entrance.Reset.as_view()), name="reset"),
    path("tokens/", account.tokens_page, name="tokens"),
    path("tokens/<str:token_key>/revoke/", account.revoke_token, name="revoke-token"),
    path("setup/<str:token>/", entrance.setup, name="setup"),
    path("invitation/<str:key>/sso/", sso.join, name="sso-join"),
    path("invitation/<str:key>/", entrance.accept, name="accept"),
    path("account/", account.account, name="account"),
    path("account/address/", account.change_address, name="address"),
    path("account/address/<str:token>/", account.confirm_address, name="confirm-address"),
    path("account/password/", _own(_form(account.PasswordChange.as_view())), name="password"),
    path("account/sessions/end-others/", account.end_other_sessions, name="end-other-sessions"),
    path("account/sessions/<int:pk>/end/", account.end_session, name="end-session"),
    path("members/", members.member_list, name="members"),
    path("members/<int:pk>/role/", members.change_role, name="change-role"),
    path("members/<int:pk>/reactivate/", members.reactivate, name="reactivate"),
    path("members/<int:pk>/remove-factors/", members.remove_factors, name="remove-factors"),
    path("members/<int:pk>/reset-link/", members.reset_link, name="reset-link"),
    path("members/invitations/<int:pk>/renew/", members.renew_invitation, name="renew-invitation"),
    path(
        "members/invitations/<int:pk>/revoke/", members.revoke_invitation, name="revoke-invitation"
    ),
    path("audit/", audit.audit_log, name="audit"),
    path("audit/audit.csv", audit.audit_csv, name="audit-csv"),
]

_of_allauth = [
    path("accounts/login/", _form(entrance.SignIn.as_view()), name="account_login"),
    path("accounts/login/code/", _form(factors.SecondStep.as_view()), name="mfa_authenticate"),
    path(
        "accounts/login/passkey/",
        _form(factors.SignInByPasskey.as_view()),
        name="mfa_login_webauthn",
    ),
    path("account/confirm/", _factor(factors.PasswordAgain), name="account_reauthenticate"),
    path("account/confirm/code/", _factor(factors.CodeAgain), name="mfa_reauthenticate"),
    path(
        "account/confirm/passkey/",
        _factor(factors.PasskeyAgain),
        name="mfa_reauthenticate_webauthn",
    ),
    path("account/app/", _factor(factors.AddApp), name="mfa_activate_totp"),
    path("account/app/remove/", _factor(factors.RemoveApp), name="mfa_deactivate_totp"),
    path("account/passkeys/add/", _factor(factors.AddPasskey), name="mfa_add_webauthn"),
    path(
        "account/passkeys/<int:pk>/rename/",
        _factor(factors.RenamePasskey),
        name="mfa_edit_webauthn",
    ),
    path(
        "account/passkeys/<int:pk>/remove/",
        _factor(factors.RemovePasskey),
        name="mfa_remove_webauthn",
    ),
    path(
        "account/recovery-codes/",
        _factor_read_only(factors.RecoveryCodes),
        name="mfa_view_recovery_codes",
    ),
    path(
        "account/recovery-codes/new/",
        _factor(factors.NewRecoveryCodes),
        name="mfa_generate_recovery_codes",
    ),
    path(
        "account/recovery-codes/download/",
        _factor_read_only(factors.DownloadRecoveryCodes),
        name="mfa_download_recovery_codes",
    ),
]

urlpatterns = [path("", include((_pages, "accounts"))), *_of_allauth]
