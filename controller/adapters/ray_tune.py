"""Any strategy as a search algorithm of Ray Tune."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ray.tune.search import Searcher

from controller.adapters.rounds import Rounds, StudentSearch
from kdnas.errors import SpecError

VERSION: Final = 1


class KdnasSearcher(Searcher):  # type: ignore[misc]
    """Proposes students by a strategy of kdnas; the least loss that trials report is wanted.

    A trial's configuration is a student's five axes: ``Architecture(**config)``. Within an episode
    trials run side by side, and the next one begins when all have ended, so that proposals do not
    depend on how many run at once. A trial that failed counts as a failure, and so does a loss
    that is not finite; one that a scheduler ended early counts with its last loss. When all states
    within the limits are tried there is nothing more to suggest.

    Args:
        search: what is searched.
        metric: under which trials report their held-out loss.
        mode: ``min``.

    Raises:
        SpecError: another mode; else see :class:`~controller.adapters.rounds.Rounds`.
    """

    def __init__(self, search: StudentSearch, metric: str = "loss", mode: str = "min") -> None:
        if mode != "min":
            raise SpecError(f"mode is {mode!r}; losses are minimised, take mode 'min'")
        super().__init__(metric=metric, mode=mode)
        self._search = search
        self._rounds = Rounds(search)
        self._told: list[tuple[int, float | None]] = []
        self._running: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Propose a state's axes; None while an episode's last trials run, FINISHED at the end.

        Raises:
            SpecError: the strategy breaks its contract.
        """
        waiting = self._rounds.ask()
        if not waiting:
            finished: str = Searcher.FINISHED
            return finished
        running = set(self._running.values())
        index = next((index for index in waiting if index not in running), None)
        if index is None:
            return None
        self._running[trial_id] = index
        return self._search.params_of(index)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Take note of what a trial came to; one that was not proposed here is passed over."""
        index = self._running.pop(trial_id, None)
        if index is not None:
            loss = None if error or result is None else result.get(self.metric)
            self._tell(index, None if loss is None else float(loss))

    def save(self, checkpoint_path: str) -> None:
        """Write what was told, and which trials run, as JSON."""
        state = {
            "version": VERSION,
            "space": self._search.space.fingerprint,
            "told": self._told,
            "running": self._running,
        }
        Path(checkpoint_path).write_text(json.dumps(state), "utf-8")

    def restore(self, checkpoint_path: str) -> None:
        """Take up what :meth:`save` wrote: the same proposals follow as if nothing had happened.

        Raises:
            SpecError: it is of another version or space.
        """
        state = json.loads(Path(checkpoint_path).read_text("utf-8"))
        wanted = {"version": VERSION, "space": self._search.space.fingerprint}
        found = {key: state.get(key) for key in wanted}
        if found != wanted:
            raise SpecError(
                f"the searcher's state in {checkpoint_path} is of {found}, this search is of "
                f"{wanted}; restore it with the space that it was made for"
            )
        self._rounds, self._told = Rounds(self._search), []
        for index, loss in state["told"]:
            self._tell(index, loss)
        self._running = state["running"]

    def _tell(self, index: int, loss: float | None) -> None:
        self._rounds.ask()  # as was done before the trial began, maybe in another process
        self._rounds.tell(index, loss)
        self._told.append((index, loss))
