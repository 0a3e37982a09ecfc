"""How processes of the service write their logs: JSON or, on a terminal, lines for the eye."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from api.logs.lines import printable

FOR_THE_EYE_VARIABLE: Final = "KDNAS_LINES_FOR_THE_EYE"
"""Set for processes whose stderr ends on a terminal, though they themselves see a pipe."""

_TALKATIVE = ("kdnas", "api", "workers", "controller", "uvicorn")


def _steering_nothing(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Show on a terminal what came from outside, such as the path of a request, as text alone."""
    return {key: printable(one) if isinstance(one, str) else one for key, one in event.items()}


def configure_logs(stream: TextIO | None = None) -> None:
    """Write our logs, and warnings of the libraries, in one way; ``stream`` is stderr if None."""
    target = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[Processor] = (
        [
            _steering_nothing,
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ]
        if target.isatty() or FOR_THE_EYE_VARIABLE in os.environ
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
