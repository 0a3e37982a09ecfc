"""Students of trained teachers: better the more they may keep, and better than a warm start."""

from __future__ import annotations

from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import build_corpus
from kdnas.distill.group import MiniKD
from kdnas.models.families import FAMILIES
from kdnas.models.teacher import prepare_teacher, quiet_transformers
from kdnas.specs.parts import CorpusSpec
from kdnas.store import Store
from kdnas.testing.tiny_lab import TinyLab
from kdnas.testing.tiny_teacher import make_tiny_teacher

STEPS, BATCH, RATE = 250, 32, 3e-3
NOUNS = ("river", "stone", "cloud", "tree", "bird", "wind", "road", "house", "garden", "door")
VERBS = ("sings", "falls", "runs", "keeps", "turns", "opens", "waits", "burns")
KINDS = ("red", "green", "cold", "warm", "old", "new", "slow", "quick")
WIDTHS, SIZES = (12, 24, 36), (12, 48, 96)


def sentences(count: int) -> list[str]:
    """Sentences in which a noun decides its verb and most of its adjective, and returns."""
    random, found = Random(0), dict[str, None]()
    while len(found) < count:
        clauses = []
        noun = random.randrange(len(NOUNS))
        for _ in range(random.randint(1, 3)):
            kind = KINDS[(noun + random.randint(0, 2)) % len(KINDS)]
            clauses.append(f"the {kind} {NOUNS[noun]} {VERBS[noun % len(VERBS)]}")
            noun = (noun + random.choice((0, 3))) % len(NOUNS)
        found[" and ".join(clauses)] = None
    return list(found)


def train(folder: Path, texts: list[str]) -> tuple[float, float]:
    """Train a teacher in its folder to fill in masked words; its first and its last loss."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(0)
        model = AutoModel.from_pretrained(folder)
        head = torch.nn.Linear(48, len(tokenizer))
        optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=RATE)
        model.train()
        losses = []
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (step + 1) / 20) * (1 - step / STEPS)
            rows = torch.randint(len(texts), (BATCH,), generator=generator).tolist()
            batch = tokenizer([texts[row] for row in rows], padding=True, return_tensors="pt")
            ids, mask = batch["input_ids"], batch["attention_mask"]
            words = (mask == 1) & (ids != tokenizer.cls_token_id) & (ids != tokenizer.sep_token_id)
            hidden = words & (torch.rand(ids.shape, generator=generator) < 0.25)
            seen = ids.masked_fill(hidden, tokenizer.mask_token_id)
            states = model(input_ids=seen, attention_mask=mask).last_hidden_state
            loss = F.cross_entropy(head(states[hidden]), ids[hidden])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval().save_pretrained(folder)
    return fmean(losses[:10]), fmean(losses[-10:])


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    """A trained teacher of three layers and its text, in a store."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    texts = sentences(400)
    words = (*NOUNS, *VERBS, *KINDS, "the", "and")
    made = make_tiny_teacher(folder / "teacher", request.param, layers=3, words=words)
    first, last = train(made, texts)
    assert last < first / 2, "the teacher has not learned its text"
    store = Store(str(folder / "store"), folder / "cache")
    teacher = prepare_teacher(str(made), store)
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    spec = CorpusSpec(source=(str(folder / "texts.txt"),), max_length=24, held_out_fraction=0.1)
    return TinyLab(store, teacher, build_corpus(spec, teacher.folder, store))


def read(
    lab: TinyLab, init: str, students: list[Architecture], **context: Any
) -> dict[Architecture, float]:
    """Held-out relative losses before the first step."""
    engine = MiniKD(lab.context(init=init, **context), lab.teacher, lab.corpus, lab.store, "cpu")
    return {architecture: losses.relative for architecture, losses in engine.read(students)}


@pytest.mark.slow
def test_a_start_tells_wide_from_narrow_and_beats_a_warm_one(lab: TinyLab) -> None:
    students = [
        Architecture(layers, 2, hidden, size, activation)
        for layers in (1, 2, 3)
        for hidden in WIDTHS
        for size in SIZES
        for activation in ("gelu", "relu")
    ]
    losses, warm = read(lab, "teacher", students), read(lab, "warm", students)
    better = [losses[student] < warm[student] for student in students]
    assert fmean(losses.values()) < 0.9 * fmean(warm.values())
    assert fmean(better) > 0.9, [str(s) for s in students if losses[s] >= warm[s]]
    by_width = [fmean(v for s, v in losses.items() if s.hidden == w) for w in WIDTHS]
    by_size = [fmean(v for s, v in losses.items() if s.intermediate == f) for f in SIZES]
    assert by_width == sorted(by_width, reverse=True)
    assert by_size == sorted(by_size, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilmv2", "direct-minilm"])
def test_queries_keys_and_values_begin_nearer_to_the_teachers_than_warm_ones(
    lab: TinyLab, name: str
) -> None:
    """Least so where positions are rotary: their planes leave no basis free."""
    sizes = ("1,4,24,96,gelu", "2,2,36,48,gelu", "3,2,36,96,relu", "2,2,24,48,gelu")
    students = [Architecture.parse(size) for size in sizes]
    objective = {"name": name, "relation_heads": 4}
    losses, warm = (read(lab, init, students, objective=objective) for init in ("teacher", "warm"))
    assert all(losses[student] < 0.9 * warm[student] for student in students)
    assert fmean(losses.values()) < 0.8 * fmean(warm.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilmv2", "direct-minilm"])
def test_the_layers_below_lead_to_what_is_compared(lab: TinyLab, name: str) -> None:
    """A student with room for all of the teacher below the layer that teaches has all of it.

    Where positions are rotary, queries and keys come out as large as each other, which relations
    see.
    """
    objective = {"name": name, "relation_heads": 4, "teacher_layer": 2}
    students = [Architecture.parse(size) for size in ("2,4,48,96,gelu", "4,4,48,96,gelu")]
    losses = read(lab, "teacher", students, objective=objective)
    rotary = FAMILIES[lab.teacher.shape.model_type].positions is None
    free = 0.05 if rotary and name == "minilmv2" else 0.0
    assert losses[students[0]] < free + 1e-4
    assert losses[students[1]] < free + 0.05
