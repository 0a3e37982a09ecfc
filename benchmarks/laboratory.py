"""A teacher, a corpus, and students that are trained on them without a search around."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study_files import JsonLines

from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.fit_lm_head import fit_lm_head
from kdnas.distill.group import MiniKD
from kdnas.distill.numerics import choose_dtype
from kdnas.models.teacher import TeacherHandle, prepare_teacher, with_fitted_head
from kdnas.objectives.registry import build_stages
from kdnas.records import MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.settings import Settings
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import CorpusSpec, StudentSpec
from kdnas.specs.search import ProxySpec
from kdnas.store import Store

HIDDEN_STATES = {"name": "hs"}
HEAD_STEPS = 1000
"""Of the masked-LM head that is fitted to a sentence encoder, where an objective asks for one."""


class Laboratory:
    """Teacher and corpus, and what is trained on them."""

    def __init__(self, source: str) -> None:
        settings = Settings.from_environment()
        self._store = Store.from_settings(settings)
        self._teacher: TeacherHandle = prepare_teacher("minilm", self._store)
        spec = CorpusSpec(source=(source,), max_length=64)
        self.corpus: TokenizedCorpus = build_corpus(spec, self._teacher.folder, self._store)
        self.name = Path(source).name
        self._dtype = choose_dtype("auto", "cpu")

    def train(
        self,
        proxy: ProxySpec,
        architectures: Sequence[str],
        *,
        objective: dict[str, Any] = HIDDEN_STATES,
        start: str = "teacher",
    ) -> Iterator[dict[str, Any]]:
        """Train students side by side; yield a row for each as it is ready."""
        teacher, asked = self._teacher, objective
        if any(s.objective.needs_lm_head for s in build_stages(objective_spec(objective))):
            head = fit_lm_head(
                teacher, self.corpus, HEAD_STEPS, self._store, "cpu", self._dtype
            ).fingerprint
            teacher = with_fitted_head(teacher, head, self._store)
            objective = {**objective, "lm_head": head}
        context = MiniKDContext(
            teacher=teacher.fingerprint,
            corpus=self.corpus.fingerprint,
            objective=objective_spec(objective).to_json(),
            student=StudentSpec.model_validate(start).to_json(),
            proxy=proxy.to_json(),
            dtype=self._dtype,
            engine_version=ENGINE_VERSION,
        )
        engine = MiniKD(context, teacher, self.corpus, self._store, "cpu")
        requests = [MiniKDRequest(a, Architecture.parse(a)) for a in architectures]
        for item in engine.train(requests):
            if isinstance(item, MiniKDResult):
                yield {
                    "architecture": item.candidate_id,
                    "objective": asked,
                    "loss_start": item.loss_start,
                    "relative": item.losses.relative if item.losses else None,
                    "output": item.losses.output if item.losses else None,
                    "error": item.error,
                    "seconds": round(item.train_seconds, 1),
                    "dtype": self._dtype,
                    "corpus_fingerprint": self.corpus.fingerprint,
                    "engine_version": ENGINE_VERSION,
                }


@dataclass(frozen=True, order=True)
class Setting:
    """What a group of students is trained with."""

    corpus: str
    start: str
    rate: float
    warmup: float
    steps: int
    seed: int


def run(
    laboratory: Laboratory,
    results: JsonLines,
    plan: Iterable[tuple[Setting, Any]],
    objective: dict[str, Any] = HIDDEN_STATES,
) -> None:
    """Train groups of students, each in its setting; what there is already is not trained again.

    Args:
        laboratory: where.
        results: what there is, and where new results go.
        plan: settings, and the architectures of each.
        objective: what all of them learn.

    Raises:
        SystemExit: there are results that new ones cannot be mixed with.
    """
    results.refuse_others(laboratory.name, laboratory.corpus.fingerprint)
    results.refuse_other_objectives(objective)
    for setting, architectures in plan:
        known = {row["architecture"] for row in results.having(**asdict(setting))}
        missing = [name for name in architectures if name not in known]
        if not missing:
            continue
        began = time.monotonic()
        proxy = ProxySpec(
            steps=setting.steps,
            batch_size=16,
            learning_rate=setting.rate,
            warmup_fraction=setting.warmup,
            seed=setting.seed,
            fraction=1.0,
        )
        for row in laboratory.train(proxy, missing, objective=objective, start=setting.start):
            results.add({**asdict(setting), **row})
        print(setting, f"{time.monotonic() - began:.0f} s", flush=True)
