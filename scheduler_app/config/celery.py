"""The Celery application: only a carrier of messages; the database decides what runs."""

from __future__ import annotations

import os
from typing import Final

from celery import Celery
from django.conf import settings
from kombu import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_app.config.settings")

# Early acknowledgement leaves a message unacknowledged for moments only; longer than this means
# that its worker is gone. A redelivery that comes all the same is refused by the claim.
VISIBILITY_TIMEOUT_S: Final = 3600
SOCKET_TIMEOUT_S: Final = 10
DEFAULT_QUEUE: Final = "daylight.default"

# Without Django's fixup: it would close the database connection around every task.
app = Celery("daylight", fixups=[], set_as_current=True)
app.conf.update(
    broker_url=settings.BROKER_URL or "memory://",
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 25,
    },
    result_backend=None,
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_acks_late=False,
    task_serializer="json",
    accept_content=["json"],
    task_publish_retry=True,
    task_publish_retry_policy={"max_retries": 2, "interval_start": 0, "interval_step": 0.2},
    task_create_missing_queues=True,
    task_default_queue=DEFAULT_QUEUE,
    task_queues=[Queue(DEFAULT_QUEUE, routing_key=DEFAULT_QUEUE)],
    task_send_sent_event=False,
    task_track_started=False,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_enable_remote_control=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    imports=("scheduler_app.worker.tasks",),
    enable_utc=True,
    timezone="UTC",
)
