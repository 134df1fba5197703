"""Places where secrets might leak: the engine's environment, logs, error pages and links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from django.conf import settings

from analyses.jobs.engine_process import EngineProcess, Engines
from drills.node import ROOT
from engine.hub import SWITCH
from memorymark_site.tests.attacks.serving import METRICS_TOKEN, NAME_FIELD, PASSWORD, Site

SECRETS = {
    "SECRET_KEY": "secret-of-the-sessions",
    "DATABASE_URL": "postgres://lab:secret-of-the-database@db/lab",
    "EMAIL_URL": "smtp+tls://lab:secret-of-the-mail@mail:587",
    "MEMORYMARK_METRICS_TOKEN": "secret-of-the-metrics",
    "LAB_OIDC_CLIENT_SECRET": "secret-of-the-sign-in",
    "SOME_SECRET_OF_TOMORROW": "secret-of-tomorrow",
}


@pytest.fixture
def with_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(SWITCH, "off")


@pytest.fixture
def engine(with_secrets: None) -> Iterator[EngineProcess]:
    """The real engine, started as workers do."""
    started = Engines(keep_traces=True).take()
    yield started
    started.end()


def test_the_environment_of_the_engine_as_the_system_shows_it(engine: EngineProcess) -> None:
    """Secrets of the site, none of which malicious code in the engine would read."""
    shown = Path(f"/proc/{engine.pid}/environ")
    if not shown.exists():
        pytest.skip("this system shows no environments in /proc")
    until = monotonic() + 60
    while not (given := shown.read_bytes()) and monotonic() < until:
        sleep(0.05)  # the system fills it in shortly after the start
    assert [name for name in SECRETS if name.encode() in given] == []
    assert b"secret-of-" not in given
    assert b"PATH=" in given
    assert settings.SECRET_KEY.encode() not in given


@pytest.mark.slow
@pytest.mark.torch
def test_a_hub_id_with_the_hub_switched_off(engine: EngineProcess) -> None:
    """The setting reaches the engine, which refuses without any request."""
    engine.send({"ask": "predict", "request": {"model": "acme/own", "gpu": "a10"}})
    said = ""
    until = monotonic() + 600
    while "error" not in said and monotonic() < until and not engine.silent:
        said += "".join(line.text for line in engine.read(1) if line.stream == "stdout")
    assert f"the Hub is switched off here ({SWITCH}=off)" in said


@pytest.mark.longer
def test_the_output_of_a_command_with_database_and_mail_server_down(tmp_path: Path) -> None:
    """At DEBUG, including the final traceback: no passwords and no keys."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    secrets = SECRETS | {"DATABASE_URL": "postgres://lab:secret-of-the-database@127.0.0.1:1/lab"}
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--traceback"],
        cwd=ROOT,
        env=kept | secrets | {"MEMORYMARK_DATA_DIR": str(tmp_path), "LOG_LEVEL": "DEBUG"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "OperationalError" in said
    assert "secret-of-" not in said


@pytest.mark.slow
def test_the_data_folder_for_other_accounts_on_the_machine(tmp_path: Path) -> None:
    """On a GPU machine with many accounts, none can read the database or SECRET_KEY."""
    data = tmp_path / "new" / "var"
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    environment = kept | {"MEMORYMARK_DATA_DIR": str(data)}
    command = [sys.executable, "manage.py", "check", "--deploy"]
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert data.stat().st_mode & 0o077 == 0
    assert (data / "secret-key").stat().st_mode & 0o077 == 0
    data.chmod(0o755)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "memorymark.W010" in done.stderr


def test_the_log_of_a_whole_visit(site: Site) -> None:
    """At DEBUG, on a real server: signing in, and valid and invalid keys of every kind."""
    wrong = "not-the-password-but-nearly"
    page = site.ask("GET", "/accounts/login/")
    csrf = page.headers["Set-Cookie"].partition(";")[0]
    form = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Referer": "https://lab.example/accounts/login/",
        "Cookie": csrf,
    }
    keys = []
    for word in (wrong, PASSWORD):
        body = f"csrfmiddlewaretoken={csrf.partition('=')[2]}&{NAME_FIELD}=olga&password={word}"
        answer = site.ask("POST", "/accounts/login/", body.replace(" ", "+").encode(), form)
        set_cookies = answer.headers.get_all("Set-Cookie") or []
        keys += [cookie for cookie in set_cookies if cookie.startswith("sessionid=")]
    assert len(keys) == 1, "signed in once"
    session = keys[0].partition(";")[0].partition("=")[2]
    for token in (site.token, site.token + "x", METRICS_TOKEN):
        site.ask("GET", "/api/v1/analyses/", headers={"Authorization": f"Token {token}"})
        site.ask("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        site.ask("GET", f"/invitation/{token}/")
        site.ask("GET", f"/accounts/reset/MQ/{token}/")
        site.ask("GET", f"/setup/{token}/")
        site.ask("GET", f"/shared/{token}/?token={token}")
    log = site.log()
    assert log.count("request_id=") > 10, "it was written at INFO and below"
    for secret in (PASSWORD, wrong, site.token, METRICS_TOKEN, session, site.secret_key):
        assert secret not in log
