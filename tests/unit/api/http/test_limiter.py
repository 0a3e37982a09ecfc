"""How often a wrong token may be sent, by one client and by all together."""

from __future__ import annotations

import pytest

from api.http.limiter import (
    FAILURE_SECONDS,
    FAILURES_OF_A_CLIENT,
    FAILURES_OF_ALL,
    LoginLimiter,
    place_of,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_client_has_five_tries_a_minute(clock: Clock) -> None:
    limiter = LoginLimiter(clock)
    for number in range(FAILURES_OF_A_CLIENT):
        assert limiter.seconds_to_wait("10.0.0.1") == 0
        clock.now = float(number)
        limiter.failed("10.0.0.1")
    assert limiter.seconds_to_wait("10.0.0.1") == FAILURE_SECONDS - 4
    assert limiter.seconds_to_wait("10.0.0.2") == 0
    clock.now = FAILURE_SECONDS  # the first is forgotten
    assert limiter.seconds_to_wait("10.0.0.1") == 0
    limiter.failed("10.0.0.1")
    assert limiter.seconds_to_wait("10.0.0.1") == 1
    clock.now = 3 * FAILURE_SECONDS
    assert limiter.seconds_to_wait("10.0.0.1") == 0


def test_where_many_guess_each_has_one_try_and_nobody_else_is_locked_out(clock: Clock) -> None:
    limiter = LoginLimiter(clock)
    for number in range(FAILURES_OF_ALL):
        assert limiter.seconds_to_wait(f"10.0.1.{number}") == 0
        limiter.failed(f"10.0.1.{number}")
    assert limiter.seconds_to_wait("10.0.0.2") == 0
    assert limiter.seconds_to_wait("10.0.1.7") == FAILURE_SECONDS
    limiter.failed("10.0.0.2")
    assert limiter.seconds_to_wait("10.0.0.2") == FAILURE_SECONDS
    clock.now = 45.0
    assert limiter.seconds_to_wait("10.0.0.2") == FAILURE_SECONDS - 45
    clock.now = FAILURE_SECONDS
    assert limiter.seconds_to_wait("10.0.0.2") == 0


def test_what_is_forgotten_takes_no_room(clock: Clock) -> None:
    limiter = LoginLimiter(clock)
    for number in range(3000):
        clock.now = float(number)
        limiter.failed(f"10.0.{number // 256}.{number % 256}")
    assert len(limiter._of_client) == len(limiter._failures) == FAILURE_SECONDS


@pytest.mark.parametrize(
    ("client", "place"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
    ],
)
def test_a_customer_with_many_addresses_is_one_client(client: str, place: str) -> None:
    assert place_of(client) == place
