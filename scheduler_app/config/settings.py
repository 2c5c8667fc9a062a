"""Django's settings, read strictly from the environment; every duration, size and count has its unit.

Only ``DAYLIGHT_LEASE_TTL`` needs to be set to change the timing of a stack: the rest derives from it.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any, Final

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from scheduler_app.config import logging as log_lines
from scheduler_app.config import notifying, readers, timing
from scheduler_app.launch import addresses
from scheduler_app.launch.arguments import CONCURRENCY_MAX as _CONCURRENCY_MAX
from scheduler_app.launch.arguments import EXECUTORS
from scheduler_app.rules.guards import GuardLimits
from scheduler_app.rules.sign_in import Limits as SignInLimits

BASE_DIR: Final = Path(__file__).resolve().parents[2]

# -- Where things are -------------------------------------------------------------------------

DATA_DIR: Final = (
    Path(readers.text("DAYLIGHT_DATA_DIR", str(BASE_DIR / ".daylight"))).expanduser().absolute()
)
EXAMPLES: Final = not readers.flag("DAYLIGHT_NO_EXAMPLES", False)
EXAMPLES_FOLDER: Final = BASE_DIR / "scheduler_app" / "examples"
FLOW_FOLDERS: Final = [
    *readers.folders("DAYLIGHT_FLOWS"),
    *([EXAMPLES_FOLDER] if EXAMPLES else []),
]

_running = addresses.saved(DATA_DIR)
DATABASE_URL: Final = readers.text("DATABASE_URL", _running.database_url if _running else "")
BROKER_URL: Final = readers.text("BROKER_URL", _running.broker_url if _running else "")
CACHE_URL: Final = readers.text("CACHE_URL", _running.cache_url if _running else "")
# What carries tasks to workers: a broker to workers anywhere, or sockets to those of this machine.
# Whether a clear moves its run to the newest version where neither it nor the flow says.
RUN_ON_LATEST_VERSION: Final = readers.flag("DAYLIGHT_RUN_ON_LATEST_VERSION", False)
EXECUTOR: Final = readers.choice(
    "DAYLIGHT_EXECUTOR", _running.executor if _running else "celery", EXECUTORS
)

# -- Timing of the dispatch protocol ----------------------------------------------------------

LEASE_TTL_S: Final = readers.number("DAYLIGHT_LEASE_TTL", 15.0, least=0.5, greatest=3600)
LEASE_RENEW_INTERVAL_S: Final = readers.number(
    "DAYLIGHT_LEASE_RENEW_INTERVAL_S", LEASE_TTL_S / 5, least=0.05
)
# A holder stops relying on its lease this long after the start of its last renewal.
LEASE_DEADLINE_S: Final = readers.number(
    "DAYLIGHT_LEASE_DEADLINE_S", LEASE_TTL_S * 2 / 3, least=0.1
)
SHARD_COUNT: Final = readers.integer("DAYLIGHT_SHARD_COUNT", 16, least=1, greatest=1024)
HEARTBEAT_INTERVAL_S: Final = readers.number(
    "DAYLIGHT_HEARTBEAT_INTERVAL_S", LEASE_TTL_S / 3, least=0.1
)
# A job is alive while its heartbeat is younger: two beats, and what the third may come late.
JOB_ALIVE_S: Final = HEARTBEAT_INTERVAL_S * 2.1
HEARTBEAT_DEAD_AFTER_S: Final = readers.number(
    "DAYLIGHT_HEARTBEAT_DEAD_AFTER_S", LEASE_TTL_S * 4 / 3, least=0.2
)
if _contradictions := timing.contradictions(
    ttl_s=LEASE_TTL_S,
    renew_interval_s=LEASE_RENEW_INTERVAL_S,
    deadline_s=LEASE_DEADLINE_S,
    heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
    dead_after_s=HEARTBEAT_DEAD_AFTER_S,
):
    raise ImproperlyConfigured(_contradictions[0])
QUEUED_TIMEOUT_S: Final = readers.number("DAYLIGHT_QUEUED_TIMEOUT_S", LEASE_TTL_S * 2, least=0.5)
REPUBLISH_MAX: Final = readers.integer("DAYLIGHT_REPUBLISH_MAX", 5)
# A scheduler waits so long for the carrier of its messages, and then decides on without it.
CARRIER_PATIENCE_S: Final = readers.number(
    "DAYLIGHT_CARRIER_PATIENCE_S", LEASE_DEADLINE_S / 4, least=0.01
)
INFRASTRUCTURE_BUDGET: Final = readers.integer("DAYLIGHT_INFRASTRUCTURE_BUDGET", 3)

# -- The loop of the scheduler ----------------------------------------------------------------

# Without a hint the loop looks at everything this often; hints make it look at once.
SCHEDULER_TICK_INTERVAL_S: Final = readers.number(
    "DAYLIGHT_SCHEDULER_TICK_INTERVAL_S", 1.0, least=0.05, greatest=60
)
SCHEDULER_SWEEP_INTERVAL_S: Final = readers.number(
    "DAYLIGHT_SCHEDULER_SWEEP_INTERVAL_S", 2.0, least=0.1, greatest=300
)
# After a pool child ended without a report, its own report may still arrive so long.
EXIT_GRACE_S: Final = readers.number("DAYLIGHT_EXIT_GRACE_S", LEASE_TTL_S / 3)

# -- Sign-ins ---------------------------------------------------------------------------------

# Wrong passwords that are borne within the window: of a name from an address; of a name from everywhere,
# and of an address for all names. The next one waits until enough of them are past.
SIGN_IN_LIMITS: Final = SignInLimits(
    window_s=readers.number("DAYLIGHT_SIGN_IN_WINDOW_S", 300.0, least=1, greatest=3600),
    own_max=readers.integer("DAYLIGHT_SIGN_IN_FAILURES_MAX", 10, least=1),
    wide_max=readers.integer("DAYLIGHT_SIGN_IN_FAILURES_WIDE_MAX", 50, least=1),
)

# -- Guards of automatic actions --------------------------------------------------------------

# Run retries and clears of services, a flow and kind each. What an operator or the flow says wins.
GUARD_LIMITS: Final = GuardLimits(
    cooldown_s=readers.number("DAYLIGHT_GUARD_COOLDOWN_S", 0.0, least=0),
    actions_max=readers.integer("DAYLIGHT_GUARD_ACTIONS_MAX", 60, least=0),
    window_s=readers.number("DAYLIGHT_GUARD_WINDOW_S", 3600.0, least=1),
    runs_max=readers.integer("DAYLIGHT_GUARD_RUNS_MAX", 10, least=0),
    task_instances_max=readers.integer("DAYLIGHT_GUARD_TASK_INSTANCES_MAX", 1000, least=0),
)
# Users in this group are services: what they clear over the API is automatic.
SERVICES_GROUP: Final = readers.text("DAYLIGHT_SERVICES_GROUP", "services")

# -- Ghosts -----------------------------------------------------------------------------------

# Database, broker and workers are compared this often.
GHOST_AUDIT_INTERVAL_S: Final = readers.number(
    "DAYLIGHT_GHOST_AUDIT_INTERVAL_S", LEASE_TTL_S * 2, least=0.5, greatest=3600
)
# What becomes of an execution that the database knows nothing of: stop, leave, human.
GHOST_POLICY: Final = readers.choice("DAYLIGHT_GHOST_POLICY", "stop", ("stop", "leave", "human"))
# A record is suspect once it takes so many times the P99 of its task, unless the task says otherwise.
SUSPECT_FACTOR: Final = readers.number("DAYLIGHT_SUSPECT_FACTOR", 3.0, least=1.0, greatest=1000)
SUSPECT_FLOOR_S: Final = readers.number("DAYLIGHT_SUSPECT_FLOOR_S", 60.0)
# In place of the P99 of a task that has no history yet.
SUSPECT_ESTIMATE_S: Final = readers.number("DAYLIGHT_SUSPECT_ESTIMATE_S", 600.0)
SUSPECT_SUCCESSES_MIN: Final = readers.integer("DAYLIGHT_SUSPECT_SUCCESSES_MIN", 20, least=1)

# -- Flow files -------------------------------------------------------------------------------

FLOW_FILE_TIMEOUT_S: Final = readers.number("DAYLIGHT_FLOW_FILE_TIMEOUT_S", 10.0, least=0.1)
FLOW_SCAN_INTERVAL_S: Final = readers.number("DAYLIGHT_FLOW_SCAN_INTERVAL_S", 2.0, least=0.1)

# -- Limits -----------------------------------------------------------------------------------

RESULT_BYTES_MAX: Final = readers.integer("DAYLIGHT_RESULT_BYTES_MAX", 1024 * 1024, least=64)
# Elements of a result that a mapped task maps over; a task may say otherwise of its own.
MAX_MAP_LENGTH: Final = readers.integer("DAYLIGHT_MAX_MAP_LENGTH", 1024, least=1)
# Of one checkpoint; what is bigger belongs elsewhere, with a reference to it here.
CHECKPOINT_BYTES_MAX: Final = readers.integer("DAYLIGHT_CHECKPOINT_BYTES_MAX", 64 * 1024, least=64)
# Checkpoints and progress of an attempt reach the database so often at most; the last always does.
CHECKPOINT_INTERVAL_S: Final = readers.number("DAYLIGHT_CHECKPOINT_INTERVAL_S", 0.5, least=0.05)
CHECKPOINT_SAVES_KEPT: Final = readers.integer("DAYLIGHT_CHECKPOINT_SAVES_KEPT", 100, least=1)
LOG_BYTES_MAX: Final = readers.integer("DAYLIGHT_LOG_BYTES_MAX", 10 * 1024 * 1024, least=1024)
DEFAULT_POOL_SLOTS: Final = readers.integer("DAYLIGHT_DEFAULT_POOL_SLOTS", 128)
MAX_ACTIVE_RUNS: Final = readers.integer("DAYLIGHT_MAX_ACTIVE_RUNS", 16, least=1)
# Runs in a chain in which each triggers the next: more are taken for flows that trigger each other
# without an end.
TRIGGER_DEPTH_MAX: Final = readers.integer("DAYLIGHT_TRIGGER_DEPTH_MAX", 20, least=1)
MAX_ACTIVE_TASKS: Final = readers.integer("DAYLIGHT_MAX_ACTIVE_TASKS", 64, least=1)
# A worker that is told to stop lets running tasks go on so long; then they are handed back. A
# supervisor that kills after less than this and about 4 s more leaves the rest to the sweeps.
# A callback that runs longer is ended as failed.
CALLBACK_TIMEOUT_S: Final = readers.number("DAYLIGHT_CALLBACK_TIMEOUT_S", 60.0, least=0.1)
WORKER_DRAIN_S: Final = readers.number("DAYLIGHT_WORKER_DRAIN_S", 5.0)
# Triggers that one triggerer watches at most; timers and external events need no watching.
TRIGGERER_CAPACITY: Final = readers.integer("DAYLIGHT_TRIGGERER_CAPACITY", 10_000, least=1)
# A trigger whose code keeps the triggerer's loop busy for so long goes on in a process of its own.
TRIGGER_BLOCK_S: Final = readers.number("DAYLIGHT_TRIGGER_BLOCK_S", 1.0, least=0.05)
CONCURRENCY_MAX: Final = _CONCURRENCY_MAX
# Tasks at a time of one worker; 0, with the local executor: a process per task, as many as there are.
WORKER_CONCURRENCY: Final = readers.integer(
    "DAYLIGHT_CONCURRENCY", 2, least=0 if EXECUTOR == "local" else 1, greatest=CONCURRENCY_MAX
)

# -- Notifiers and alerts ---------------------------------------------------------------------

# Where people find this dashboard: links in letters begin with it.
BASE_URL: Final = readers.text("DAYLIGHT_BASE_URL").rstrip("/")
# Networks that notifiers may reach although they are not public.
NOTIFIER_NETWORKS: Final = notifying.networks("DAYLIGHT_NOTIFIER_NETWORKS")
NOTIFIER_TIMEOUT_S: Final = readers.number(
    "DAYLIGHT_NOTIFIER_TIMEOUT_S", 10.0, least=0.1, greatest=120
)
NOTIFIER_SECRETS: Final = notifying.secrets()
# Who is told of incidents that no flow names notifiers for.
ALERTS: Final = notifying.alerts("DAYLIGHT_ALERTS")
# An incident that lasts and that nobody has acknowledged is told again after so long.
ALERT_REMIND_AFTER_S: Final = readers.number("DAYLIGHT_ALERT_REMIND_AFTER_S", 14_400.0, least=60)
_mail: Final = notifying.mail_server("DAYLIGHT_EMAIL_URL")
EMAIL_HOST: Final = _mail["host"]
EMAIL_PORT: Final = _mail["port"]
EMAIL_HOST_USER: Final = _mail["user"]
EMAIL_HOST_PASSWORD: Final = _mail["password"]
EMAIL_USE_TLS: Final = _mail["tls"]
EMAIL_USE_SSL: Final = _mail["ssl"]
EMAIL_TIMEOUT: Final = NOTIFIER_TIMEOUT_S
DEFAULT_FROM_EMAIL: Final = readers.text("DAYLIGHT_EMAIL_FROM", "daylight@localhost")

# -- Secrets ----------------------------------------------------------------------------------

VARIABLE_KEY_CHARACTERS_MIN: Final = 32


def _secret_key() -> tuple[str, bool]:
    """The key, and whether it is only this process's own."""
    given = readers.text("DAYLIGHT_SECRET_KEY")
    if given:
        return given, False
    try:
        return (DATA_DIR / "secret-key").read_text(encoding="utf-8").strip(), False
    except OSError:
        return secrets.token_urlsafe(50), True


SECRET_KEY, SECRET_KEY_IS_OWN = _secret_key()
# What secrets among the variables are sealed under, newest first: long random texts. Without any,
# the data folder has them (scheduler_app/processes/sealing.py).
VARIABLE_KEYS: Final = readers.words("DAYLIGHT_VARIABLE_KEYS")
if any(len(key) < VARIABLE_KEY_CHARACTERS_MIN for key in VARIABLE_KEYS):
    raise ImproperlyConfigured(
        f"DAYLIGHT_VARIABLE_KEYS: each key needs {VARIABLE_KEY_CHARACTERS_MIN} characters or more"
    )

# How long a token of the API serves; one for a command line a shorter while.
API_TOKEN_LIFETIME_S: Final = readers.number("DAYLIGHT_API_TOKEN_LIFETIME_S", 24 * 3600.0, least=1)
CLI_TOKEN_LIFETIME_S: Final = readers.number("DAYLIGHT_CLI_TOKEN_LIFETIME_S", 3600.0, least=1)

# -- Django -----------------------------------------------------------------------------------

DEBUG: Final = readers.flag("DAYLIGHT_DEBUG", False)
ALLOWED_HOSTS: Final = ["127.0.0.1", "localhost", "[::1]", *readers.words("DAYLIGHT_ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS: Final = readers.words("DAYLIGHT_TRUSTED_ORIGINS")
ROOT_URLCONF: Final = "scheduler_app.config.urls"
ASGI_APPLICATION: Final = "scheduler_app.config.asgi.application"
DEFAULT_AUTO_FIELD: Final = "django.db.models.BigAutoField"

INSTALLED_APPS: Final = [
    "scheduler_app",  # before Django's own: its `test` command takes their place
    "dashboard",
    "scheduler_app.admin.apps.ReadOnlyAdminConfig",  # in the place of django.contrib.admin
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "django_htmx",
    "template_partials",
    "csp",
]

MIDDLEWARE: Final = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "scheduler_app.config.policy.PolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

TEMPLATES: Final = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]


def _database() -> dict[str, Any]:
    """The product's database; without an address, a socket that nobody listens on."""
    if not DATABASE_URL:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "daylight",
            "HOST": str(DATA_DIR / "no-stack-runs-here"),
        }
    try:
        database = addresses.database_settings(DATABASE_URL)
    except addresses.BadAddress as error:
        raise ImproperlyConfigured(f"DATABASE_URL: {error}") from None
    database["OPTIONS"].setdefault("connect_timeout", 5)
    return database


def _database_of_web() -> dict[str, Any]:
    """The same, as web processes use it."""
    database = _database()
    if not DATABASE_URL:
        return database
    options = database["OPTIONS"]
    options.setdefault("application_name", "daylight web")
    # A page that asks for too much gives up before it slows the writers down.
    limits = f"-c statement_timeout={round(WEB_STATEMENT_TIMEOUT_S * 1000)} -c jit=off"
    options["options"] = f"{limits} {options.get('options', '')}".strip()
    # Under ASGI each request would open a connection of its own without a pool.
    options["pool"] = {"min_size": 1, "max_size": WEB_CONNECTIONS_MAX, "timeout": 10}
    # A pooled connection may be of before a restart of the database.
    database["CONN_HEALTH_CHECKS"] = True
    return database


IS_WEB: Final = sys.argv[1:2] == ["web"] or os.environ.get("DAYLIGHT_PROCESS") == "web"
WEB_CONNECTIONS_MAX: Final = readers.integer("DAYLIGHT_WEB_CONNECTIONS_MAX", 16, least=2)
WEB_STATEMENT_TIMEOUT_S: Final = readers.number("DAYLIGHT_WEB_STATEMENT_TIMEOUT_S", 10.0, least=0.1)
DATABASES: Final = {"default": _database_of_web() if IS_WEB else _database()}
# What `DATABASES["default"]` becomes in a process that read its settings before it was a web process.
DATABASE_OF_WEB: Final = _database_of_web()

AUTH_PASSWORD_VALIDATORS: Final = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL: Final = "/login/"
LOGIN_REDIRECT_URL: Final = "/"
LOGOUT_REDIRECT_URL: Final = "/login/"

LANGUAGE_CODE: Final = "en"
USE_I18N: Final = False
USE_TZ: Final = True
TIME_ZONE: Final = "UTC"

STATIC_URL: Final = "/static/"
STATICFILES_DIRS: Final = [BASE_DIR / "static"]
# Only where files were collected; a folder that is not there is a warning at every start.
STATIC_ROOT: Final = readers.text("DAYLIGHT_STATIC_ROOT") or None
# Files are served from where they are: no collecting step before the first start.
WHITENOISE_USE_FINDERS: Final = True

SESSION_COOKIE_HTTPONLY: Final = True
SESSION_COOKIE_SAMESITE: Final = "Lax"
# Behind a proxy that speaks HTTPS; plain `up` listens on loopback HTTP.
HTTPS: Final = readers.flag("DAYLIGHT_HTTPS", False)
SESSION_COOKIE_SECURE: Final = HTTPS
CSRF_COOKIE_SECURE: Final = HTTPS
SECURE_SSL_REDIRECT: Final = False
SECURE_HSTS_SECONDS: Final = 31536000 if HTTPS else 0
SECURE_PROXY_SSL_HEADER: Final = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
X_FRAME_OPTIONS: Final = "DENY"

CONTENT_SECURITY_POLICY: Final = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "object-src": [NONE],
        "frame-ancestors": [NONE],
    }
}

REST_FRAMEWORK: Final = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "URL_FORMAT_OVERRIDE": None,  # `format` belongs to the export views
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

LOGGING: Final = log_lines.configuration(
    level=readers.choice("DAYLIGHT_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
    style=readers.choice("DAYLIGHT_LOG_FORMAT", "text", ("text", "json")),
)
