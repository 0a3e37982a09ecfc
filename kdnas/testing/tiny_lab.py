"""Everything that trainings need, in miniature: a store with a teacher and a corpus in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from kdnas import ENGINE_VERSION
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.fit_lm_head import fit_lm_head
from kdnas.models.teacher import TeacherHandle, open_teacher, prepare_teacher
from kdnas.records import MiniKDContext
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import CorpusSpec, StudentSpec
from kdnas.specs.search import ProxySpec
from kdnas.store import Store
from kdnas.testing.tiny_teacher import make_tiny_teacher

MAX_LENGTH = 24
PROXY = {"steps": 10, "batch_size": 8, "held_out": 24, "learning_rate": 2e-3, "fraction": 0.5}
TRAINING = {"steps": 12, "batch_size": 8, "held_out": 24, "learning_rate": 2e-3, "threads": 1}


@dataclass(frozen=True)
class TinyLab:
    """A store, and what lies in it.

    Attributes:
        store: local store of the lab.
        teacher: by default a BERT of 4 layers, 48 wide.
        corpus: 300 made-up sentences of uneven length.
    """

    store: Store
    teacher: TeacherHandle
    corpus: TokenizedCorpus

    def with_sentences(self, folder: Path, pooling: str = "mean") -> TinyLab:
        """Return the lab with a teacher that embeds sentences, as files in a new folder say."""
        kinds = ("Transformer", "Pooling", "Normalize")
        modules = [
            {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else ""}
            | {"type": f"sentence_transformers.models.{kind}"}
            for i, kind in enumerate(kinds)
        ]
        (folder / "1_Pooling").mkdir(parents=True)
        (folder / "modules.json").write_text(json.dumps(modules))
        settings = {"embedding_dimension": self.teacher.shape.hidden, "pooling_mode": pooling}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
        return replace(self, teacher=replace(self.teacher, sentences=folder))

    def with_lm_head(self, steps: int = 3) -> TinyLab:
        """Return the lab with a teacher that has a masked-LM head, fitted in a few steps."""
        fitted = fit_lm_head(self.teacher, self.corpus, steps, self.store, "cpu", "float32")
        teacher = open_teacher(self.teacher.fingerprint, self.store, fitted.fingerprint)
        return replace(self, teacher=teacher)

    def context(
        self, dtype: str = "float32", init: str = "teacher", objective: Any = "hs", **proxy: Any
    ) -> MiniKDContext:
        """Return a mini-KD context of a few steps; ``proxy`` overrides entries of its spec."""
        return MiniKDContext(
            teacher=self.teacher.fingerprint,
            corpus=self.corpus.fingerprint,
            objective=objective_spec(objective).to_json(),
            student=StudentSpec.model_validate(init).to_json(),
            proxy=ProxySpec.model_validate(PROXY | proxy).to_json(),
            dtype=dtype,
            engine_version=ENGINE_VERSION,
        )

    def distillation(
        self, architecture: str, objective: Any = "hs", **training: Any
    ) -> DistillationSpec:
        """Return a full distillation of a few steps, pinned to the lab's teacher and corpus."""
        return DistillationSpec.model_validate(
            {
                "architecture": architecture,
                "teacher": {"ref": "tiny", "fingerprint": self.teacher.fingerprint},
                "corpus": {
                    "source": "tiny",
                    "max_length": MAX_LENGTH,
                    "fingerprint": self.corpus.fingerprint,
                },
                "objective": objective,
                "training": TRAINING | training,
            }
        )


def make_tiny_lab(folder: Path, model_type: str = "bert", layers: int = 4) -> TinyLab:
    """Make a teacher and a corpus and put both into a store under ``folder``."""
    words = [f"{a}{b}" for a in ("ba", "ko", "mi", "ru", "te") for b in ("lan", "sor", "vek")]
    store = Store(str(folder / "store"), folder / "cache")
    teacher = prepare_teacher(
        str(make_tiny_teacher(folder / "teacher", model_type, layers=layers, words=words)), store
    )
    random = Random(0)
    sentences = [" ".join(random.choices(words, k=random.randint(3, 30))) for _ in range(300)]
    (folder / "texts.txt").write_text("\n".join(sentences) + "\n", "utf-8")
    spec = CorpusSpec(
        source=(str(folder / "texts.txt"),), max_length=MAX_LENGTH, held_out_fraction=0.1
    )
    return TinyLab(store, teacher, build_corpus(spec, teacher.folder, store))
