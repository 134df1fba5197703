"""All settings, read from the environment; with none set, a lab of one machine just works.

Variables:
    MEMORYMARK_DATA_DIR: Folder of the database and the secret key (default ``var``).
    DATABASE_URL: Such as ``postgres://user:password@host/name`` (default: SQLite in that folder).
    SECRET_KEY: Default: made on the first start and kept in ``secret-key`` in that folder.
    MEMORYMARK_HOSTS: Host names the site answers to besides this machine's, separated by commas.
    MEMORYMARK_HTTPS: ``true`` where a proxy serves the site over HTTPS.
    MEMORYMARK_REQUIRE_MFA: Who has to set up a second factor before anything else: ``admins``,
        ``all`` or ``none`` (default). API tokens need none.
    MEMORYMARK_OIDC_ISSUER, MEMORYMARK_OIDC_CLIENT_ID, MEMORYMARK_OIDC_CLIENT_SECRET: A provider of
        OpenID Connect that members can sign in with; all three or none.
    MEMORYMARK_OIDC_NAME: What the sign-in page calls it (default ``single sign-on``).
    MEMORYMARK_OIDC_NEW: What somebody becomes who comes from there and has no account: ``viewer``,
        ``member`` or ``nobody`` (default: who is not invited stays out).
    MEMORYMARK_PASSWORD_SIGN_IN: ``false`` where nobody is to sign in with a password; only with
        the provider (default ``true``).
    MEMORYMARK_URL: The site's address as members reach it, for links in e-mails (default
        ``http://127.0.0.1:PORT``), invitations and share links (default: as the site was opened).
        Workers send e-mails: set this and the next three there too.
    EMAIL_URL: The mail server, such as ``smtp+tls://user:password@mail.example:587`` or, with TLS
        from the start, ``smtp+ssl://…:465`` (default: no e-mail is sent).
    DEFAULT_FROM_EMAIL: The sender of e-mail (default ``MemoryMark <memorymark@localhost>``).
    MEMORYMARK_WEBHOOK_HOSTS: Exact host names, separated by commas, that webhooks may call though
        their addresses are private.
    MEMORYMARK_SHARE_LINKS: ``false`` where no analysis may be shown to people without an account
        (default ``true``: members can make links that end).
    MEMORYMARK_HUB: ``off`` keeps the engine from asking the Hugging Face hub for the configs of
        models (default: it asks). Workers run it: set this there too.
    MEMORYMARK_NODE: This machine's name among the lab's nodes (default: its host name).
    MEMORYMARK_WORKERS: Predictions that run at the same time on this machine (default 1); a
        machine with a GPU measures one analysis besides.
    MEMORYMARK_METRICS_TOKEN: What Prometheus has to send to read ``/metrics``; without it there is
        no such page.
    ENGINE_DEADLINE_SECONDS: Longest time for one analysis (default 900).
    MEMORYMARK_API_UNITS: What a member may ask of the API in a minute (default 1200): a request is
        one unit, one that makes the engine work ten; 0 for no limit.
    PREDICT_DEADLINE_SECONDS, PLAN_DEADLINE_SECONDS: Longest time for a prediction beside the form
        of a new analysis (default 60), and for the advice on an analysis (default 300).
    MEMORYMARK_KEEP_LOG_DAYS, MEMORYMARK_KEEP_FAILED_DAYS, MEMORYMARK_KEEP_NOTIFICATION_DAYS: Days
        after which log lines, analyses without an answer, and notifications are removed (default 0:
        never); see :mod:`analyses.retention`. Workers do it: set these there too.
    MEMORYMARK_KEEP_LOOKUP_DAYS: The same of lookups that nobody asks any more (default 7).
    LOG_LEVEL: ``DEBUG``, ``INFO``, ``WARNING`` (default) or ``ERROR``.
    LOG_FORMAT: ``lines`` for people (default), or ``json``: one object a line.
    DEBUG: ``true`` shows tracebacks in the browser; never where others can reach the site.
"""

import os
import sys
from pathlib import Path

import django_stubs_ext
import environ
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from engine.models.hub_switch import asks_hub
from memorymark_site import database_settings, oidc_settings, secret_key
from memorymark_site.operations.logs.config import LINES, logging_config
from memorymark_site.operations.logs.redaction import secrets_of

django_stubs_ext.monkeypatch()  # Django's own classes take type arguments, as its stubs have them

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.str("MEMORYMARK_DATA_DIR", default=str(BASE_DIR / "var"))).resolve()
try:
    DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)  # sessions and secrets are in it
except OSError as error:
    raise ImproperlyConfigured(
        f"the data folder cannot be made: {error}; name another with MEMORYMARK_DATA_DIR"
    ) from error
DEMO_MARK = DATA_DIR / "this-is-a-demo"
IS_DEMO = DEMO_MARK.is_file()

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="") or secret_key.read_or_create(DATA_DIR / "secret-key")
NAMED_HOSTS = env.list("MEMORYMARK_HOSTS", default=[])
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *NAMED_HOSTS]

INSTALLED_APPS = [
    "memorymark_site.operations",  # first: its changepassword stands in for Django's
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
    "django_htmx",
    "django_q",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
    "rest_framework",
    "memorymark_site.accounts",
    "analyses",
]

MIDDLEWARE = [
    "memorymark_site.operations.logs.requests.RequestIdMiddleware",
    "memorymark_site.operations.metrics.requests.RequestMetricsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "memorymark_site.middleware.PrivateMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "memorymark_site.middleware.HtmxLoginRedirectMiddleware",
    "memorymark_site.middleware.LoginUnlessOpenMiddleware",
    "memorymark_site.middleware.SecondFactorMiddleware",
    "memorymark_site.middleware.RoleMiddleware",
]

ROOT_URLCONF = "memorymark_site.urls"
WSGI_APPLICATION = "memorymark_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "memorymark_site.context.demo",
                "memorymark_site.context.role",
            ],
        },
    },
]

DATABASES = {"default": database_settings.from_environment(env, DATA_DIR)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# Members and their sessions

LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "account_login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
PASSWORD_RESET_TIMEOUT = 24 * 3600  # seconds; of a link for a new password
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"

# Signing in and second factors: django-allauth, without what it has for who signs up

ACCOUNT_ADAPTER = "memorymark_site.accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 600  # seconds; so long a sign-in is recent
# Its limits count in the memory of one process; ours count in the database: see accounts/bounded.py
ACCOUNT_RATE_LIMITS = False
MFA_RATE_LIMITS = False
SOCIALACCOUNT_ADAPTER = "memorymark_site.accounts.adapters.SignOnAdapter"
MFA_ADAPTER = "memorymark_site.accounts.adapters.FactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True  # nobody signs up, so no address is held against its owner
MFA_TOTP_ISSUER = "MemoryMark"
MFA_TOTP_TOLERANCE = 1  # steps of 30 seconds that a clock may be off
MFA_FORMS = {
    "authenticate": "memorymark_site.accounts.factors.forms.CodeForm",
    "reauthenticate": "memorymark_site.accounts.factors.forms.CodeAgainForm",
    "activate_totp": "memorymark_site.accounts.factors.forms.FirstCodeForm",
    "add_webauthn": "memorymark_site.accounts.factors.forms.PasskeyForm",
    "edit_webauthn": "memorymark_site.accounts.factors.forms.PasskeyNameForm",
    "authenticate_webauthn": "memorymark_site.accounts.factors.forms.PasskeyStepForm",
    "reauthenticate_webauthn": "memorymark_site.accounts.factors.forms.PasskeyAgainForm",
    "login_webauthn": "memorymark_site.accounts.factors.forms.PasskeySignInForm",
}

# Of whom the lab asks a second factor; see accounts/factors/rule.py
REQUIRE_MFA = env.str("MEMORYMARK_REQUIRE_MFA", default="none").lower()
if REQUIRE_MFA not in ("none", "admins", "all"):
    raise ImproperlyConfigured(
        f"MEMORYMARK_REQUIRE_MFA={REQUIRE_MFA} is no rule; give one of none, admins, all"
    )

# The lab's own provider of identities, if it has one; see accounts/single_sign_on/identities.py
OIDC = oidc_settings.from_environment(os.environ)
PASSWORD_SIGN_IN = env.bool("MEMORYMARK_PASSWORD_SIGN_IN", default=True)
if not PASSWORD_SIGN_IN and OIDC is None:
    raise ImproperlyConfigured(
        "MEMORYMARK_PASSWORD_SIGN_IN=false leaves no way in: set MEMORYMARK_OIDC_ISSUER and the "
        "other two first"
    )

# What the browser is told

X_FRAME_OPTIONS = "DENY"
if env.bool("MEMORYMARK_HTTPS", default=False):
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 30 * 24 * 3600
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SILENCED_SYSTEM_CHECKS = [
        "security.W005",  # HSTS for subdomains: those of the site's name are not ours to decide on
        "security.W008",  # the proxy leads from http to https; see docs/operations.md
        "security.W021",  # preloading: as subdomains
    ]
    CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in NAMED_HOSTS]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        # plotly sets style attributes on the elements it draws; style sheets stay our own.
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    },
}

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "memorymark_site.plotly_static.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_ALLOW_ALL_ORIGINS = False  # no other site has use for our files

# Members upload model configs and nothing else: what is longer than those is not even kept.
FILE_UPLOAD_HANDLERS = ["analyses.uploads.ConfigUploadHandler"]

# The API

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "memorymark_site.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "memorymark_site.accounts.permissions.FactorAsRuled",
        "memorymark_site.accounts.permissions.RoleAllows",
        "memorymark_site.accounts.permissions.WithinScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["analyses.api.rates.MemberThrottle"],
    "DEFAULT_PARSER_CLASSES": ["analyses.api.parsers.BoundedJSONParser"],
    "EXCEPTION_HANDLER": "analyses.api.problems.handle_exception",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS has nothing to say that the schema does not
    "DEFAULT_SCHEMA_CLASS": "analyses.api.schema.Schema",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "MemoryMark",
    "DESCRIPTION": "Which batch size should this model train with, on which GPU, and what is that "
    "worth? Sizes are bytes, times are seconds, money is USD; nothing is rounded.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "AnalysisStatus": "analyses.models.Status",
        "Source": "engine.result.Source",
        "Task": "engine.models.kinds.Task",
        "HealthStatus": ["ok", "failing"],
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "analyses.api.schema.with_problems",
    ],
}
API_UNITS_PER_MINUTE = env.int("MEMORYMARK_API_UNITS", default=1200)
KNOX_TOKEN_MODEL = "accounts.ApiToken"  # noqa: S105  # a model's name, not a password
REST_KNOX = {"TOKEN_TTL": None, "TOKEN_PREFIX": "mm_"}  # a token ends where its owner says so

# Notifications

GIVEN_URL = env.str("MEMORYMARK_URL", default="").rstrip("/")
PUBLIC_URL = GIVEN_URL or f"http://127.0.0.1:{env.str('PORT', default='8000')}"
if not PUBLIC_URL.startswith(("http://", "https://")):
    raise ImproperlyConfigured(
        f"MEMORYMARK_URL={PUBLIC_URL} is not a web address; give one such as https://lab.example"
    )
WEBHOOK_HOSTS = frozenset(
    host.strip().lower() for host in env.list("MEMORYMARK_WEBHOOK_HOSTS", default=[])
)
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="MemoryMark <memorymark@localhost>")
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
if env.str("EMAIL_URL", default=""):
    globals().update(env.email_url("EMAIL_URL"))  # EMAIL_BACKEND, EMAIL_HOST and so on
EMAIL_TIMEOUT = 5  # seconds, for each answer of the mail server

# Whether members may show an analysis to people without an account
SHARE_LINKS = env.bool("MEMORYMARK_SHARE_LINKS", default=True)

# What Prometheus has to send to read /metrics; empty: there is no such page
METRICS_TOKEN = env.str("MEMORYMARK_METRICS_TOKEN", default="")

# What is removed, and after how many days; 0 is never


def _days(name: str, default: int = 0, least: int = 0) -> int:
    days: int = env.int(name, default=default)
    if not least <= days <= 36_500:
        raise ImproperlyConfigured(f"{name}={days} is no number of days from {least} to 36500")
    return days


KEPT_DAYS = {
    name: _days(name)
    for name in (
        "MEMORYMARK_KEEP_LOG_DAYS",
        "MEMORYMARK_KEEP_FAILED_DAYS",
        "MEMORYMARK_KEEP_NOTIFICATION_DAYS",
    )
}
LOOKUPS_KEPT_DAYS = _days("MEMORYMARK_KEEP_LOOKUP_DAYS", default=7, least=1)

# The engine and the queue

ASKS_HUB = asks_hub(os.environ)
ENGINE_COMMAND = [sys.executable, "-m", "engine", "run"]
ENGINE_DEADLINE_SECONDS = env.int("ENGINE_DEADLINE_SECONDS", default=900)
LOOKUP_DEADLINE_SECONDS = {
    "predict": env.int("PREDICT_DEADLINE_SECONDS", default=60),
    "plan": env.int("PLAN_DEADLINE_SECONDS", default=300),
}
_TASK_TIMEOUT_SECONDS = ENGINE_DEADLINE_SECONDS + 60  # the worker ends the engine well before

# How soon the loss of a worker is noticed follows from this: see analyses/pace.py
HEARTBEAT_SECONDS = 3.0

NODE_NAME = env.str("MEMORYMARK_NODE", default="")
PREDICTION_WORKERS = max(1, env.int("MEMORYMARK_WORKERS", default=1))

Q_CLUSTER = {
    "name": "predictions",
    "orm": "default",
    "broker_class": "analyses.queue.LabBroker",
    "timeout": _TASK_TIMEOUT_SECONDS,
    # The lock of a queue entry starts when it is fetched ahead, not when its task starts.
    "retry": 3 * _TASK_TIMEOUT_SECONDS,
    "queue_limit": 1,
    "bulk": 1,
    "ack_failures": True,
    "max_attempts": 1,
    "catch_up": False,
    "scheduler": False,
    "save_limit": 20,
    "poll": 0.2,
    "guard_cycle": 0.5,
}

LOG_LEVEL = env.str("LOG_LEVEL", default="WARNING").upper()
LOG_FORMAT = env.str("LOG_FORMAT", default=LINES).lower()
LOGGING = logging_config(LOG_LEVEL, LOG_FORMAT, {*secrets_of(os.environ), SECRET_KEY})
