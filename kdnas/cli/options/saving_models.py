"""``--save-models`` of ``kdnas evaluate``: fine-tuned models as folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdnas.cli.screens.console import say, say_each
from kdnas.errors import RequestError, unknown_name

if TYPE_CHECKING:
    from api.evaluations.prepare import PreparedEvaluation
    from api.evaluations.run import FinishedPair
    from kdnas.db.engine import Database
    from kdnas.settings import Settings

WHICH = ("best", "each")


@dataclass(frozen=True)
class Saving:
    """Where models go, and of which seeds: ``best`` or ``each``.

    Raises:
        RequestError: neither of these.
    """

    folder: Path
    which: Any = "best"

    def __post_init__(self) -> None:
        if self.which not in WHICH:
            raise RequestError(unknown_name("choice of --save-seeds", self.which, WHICH))

    def save(
        self,
        prepared: PreparedEvaluation,
        finished: Sequence[FinishedPair],
        database: Database,
        settings: Settings,
        tell: Callable[..., None],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Write the models and say where; False if that was stopped."""
        from api.evaluations.command import save_models

        def retrain(pair: FinishedPair) -> None:
            result = pair.result
            say(
                f"  {result.task} seed {result.seed}: known from before, but its model was not "
                "kept; it is trained again"
            )

        folders = save_models(
            prepared,
            finished,
            self.folder,
            self.which,
            database,
            settings,
            tell,
            retrain,
            should_stop,
        )
        say_each(f"model      {one}  (kdnas predict {one} TEXT)" for one in folders or ())
        return folders is not None
