"""``requests``: what is said fits into a message."""

from __future__ import annotations

from gymshm.requests import Operation


def test_operations_fit_into_a_message():
    assert all(0 < operation < 256 for operation in Operation)
