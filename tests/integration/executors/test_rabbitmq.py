"""What holds for both executors holds over RabbitMQ too, where the machine has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.executors import test_with_a_scheduler as scheduled
from tests.integration.executors import test_workers as workers
from tests.integration.executors.conftest import Hall
from tests.rabbitmq import NoRabbitMq, RabbitMq

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nurseries import Nurseries
    from tests.workshop import Workshop

SHARED: tuple[Callable[..., None], ...] = (
    workers.test_an_empty_queue_has_the_depth_zero,
    workers.test_a_worker_executes_tells_and_ends_in_order,
    workers.test_two_workers_share_what_comes,
    workers.test_what_waits_behind_a_long_task_is_done_by_a_worker_that_comes_later,
    workers.test_a_delivery_that_comes_twice_is_refused_once_and_disturbs_nothing,
    workers.test_no_message_waits_in_a_child_while_all_are_busy,
    workers.test_a_stopped_worker_leaves_waiting_messages_to_others,
    workers.test_no_deliveries_are_taken_while_the_database_is_away,
    scheduled.test_a_run_ends_and_so_does_a_fan_of_fifty,
    scheduled.test_a_worker_that_is_killed_costs_a_new_attempt_and_no_retry,
    scheduled.test_messages_that_are_lost_are_published_again_for_the_same_attempts,
    scheduled.test_a_queue_that_nobody_serves_is_an_incident_until_somebody_does,
)


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMq]:
    try:
        node = RabbitMq()
    except NoRabbitMq as error:
        pytest.skip(str(error))
    with node:
        yield node


@pytest.fixture
def hall(
    workshop: Workshop, place: Path, halls: list[Hall], nurseries: Nurseries, rabbitmq: RabbitMq
) -> Hall:
    """Nothing runs yet, and RabbitMQ carries the messages."""
    halls.append(Hall("celery", workshop, place, nurseries, broker_url=rabbitmq.url))
    return halls[-1]


@pytest.mark.parametrize("play", SHARED, ids=lambda play: play.__name__.removeprefix("test_"))
def test_over_rabbitmq(
    play: Callable[..., None], workshop: Workshop, hall: Hall, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"workshop": workshop, "hall": hall, "tmp_path": tmp_path}
    play(**{name: given[name] for name in signature(play).parameters})
