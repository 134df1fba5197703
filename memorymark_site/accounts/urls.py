"""Addresses of the account pages."""

from django.contrib.auth.views import LogoutView
from django.urls import path
from django.views.decorators.http import require_http_methods

from memorymark_site.accounts import address_views as address
from memorymark_site.accounts import audit_views as audit
from memorymark_site.accounts import member_views as members
from memorymark_site.accounts import own_views as own
from memorymark_site.accounts import token_views
from memorymark_site.accounts.factors.rule import needs_no_factor
from memorymark_site.accounts.roles import Role, needs
from memorymark_site.accounts.single_sign_on import views as sso
from memorymark_site.accounts.views import setup

_form = require_http_methods(["GET", "HEAD", "POST"])

app_name = "accounts"
urlpatterns = [
    path(
        "accounts/logout/",
        needs_no_factor(needs(Role.VIEWER)(LogoutView.as_view())),
        name="logout",
    ),
    path("accounts/sso/", sso.start, name="sso"),
    path("accounts/sso/callback/", sso.callback, name="sso-callback"),
    path("account/sso/link/", sso.link, name="sso-link"),
    path("account/sso/unlink/", sso.unlink, name="sso-unlink"),
    path("accounts/forgotten/", _form(own.Forgotten.as_view()), name="forgotten"),
    path("accounts/reset/<uidb64>/<token>/", _form(own.Reset.as_view()), name="reset"),
    path("tokens/", token_views.tokens_page, name="tokens"),
    path("tokens/<str:token_key>/revoke/", token_views.revoke, name="revoke-token"),
    path("setup/<str:token>/", setup, name="setup"),
    path("invitation/<str:key>/sso/", sso.join, name="sso-join"),
    path("invitation/<str:key>/", own.accept, name="accept"),
    path("account/", own.account, name="account"),
    path("account/address/", address.ask, name="address"),
    path("account/address/<str:token>/", address.confirm, name="confirm-address"),
    path(
        "account/password/",
        needs_no_factor(needs(Role.VIEWER)(_form(own.PasswordChange.as_view()))),
        name="password",
    ),
    path("account/sessions/end-others/", own.end_other_sessions, name="end-other-sessions"),
    path("account/sessions/<int:pk>/end/", own.end_session, name="end-session"),
    path("members/", members.member_list, name="members"),
    path("members/<int:pk>/role/", members.change_role, name="change-role"),
    path("members/<int:pk>/deactivate/", members.deactivate, name="deactivate"),
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
