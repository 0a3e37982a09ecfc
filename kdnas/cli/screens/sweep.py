"""How a sweep looks: how far it is, and its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdnas.cli.screens.console import Bar, say
from kdnas.cli.screens.times import span
from kdnas.cli.screens.working import WorkScreen

if TYPE_CHECKING:
    from api.inputs.preparation import Watchers
    from api.sweeps.run import SweepNews
    from kdnas.db.lists.job_pages import Row


class SweepScreen(WorkScreen):
    """Turns what a sweep tells into lines and a bar on stderr."""

    @property
    def watchers(self) -> Watchers:
        """What to give to ``run_stored_sweep``."""
        from api.inputs.preparation import Watchers

        return Watchers(self._on_latency, self._on_news, waiting=self._on_waiting)

    def _on_news(self, news: SweepNews) -> None:
        if self._bar is None:
            self._bar = Bar("sweep", news.total, "states")
        self._bar.at(news.done, news.total, news.text)
        if news.failure is not None:
            say(f"  {news.failure}")


def sweep_lines(sweep: Row) -> Iterator[str]:
    """What `kdnas sweep` prints at the end."""
    steps, seeds = (", ".join(map(str, sweep[key])) for key in ("steps", "seeds"))
    done, total = sweep["done"] or 0, sweep["total"] or 0
    yield f"sweep {sweep['name']}: {sweep['status']}, {done} of {total} states"
    if sweep["num_failed"]:
        again = f"kdnas sweep --resume {sweep['name']}"
        yield f"{sweep['num_failed']} of them failed; try them again with: {again}"
    yield f"read after step {steps} under seed {seeds}, in {span(sweep['worked_seconds'])} of work"
    yield f"its table: kdnas tabular make {sweep['name']} --output table.parquet"
