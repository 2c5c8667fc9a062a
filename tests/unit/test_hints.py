"""Hints that are too long for PostgreSQL are divided, never cut."""

from __future__ import annotations

import json

from scheduler_app.hints.postgres import PAYLOAD_BYTES_MAX, pieces


def test_a_short_hint_is_one_piece() -> None:
    assert [*pieces({"runs": [1, 2], "events": 1})] == ['{"runs": [1, 2], "events": 1}']


def test_a_long_list_is_divided_and_all_of_it_arrives() -> None:
    topics = [f"run:{number}" for number in range(3000)]
    texts = [*pieces({"topics": topics})]
    assert all(len(text.encode()) <= PAYLOAD_BYTES_MAX for text in texts)
    assert [topic for text in texts for topic in json.loads(text)["topics"]] == topics


def test_what_goes_with_the_list_is_in_each_piece() -> None:
    texts = [*pieces({"runs": [*range(10**6, 10**6 + 2000)], "events": 1})]
    assert len(texts) > 1
    assert all(json.loads(text)["events"] == 1 for text in texts)


def test_letters_outside_ascii_count_as_they_are_sent() -> None:
    texts = [*pieces({"topics": [f"flow:{'é' * 200}{number}" for number in range(30)]})]
    assert len(texts) > 1
    assert all(len(text.encode()) <= PAYLOAD_BYTES_MAX for text in texts)


def test_one_value_that_is_too_long_goes_unsaid_and_the_others_do_not() -> None:
    texts = [*pieces({"topics": ["a", "x" * PAYLOAD_BYTES_MAX, "b"]})]
    assert sorted(topic for text in texts for topic in json.loads(text)["topics"]) == ["a", "b"]
