"""Django's settings, made from the environment; with no variable set, one machine just works.

The variables are described in :mod:`memorymark_site.environment`.
"""

import os
import sys
from typing import Any

import django_stubs_ext
from csp.constants import NONE, SELF

from engine import __version__
from memorymark_site import environment, secret_key
from memorymark_site.operations.log import logging_config
from memorymark_site.operations.redaction import secrets_of

django_stubs_ext.monkeypatch()  # Django's own classes take type arguments, as its stubs have them

ENVIRONMENT = env = environment.read_or_exit(os.environ)

BASE_DIR = environment.BASE_DIR
DATA_DIR = env.data_dir.resolve()
try:
    DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)  # sessions and secrets are in it
except OSError as error:
    sys.exit(f"the data folder cannot be created: {error}; name another with MEMORYMARK_DATA_DIR")
DEMO_MARK = DATA_DIR / "this-is-a-demo"
IS_DEMO = DEMO_MARK.is_file()

DEBUG = env.debug
try:
    SECRET_KEY = env.secret_key or secret_key.read_or_create(DATA_DIR / "secret-key")
except OSError as error:
    sys.exit(f"the secret key cannot be kept: {error}; set SECRET_KEY or MEMORYMARK_DATA_DIR")
NAMED_HOSTS = list(env.hosts)
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *NAMED_HOSTS]

INSTALLED_APPS = [
    "memorymark_site.accounts",  # first: its changepassword replaces Django's
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
    "memorymark_site.operations",
    "analyses",
]

MIDDLEWARE = [
    "memorymark_site.operations.log.RequestIdMiddleware",
    "memorymark_site.operations.prometheus.RequestMetricsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "memorymark_site.middleware.PrivateMiddleware",
    "django.middleware.gzip.GZipMiddleware",  # adds random length, against BREACH
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "memorymark_site.middleware.NotAPageMiddleware",
    "memorymark_site.middleware.HtmxLoginRedirectMiddleware",
    "memorymark_site.middleware.LoginUnlessOpenMiddleware",
    "memorymark_site.middleware.SecondFactorMiddleware",
    "memorymark_site.middleware.RoleMiddleware",
]

ROOT_URLCONF = "memorymark_site.urls"
WSGI_APPLICATION = "memorymark_site.wsgi.application"

FORM_RENDERER = "memorymark_site.form_renderer.Renderer"
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
                "memorymark_site.context.release",
                "memorymark_site.context.role",
                "analyses.pages.inbox.unread",
            ],
        },
    },
]

DATABASES = {"default": env.database}
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
CSRF_FAILURE_VIEW = "memorymark_site.operations.error_pages.form_expired"

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
    "authenticate": "memorymark_site.accounts.factor_forms.CodeForm",
    "reauthenticate": "memorymark_site.accounts.factor_forms.CodeAgainForm",
    "activate_totp": "memorymark_site.accounts.factor_forms.FirstCodeForm",
    "add_webauthn": "memorymark_site.accounts.factor_forms.PasskeyForm",
    "edit_webauthn": "memorymark_site.accounts.factor_forms.PasskeyNameForm",
    "authenticate_webauthn": "memorymark_site.accounts.factor_forms.PasskeyStepForm",
    "reauthenticate_webauthn": "memorymark_site.accounts.factor_forms.PasskeyAgainForm",
    "login_webauthn": "memorymark_site.accounts.factor_forms.PasskeySignInForm",
}

# Of whom the lab asks a second factor; see accounts/factors/rule.py
REQUIRE_MFA = env.require_mfa

# The lab's own provider of identities, if it has one; see accounts/single_sign_on/identities.py
OIDC = env.oidc
PASSWORD_SIGN_IN = env.password_sign_in

# What the browser is told

X_FRAME_OPTIONS = "DENY"
if env.https:
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
        "img-src": [SELF, "data:", "blob:"],  # plotly draws a chart's PNG from a blob
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    },
}

STATIC_URL = "/static/"
STATIC_ROOT = (BASE_DIR if environment.IS_CHECKOUT else DATA_DIR) / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "memorymark_site.package_files.PackageFilesFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_ALLOW_ALL_ORIGINS = False  # no other site has use for our files

# Members upload model configs and nothing else: what is longer than those is not even kept.
FILE_UPLOAD_HANDLERS = ["analyses.pages.new.upload.ConfigUploadHandler"]

# Long downloads, which each take one of the site's threads

DOWNLOADS_AT_ONCE = env.downloads

# The API

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "memorymark_site.accounts.tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "memorymark_site.accounts.tokens.FactorAsRuled",
        "memorymark_site.accounts.tokens.RoleAllows",
        "memorymark_site.accounts.tokens.WithinScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["analyses.api.limits.MemberThrottle"],
    "DEFAULT_PARSER_CLASSES": ["analyses.api.limits.BoundedJSONParser"],
    "EXCEPTION_HANDLER": "analyses.api.problems.handle_exception",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS has nothing to say that the schema does not
    "DEFAULT_SCHEMA_CLASS": "analyses.api.schema.Schema",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "MemoryMark",
    "DESCRIPTION": "Which batch size should this model train with, on which GPU, and what is that "
    "worth? Sizes are bytes, times are seconds, money is USD; nothing is rounded.",
    "VERSION": __version__,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "AnalysisStatus": "analyses.models.Status",
        "Source": "engine.interface.trial.Source",
        "PhaseName": "engine.interface.result.PhaseName",
        "Task": "engine.models.tasks.Task",
        "ModelKindEnum": "engine.models.tasks.Kind",
        "HealthStatus": ["ok", "failing"],
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "analyses.api.schema.with_selected_fields",
        "analyses.api.schema.with_problems",
    ],
}
API_UNITS_PER_MINUTE = env.api_units
KNOX_TOKEN_MODEL = "accounts.ApiToken"  # noqa: S105  # a model's name, not a password
REST_KNOX = {"TOKEN_TTL": None, "TOKEN_PREFIX": "mm_"}  # a token ends where its owner says so

# Notifications

GIVEN_URL = env.url or ""
PUBLIC_URL = GIVEN_URL or f"http://127.0.0.1:{env.port}"
WEBHOOK_HOSTS = frozenset(host.lower() for host in env.webhook_hosts)
DEFAULT_FROM_EMAIL = env.email_from or "MemoryMark <memorymark@localhost>"
globals().update(env.email)  # EMAIL_BACKEND, EMAIL_HOST and so on
EMAIL_TIMEOUT = 5  # seconds, for each answer of the mail server

# Whether members may show an analysis to people without an account
SHARE_LINKS = env.share_links

# What Prometheus has to send to read /metrics; empty: there is no such page
METRICS_TOKEN = env.metrics_token
METRICS_COLLECTORS = [
    "analyses.jobs.lab_metrics.LabCollector",
    "memorymark_site.operations.site_metrics.SiteCollector",
]

# Days after which rows are removed; 0 is never

KEPT_DAYS = {
    "MEMORYMARK_KEEP_LOG_DAYS": env.keep_log_days,
    "MEMORYMARK_KEEP_FAILED_DAYS": env.keep_failed_days,
    "MEMORYMARK_KEEP_NOTIFICATION_DAYS": env.keep_notification_days,
    "MEMORYMARK_KEEP_JOB_DAYS": env.keep_job_days,
}
QUERIES_KEPT_DAYS = env.keep_lookup_days

# The engine and the queue

ASKS_HUB = env.hub
ENVIRONMENTS_DIR = DATA_DIR / "environments"
ENGINE_COMMAND = [sys.executable, "-m", "engine", "run"]
ENGINE_USER = env.engine_user
ENGINE_DEADLINE_SECONDS = env.engine_deadline
QUEUED_PER_MEMBER = env.queued_per_member
QUERY_DEADLINE_SECONDS = {
    "predict": env.predict_deadline,
    "plan": env.plan_deadline,
}
_TASK_TIMEOUT_SECONDS = ENGINE_DEADLINE_SECONDS + 60  # the worker ends the engine well before

# How soon the loss of a worker is noticed follows from this: see analyses/jobs/timeouts.py
HEARTBEAT_SECONDS = 3.0

NODE_NAME = env.node
PREDICTION_WORKERS = env.workers

Q_CLUSTER: dict[str, Any] = {
    "name": "memorymark",
    "broker_class": "analyses.jobs.queue.LabBroker",
    "timeout": _TASK_TIMEOUT_SECONDS,
    "retry": 3 * _TASK_TIMEOUT_SECONDS,
    "queue_limit": 1,
    "bulk": 1,
    "ack_failures": True,
    "max_attempts": 1,
    "catch_up": False,
    "scheduler": False,
    "save_limit": 20,
    "poll": 0.15,
    "guard_cycle": 0.5,
}

LOG_LEVEL = env.log_level
LOGGING = logging_config(env.log_level, env.log_format, {*secrets_of(os.environ), SECRET_KEY})
