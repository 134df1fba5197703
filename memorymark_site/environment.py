"""The environment variables that the site and its workers read: one typed description of them all.

The settings, gunicorn's configuration and ``docs/settings.md`` are made from it. ``python -m
memorymark_site.environment`` prints that document.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

import environ
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from memorymark_site.variable_types import (
    DatabaseUrl,
    Days,
    FactorRule,
    Hosts,
    Issuer,
    LogFormat,
    LogLevel,
    MailUrl,
    NewMember,
    Seconds,
    Switch,
    WebAddress,
)

BASE_DIR = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (BASE_DIR / "pyproject.toml").is_file()
"""Whether this runs from a copy of the repository, rather than from what pip installed."""

MANAGE = "python manage.py" if IS_CHECKOUT else "memorymark site"
"""The command that runs Django's commands here, for messages."""
START_SITE = "make run" if IS_CHECKOUT else "memorymark site"
START_WORKER = "make worker" if IS_CHECKOUT else "memorymark site cluster"

_DATA_DIR = BASE_DIR / "var" if IS_CHECKOUT else Path.home() / ".local" / "share" / "memorymark"


_NO_ENDLESS_WAIT = {
    "connect_timeout": 5,  # seconds, as the next three
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
    "options": "-c lock_timeout=5s",
}
"""For PostgreSQL: an error when a machine or a network is silently gone, or a table is locked. A
worker then tries again while its lease holds; libpq by itself waits for a quarter of an hour."""


class WrongEnvironment(Exception):
    """Variables have values that they do not take; the message has a line for each."""


@dataclass(frozen=True)
class OidcSettings:
    """A provider of identities.

    Attributes:
        issuer: Its address, exactly as it calls itself.
        client_id: Its name for this site.
        client_secret: The proof that this site is that client.
        name: Its name on the button of the sign-in page.
        new: The role of people without an account: ``viewer``, ``member`` or ``nobody``.
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str
    new: str


def _variable(name: str, default: Any, help_text: str, *, secret: bool = False) -> Any:
    return Field(default, alias=name, description=help_text, repr=not secret)


class Environment(BaseModel):
    """The values of the variables. An empty one counts as not set."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)

    data_dir: Path = _variable(
        "MEMORYMARK_DATA_DIR",
        _DATA_DIR,
        "Folder of the database and the secret key; where pip installed the site, "
        "`~/.local/share/memorymark` by default",
    )
    database_url: DatabaseUrl | None = _variable(
        "DATABASE_URL",
        None,
        "`postgres://user:password@host/name`; not set: SQLite in the data folder",
        secret=True,
    )
    secret_key: str = _variable(
        "SECRET_KEY",
        "",
        "Signs sessions and links; the same on every machine. Not set: created on "
        "the first start and kept in the data folder",
        secret=True,
    )
    host: str = _variable("HOST", "127.0.0.1", "Address the site listens on")
    port: Annotated[int, Field(ge=1, le=65_535)] = _variable(
        "PORT", 8000, "Port the site listens on"
    )
    web_processes: Annotated[int, Field(ge=0, le=64)] = _variable(
        "MEMORYMARK_WEB_PROCESSES", 0, "Processes that serve the site; 0: one per core, from 2 to 8"
    )
    web_threads: Annotated[int, Field(ge=1, le=64)] = _variable(
        "MEMORYMARK_WEB_THREADS", 4, "Requests that each of them answers at the same time"
    )
    downloads: Annotated[int, Field(ge=0, le=64)] = _variable(
        "MEMORYMARK_DOWNLOADS",
        3,
        "Long CSV and JSON downloads that run at the same time, all processes together; 0 for no "
        "limit",
    )
    hosts: Hosts = _variable(
        "MEMORYMARK_HOSTS",
        (),
        "Host names the site answers to besides this machine's, separated by commas",
    )
    https: Switch = _variable("MEMORYMARK_HTTPS", False, "A proxy serves the site over HTTPS")
    url: WebAddress | None = _variable(
        "MEMORYMARK_URL",
        None,
        "The site's address as members reach it. E-mails link to it (not set: "
        "`http://127.0.0.1:PORT`), and so do invitations and share links (not set: the address "
        "the site was opened at). Also for workers, which send e-mail",
    )
    require_mfa: FactorRule = _variable(
        "MEMORYMARK_REQUIRE_MFA", "none", "Who must set up a second factor before anything else"
    )
    oidc_issuer: Issuer | None = _variable(
        "MEMORYMARK_OIDC_ISSUER",
        None,
        "An OpenID Connect provider that members can sign in with; set this and the next two, or "
        "none of them",
    )
    oidc_client_id: str | None = _variable(
        "MEMORYMARK_OIDC_CLIENT_ID", None, "What the provider calls this site"
    )
    oidc_client_secret: str | None = _variable(
        "MEMORYMARK_OIDC_CLIENT_SECRET", None, "The client's secret", secret=True
    )
    oidc_name: str = _variable(
        "MEMORYMARK_OIDC_NAME", "single sign-on", "The provider's name on the sign-in page"
    )
    oidc_new: NewMember = _variable(
        "MEMORYMARK_OIDC_NEW",
        "nobody",
        "The role of people who sign in there and have no account; `nobody` keeps them out",
    )
    password_sign_in: Switch = _variable(
        "MEMORYMARK_PASSWORD_SIGN_IN",
        True,
        "Passwords sign in; `false` needs an OpenID Connect provider",
    )
    email_url: MailUrl | None = _variable(
        "EMAIL_URL",
        None,
        "The mail server: `smtp+tls://user:password@host:587`, or with TLS from the start "
        "`smtp+ssl://…:465`; not set: no e-mail is sent. Also for workers",
        secret=True,
    )
    email_from: str | None = _variable(
        "DEFAULT_FROM_EMAIL", None, "The sender of e-mail. Also for workers"
    )
    webhook_hosts: Hosts = _variable(
        "MEMORYMARK_WEBHOOK_HOSTS",
        (),
        "Exact host names, separated by commas, that webhooks may call although their addresses "
        "are private. Also for workers",
    )
    share_links: Switch = _variable(
        "MEMORYMARK_SHARE_LINKS",
        True,
        "Members can create links that show an analysis to people without an account",
    )
    hub: Switch = _variable(
        "MEMORYMARK_HUB",
        True,
        "The engine may fetch model configs from the Hugging Face hub. Also for workers",
    )
    node: str = _variable(
        "MEMORYMARK_NODE", "", "This machine's name among the nodes; not set: its host name"
    )
    workers: Annotated[int, Field(ge=1, le=1000)] = _variable(
        "MEMORYMARK_WORKERS",
        1,
        "Predictions that run at the same time on this machine; one with a GPU also measures one "
        "analysis at a time",
    )
    metrics_token: str = _variable(
        "MEMORYMARK_METRICS_TOKEN",
        "",
        "The token that Prometheus sends to read `/metrics`; not set: there is no `/metrics`",
        secret=True,
    )
    engine_user: Annotated[str, Field(pattern=r"^([a-z_][a-z0-9_-]*)?$")] = _variable(
        "MEMORYMARK_ENGINE_USER",
        "",
        "The account that engines run as on this machine, where the worker runs as root; not set: "
        "that of the worker",
    )
    engine_deadline: Seconds = _variable(
        "ENGINE_DEADLINE_SECONDS", 900, "Longest time for an analysis"
    )
    predict_deadline: Seconds = _variable(
        "PREDICT_DEADLINE_SECONDS", 60, "Longest time for a prediction beside the form"
    )
    plan_deadline: Seconds = _variable(
        "PLAN_DEADLINE_SECONDS", 300, "Longest time for the advice on an analysis"
    )
    api_units: Annotated[int, Field(ge=0)] = _variable(
        "MEMORYMARK_API_UNITS",
        1200,
        "API units per member and minute: a request costs one, one that starts the engine ten; 0 "
        "for no limit",
    )
    queued_per_member: Annotated[int, Field(ge=0)] = _variable(
        "MEMORYMARK_QUEUED_PER_MEMBER",
        200,
        "Analyses that one member may have waiting or running; 0 for no limit",
    )
    keep_log_days: Days = _variable(
        "MEMORYMARK_KEEP_LOG_DAYS",
        0,
        "Days after which log lines are removed; 0: never. Also for workers, as the next four",
    )
    keep_failed_days: Days = _variable(
        "MEMORYMARK_KEEP_FAILED_DAYS",
        0,
        "The same for analyses without an answer",
    )
    keep_notification_days: Days = _variable(
        "MEMORYMARK_KEEP_NOTIFICATION_DAYS", 0, "The same for notifications"
    )
    keep_job_days: Days = _variable(
        "MEMORYMARK_KEEP_JOB_DAYS", 0, "The same for imported jobs, from their end"
    )
    keep_lookup_days: Annotated[int, Field(ge=1, le=36_500)] = _variable(
        "MEMORYMARK_KEEP_LOOKUP_DAYS", 7, "The same for predictions that are not requested again"
    )
    log_level: LogLevel = _variable("LOG_LEVEL", "WARNING", "The lowest level that is logged")
    log_format: LogFormat = _variable(
        "LOG_FORMAT", "lines", "`lines` for people, or `json`: one object per line"
    )
    debug: Switch = _variable(
        "DEBUG", False, "Tracebacks in the browser; never where others can reach the site"
    )

    @model_validator(mode="after")
    def _single_sign_on_is_whole(self) -> Self:
        needed = {
            "MEMORYMARK_OIDC_ISSUER": self.oidc_issuer,
            "MEMORYMARK_OIDC_CLIENT_ID": self.oidc_client_id,
            "MEMORYMARK_OIDC_CLIENT_SECRET": self.oidc_client_secret,
        }
        missing = [name for name, value in needed.items() if not value]
        uses_it = self.model_fields_set & {"oidc_name", "oidc_new"}
        if missing and (uses_it or len(missing) < len(needed)):
            raise ValueError(
                f"single sign-on lacks {', '.join(missing)}: set all of {', '.join(needed)}, or "
                "none"
            )
        if not self.password_sign_in and missing:
            raise ValueError(
                "MEMORYMARK_PASSWORD_SIGN_IN=false leaves no way in: set MEMORYMARK_OIDC_ISSUER "
                "and the other two first"
            )
        return self

    @property
    def oidc(self) -> OidcSettings | None:
        """The lab's provider of identities, if it has one."""
        if not (self.oidc_issuer and self.oidc_client_id and self.oidc_client_secret):
            return None
        return OidcSettings(
            self.oidc_issuer,
            self.oidc_client_id,
            self.oidc_client_secret,
            self.oidc_name,
            self.oidc_new,
        )

    @property
    def database(self) -> dict[str, Any]:
        """The database as Django takes it, set up so that all processes can write to it."""
        if self.database_url is not None:
            named: dict[str, Any] = environ.Env.db_url_config(self.database_url)
        else:
            folder = self.data_dir.resolve()
            named = {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": folder / "memorymark.sqlite3",
            }
        if named["ENGINE"].endswith("sqlite3"):
            # IMMEDIATE takes the write lock when a transaction starts: taken later, a lock that
            # another process holds fails at once, without waiting for the timeout (seconds).
            named["OPTIONS"] = {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            }
        elif named["ENGINE"].endswith("postgresql"):
            named["OPTIONS"] = _NO_ENDLESS_WAIT | named.get("OPTIONS", {})
        return named | {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}

    @property
    def email(self) -> dict[str, Any]:
        """Django's settings of the mail server; without one, of a backend that sends nothing."""
        if self.email_url is None:
            return {"EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend"}
        named: dict[str, Any] = environ.Env.email_url_config(self.email_url)
        return named


def read(variables: Mapping[str, str]) -> Environment:
    """The environment, checked.

    Raises:
        WrongEnvironment: With a line for each variable that has a value it does not take.
    """
    try:
        return Environment.model_validate({k: v for k, v in variables.items() if v.strip()})
    except ValidationError as error:
        lines = [_in_one_line(problem) for problem in error.errors()]
        raise WrongEnvironment("\n".join(lines)) from None


def read_or_exit(variables: Mapping[str, str]) -> Environment:
    """The same for a program that is starting: where something is wrong, it says so and ends."""
    try:
        return read(variables)
    except WrongEnvironment as error:
        sys.exit(str(error))


def _in_one_line(problem: Any) -> str:
    if not problem["loc"]:
        return str(problem["ctx"]["error"])
    name = str(problem["loc"][0])
    described = next(field for field in Environment.model_fields.values() if field.alias == name)
    own = problem.get("ctx", {}).get("error")
    shown = f"{name}={problem['input']}" if described.repr else name
    return f"{shown} is not valid: give {own or _takes(described)}"


def _takes(described: FieldInfo) -> str:
    """The values a variable takes, from its type."""
    if described.annotation is bool:
        return "true or false"
    if get_origin(described.annotation) is Literal:
        return "one of " + ", ".join(get_args(described.annotation))
    if described.annotation is int:
        least = next(m.ge for m in described.metadata if hasattr(m, "ge"))
        most = next((m.le for m in described.metadata if hasattr(m, "le")), None)
        return f"a whole number from {least} to {most}" if most else f"a whole number from {least}"
    return "text"


def document() -> str:
    """The list of variables, as ``docs/settings.md`` has it."""
    return "\n".join(_document())


def _document() -> Iterator[str]:
    yield "# Settings"
    yield ""
    yield "All settings are environment variables, for the site and its workers; none is needed."
    yield "A wrong value ends every command with one line per variable. This list is printed by"
    yield "`python -m memorymark_site.environment`."
    yield ""
    yield "| Variable | Takes | Default | Meaning |"
    yield "| --- | --- | --- | --- |"
    for described in Environment.model_fields.values():
        takes = _takes(described)
        yield (
            f"| `{described.alias}` | {'' if takes == 'text' else takes} | "
            f"{_shown_default(described)} | {described.description} |"
        )
    yield ""


def _shown_default(described: FieldInfo) -> str:
    default = described.default
    if default in (None, "", ()):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default.relative_to(BASE_DIR) if isinstance(default, Path) else default}`"


if __name__ == "__main__":
    sys.stdout.write(document())
