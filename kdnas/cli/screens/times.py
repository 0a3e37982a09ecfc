"""Times and spans of time as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta


def age(passed: timedelta) -> str:
    """Say how long ago something was, in its largest unit."""
    seconds = max(0, int(passed.total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def span(seconds: float) -> str:
    """Say how long something takes, in its two largest units up to hours, as the dashboard does."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    if minutes >= 5:
        return f"{minutes} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def moment(at: datetime) -> str:
    """Write a time, UTC as all of them."""
    return f"{at:%Y-%m-%d %H:%M}"
