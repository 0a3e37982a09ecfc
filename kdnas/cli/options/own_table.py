"""Options that say what a table of the user's own holds, of the commands that read one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from kdnas.cli.options.common import listed
from kdnas.cli.options.places import At

Kind = Annotated[str | None, At("own.kind")]
Text = Annotated[str | None, At("own.text")]
Pair = Annotated[str | None, At("own.pair")]
Label = Annotated[str | None, At("own.label")]
Metrics = Annotated[str | None, At("own.metrics", listed)]


@dataclass(frozen=True)
class TableOptions:
    """The words of a command for them, as in ``text: Annotated[own_table.Text, OWN.text]``.

    Attributes:
        panel: where help lists them; without one they are among the rest, and say whose they are.
        tagging: whether a row may be something else than a text with a class or a number.
    """

    panel: str | None = None
    tagging: bool = False

    @property
    def kind(self) -> Any:
        """What is to be found out."""
        kinds = "classification or regression; makes it one"
        if self.tagging:
            kinds = (
                "classification, multilabel (several classes or none), regression or tagging; "
                "without training, by embeddings, similarity or retrieval"
            )
        return self._option(f"{kinds}.  [default: classification]")

    @property
    def text(self) -> Any:
        """The only text of a row, or its first."""
        words = "; of tagging, of the list of words; of retrieval, of the query"
        words = words if self.tagging else ""
        return self._option(f"Column of the text{words}.  [default: text]", "COLUMN")

    @property
    def pair(self) -> Any:
        """The second text of a row."""
        passage = "; of retrieval, of the passage that answers" if self.tagging else ""
        return self._option(f"Column of a second text{passage}.", "COLUMN")

    @property
    def label(self) -> Any:
        """What is known of a row."""
        held = "class or the number"
        if self.tagging:
            held = (
                "class, the number, or the list of classes or tags; several with commas; of "
                "retrieval, of the grade"
            )
        return self._option(f"Column of the {held}.  [default: label]", "COLUMN")

    @property
    def metrics(self) -> Any:
        """How answers are scored."""
        several = "f1_samples, subset_accuracy; " if self.tagging else ""
        ranks = "; ndcg_at_10, recall_at_100, mrr_at_10, map_at_1000 …" if self.tagging else ""
        usual = "accuracy,f1; pearson,spearman"
        return self._option(
            "accuracy, f1, f1_macro, f1_micro, f1_weighted, precision, recall, matthews, "
            f"balanced_accuracy, auc, ece; {several}pearson, spearman, mse, rmse, mae, r2{ranks}: "
            + (
                "the first counts, by default the kind's usual ones."
                if self.tagging
                else f"the first counts.  [default: {usual}]"
            ),
            "LIST",
        )

    def _option(self, told: str, metavar: str | None = None) -> Any:
        if self.panel is None:
            told = f"own: {told[:1].lower()}{told[1:]}"
        return typer.Option(metavar=metavar, rich_help_panel=self.panel, help=told)


OF_A_SUITE: Final = TableOptions(tagging=True)
OF_A_TASK: Final = TableOptions(panel="A task of your own")
