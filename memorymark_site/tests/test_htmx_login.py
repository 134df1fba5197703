from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client

from analyses.tests.factories import make_user

HTMX = {"HX-Request": "true", "HX-Current-URL": "http://testserver/7/?tab=log"}


def test_an_expired_session_redirects_the_whole_page_to_the_login(client: Client, db: None) -> None:
    response = client.get("/7/live/", headers=HTMX)

    assert response.status_code == 200
    assert response["HX-Redirect"] == "/accounts/login/?next=/7/%3Ftab%3Dlog"
    assert not response.content


def test_a_request_without_htmx_is_redirected_normally(client: Client, db: None) -> None:
    response = client.get("/7/")

    assert response.status_code == 302
    assert "HX-Redirect" not in response


def test_other_redirects_are_left_alone(client: Client, db: None) -> None:
    user: User = make_user()
    client.force_login(user)
    response = client.get(
        "/accounts/login/", headers=HTMX
    )  # signed in: redirects to the start page

    assert response.status_code == 302
    assert response["Location"] == "/"
