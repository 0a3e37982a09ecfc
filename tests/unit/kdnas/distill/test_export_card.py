from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from kdnas.distill.full import Distilled, HeldOutPoint
from kdnas.distill.model_card import CardFacts, model_card
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.sentence import SentenceModules
from kdnas.models.student import build_student
from kdnas.records import CurvePoint, Losses
from kdnas.specs.distillation import DistillationSpec
from kdnas.testing.tiny_lab import TinyLab

STUDENT = "2,4,48,96,gelu"
FACTS = CardFacts("d-1", "c0ffee", 270, "float32", "cpu", "1.25 ms")
BEST = HeldOutPoint(12, Losses(0.5, 0.4, 0.3, 0.2))

OBJECTIVES: list[tuple[Any, tuple[str, ...]]] = [
    (
        "hs",
        ("the hidden states of its teacher", "layer mapping `kdnas`", "projected hidden states"),
    ),
    (
        {"name": "hs", "mapping": {1: [1, 3], 2: [4]}},
        ("student → teacher layers 1 → 1 and 3, 2 → 4",),
    ),
    (
        "minilmv2",
        (
            "the self-attention relations of the teacher layer that suits its depth in its last",
            "query-query, key-key, value-value",
            "whose relations equal the teacher's",
        ),
    ),
    (
        {
            "name": "minilmv2",
            "relations": {"qk": 0.5, "vv": 1.0},
            "teacher_layer": 3,
            "trials": [
                {"teacher_layer": 2, "relative": 0.5, "probe": 0.4},
                {"teacher_layer": 3, "relative": 0.4, "probe": 0.3},
            ],
        },
        ("query-key (weight 0.5), value-value", "teacher layer 3, the best of 2 tried"),
    ),
    (
        {"name": "direct-minilm", "orthogonal": True},
        ("the queries, keys and values of", "through orthogonal projections (DirectMiniLM)"),
    ),
    (
        {"name": "od", "temperature": 2.0},
        (
            "the output distributions of its teacher's masked-LM head at the masked tokens "
            "(temperature 2)",
            "0 is a student that answers like its teacher, 1 one that ignores its input (KL",
        ),
    ),
    (
        "distilbert",
        (
            "the direction of its teacher's last hidden states",
            "weighted 1 : 5 : 2",
            "0 cannot be had where masked-LM counts",
            "| start | copy: embeddings and layers of the teacher |",
        ),
    ),
    (
        {"name": "hs", "last_weight": 3},
        ("(layer mapping `kdnas`, that of the last layers with weight 3)",),
    ),
    (
        {"name": "hs+od", "last_weight": 2.5},
        ("(layer mapping `kdnas`, that of the last layers with weight 2.5; 70% of the steps)",),
    ),
    (
        {"name": "hs+od", "hs_share": 0.7, "positions": "all"},
        (
            "first the hidden states of its teacher through linear projections (layer mapping "
            "`kdnas`; 70% of the steps), then the output distributions of its masked-LM head at "
            "all tokens",
            "in the second stage, 0 is a student that answers like its teacher",
        ),
    ),
]


def distilled(lab: TinyLab, lm_head: bool = False) -> Distilled:
    spec = lab.distillation(STUDENT)
    student = build_student(lab.teacher.config, spec.arch)
    head = MaskedLMHead(48, 48, 30) if lm_head else None
    curve = (CurvePoint(12, 0.5, 0.0),)
    return Distilled(student, head, BEST, (BEST,), curve, 12, 12)


def card_of(lab: TinyLab, spec: DistillationSpec, lm_head: bool = False) -> str:
    return model_card(distilled(lab, lm_head), spec, lab.teacher, FACTS)


@pytest.mark.parametrize(("objective", "phrases"), OBJECTIVES)
def test_the_card_says_what_was_learned(
    lab: TinyLab, objective: Any, phrases: tuple[str, ...]
) -> None:
    spec = lab.distillation(STUDENT, objective)
    card = card_of(lab, spec)
    flat = " ".join(card.split())
    for phrase in phrases:
        assert phrase in flat, phrase
    hidden_states = spec.objective.name in {"hs", "hs+od", "distilbert"}
    assert ("hidden states" in flat) == hidden_states
    assert f"| objective | {spec.objective.name}: " in card
    assert "None" not in card
    assert spec.objective.words().learned in flat


@pytest.mark.parametrize("objective", ["hs", "minilmv2", "direct-minilm", "od", "distilbert"])
def test_the_card_is_markdown_with_metadata(lab: TinyLab, objective: str) -> None:
    card = card_of(lab, lab.distillation(STUDENT, objective))
    _, metadata, body = card.split("---\n", 2)
    assert yaml.safe_load(metadata) == {
        "library_name": "transformers",
        "tags": ["knowledge-distillation", "kdnas"],
        "pipeline_tag": "feature-extraction",
    }
    table = [line for line in body.splitlines() if line.startswith("|")]
    assert table[:2] == ["| | |", "|---|---|"]
    assert all(line.count(" | ") == 1 and line.endswith(" |") for line in table[2:])
    assert body.count("```") == 4
    titles = [line for line in body.splitlines() if line.startswith("#")]
    assert titles == [f"# {STUDENT} student of tiny", "## Use", "## Make it again"]


def test_the_card_has_the_facts(lab: TinyLab) -> None:
    card = card_of(lab, lab.distillation(STUDENT))
    millions = sum(p.numel() for p in distilled(lab).student.parameters()) / 1e6
    for fact in (
        f"`{STUDENT}`",
        f"{millions:.1f} M, embeddings included |",
        lab.teacher.fingerprint,
        "bert, 4 layers of 48",
        "270 training sequences of at most 24 tokens, fingerprint `c0ffee`",
        "| objective | hs: mapping `kdnas`, last weight `1.0` |",
        "| start | cut from the teacher: its embeddings, attention and neurons |",
        "12 steps of 8 sequences, peak learning rate 0.002, seed 0, float32 on cpu",
        "relative 0.3000, output 0.2000, mean 0.4000 (step 12, the best one read)",
        "1.25 ms",
        "`d-1`",
        "(loss_curve.png)",
        "kdnas full-distill --config distillation.json",
    ):
        assert fact in card, fact


def test_the_card_tells_of_workers_and_of_an_earlier_student(lab: TinyLab) -> None:
    spec = DistillationSpec.model_validate(
        lab.distillation(STUDENT, num_workers=4).to_json()
        | {"student": {"init_from": {"ref": "owner/hs-student", "fingerprint": "beef"}}}
    )
    card = card_of(lab, spec)
    assert "12 steps of 8 sequences, each shared by 4 data-parallel workers, peak" in card
    assert "| start | the weights of owner/hs-student |" in card
    assert "data-parallel" not in card_of(lab, lab.distillation(STUDENT))


def test_the_card_of_a_student_with_a_masked_lm_head_shows_its_use(lab: TinyLab) -> None:
    card = card_of(lab, lab.distillation(STUDENT, "od"), lm_head=True)
    assert "pipeline_tag: fill-mask" in card
    assert "AutoModelForMaskedLM.from_pretrained" in card
    assert "the masked-LM head has 0.0 M more" in card
    assert "AutoModelForMaskedLM" not in card_of(lab, lab.distillation(STUDENT, "od"))


def test_the_card_of_an_undistilled_student_claims_nothing(lab: TinyLab) -> None:
    start = replace(
        distilled(lab), best=replace(BEST, step=0), held_out=(), curve=(), steps=0, total_steps=0
    )
    spec = lab.distillation(STUDENT, "hs", steps=0)
    card = model_card(start, spec, lab.teacher, FACTS)
    assert f"# {STUDENT} student of tiny, undistilled" in card
    assert "no step was trained" in card
    assert "| training | none, seed 0 of the start |" in card
    assert "relative 0.3000, output 0.2000, mean 0.4000 (as it starts)" in card
    for untrue in ("was distilled by", "loss_curve.png", "best one read", "learning rate"):
        assert untrue not in card


def test_the_card_says_if_the_student_has_not_learned(lab: TinyLab) -> None:
    spec = lab.distillation(STUDENT)
    said = "has not learned: its held-out output loss is 1.03"
    card = model_card(distilled(lab), spec, lab.teacher, replace(FACTS, not_learned=said))
    assert f"\n\n**It {said}.**\n\n| | |" in card
    assert "not learned" not in card_of(lab, spec)


TRAINED = (
    "| weights | trained: embeddings, all layers below the last, and the last layer's queries, "
    "keys and values; not trained: what follows them in that layer, "
)


@pytest.mark.parametrize("objective", ["minilmv2", "direct-minilm"])
@pytest.mark.parametrize(
    ("student", "held"),
    [
        ("teacher", "still as it was cut from the teacher |"),
        ("warm", "whose output matrices are still zero, so that the last layer computes nothing |"),
        ("random", "still random |"),
        ("copy", "still as it was copied from the teacher |"),
        ({"init_from": {"ref": "owner/earlier"}}, "still that of owner/earlier |"),
    ],
)
def test_the_card_says_what_no_gradient_reached(
    lab: TinyLab, objective: str, student: Any, held: str
) -> None:
    request = lab.distillation(STUDENT, objective).to_json() | {"student": student}
    assert TRAINED + held in card_of(lab, DistillationSpec.model_validate(request))


def test_a_single_layer_has_none_below_it(lab: TinyLab) -> None:
    card = card_of(lab, lab.distillation("1,2,24,48,gelu", "minilmv2"))
    assert "| weights | trained: embeddings and the last layer's queries, keys and values; " in card


def test_projections_that_no_relation_reads_are_not_trained(lab: TinyLab) -> None:
    card = card_of(lab, lab.distillation(STUDENT, {"name": "minilmv2", "relations": {"qq": 1}}))
    assert (
        "the last layer's queries; not trained: its keys, its values and what follows them in "
        "that layer, still as it was cut from the teacher |"
    ) in card


@pytest.mark.parametrize("objective", ["hs", "minilmv2"])
def test_a_student_that_ends_as_it_began_is_said_to_be_its_start(
    lab: TinyLab, objective: str
) -> None:
    ended = replace(distilled(lab), best=replace(BEST, step=0))
    card = model_card(ended, lab.distillation(STUDENT, objective), lab.teacher, FACTS)
    assert "so no step of it is\nin these weights" in card
    assert "It was distilled by" not in card
    assert "trained:" not in card


def test_the_card_is_silent_where_all_weights_were_trained_or_none(lab: TinyLab) -> None:
    for objective in ("hs", "od", "distilbert", "hs+od"):
        assert "not trained" not in card_of(lab, lab.distillation(STUDENT, objective))
    start = replace(distilled(lab), best=replace(BEST, step=0), steps=0, total_steps=0)
    spec = lab.distillation(STUDENT, "minilmv2", steps=0)
    assert "not trained" not in model_card(start, spec, lab.teacher, FACTS)


def test_a_student_of_a_sentence_model_says_with_what_it_loads(lab: TinyLab) -> None:
    facts = replace(FACTS, sentences=SentenceModules(("mean",), None, normalised=True))
    card = model_card(distilled(lab), lab.distillation(STUDENT), lab.teacher, facts)
    metadata = yaml.safe_load(card.split("---\n", 2)[1])
    assert metadata["library_name"] == "sentence-transformers"
    assert metadata["tags"] == [
        *("knowledge-distillation", "kdnas", "sentence-transformers", "sentence-similarity")
    ]
    assert metadata["pipeline_tag"] == "sentence-similarity"


@pytest.mark.parametrize(
    ("teacher", "expected"),
    [
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
        ("./my-bert", None),
        ("/models/bert", None),
        ("tiny", None),
    ],
)
def test_the_card_names_the_teacher_as_the_hub_does(
    lab: TinyLab, teacher: str, expected: str | None
) -> None:
    spec = lab.distillation(STUDENT)
    spec = spec.model_copy(update={"teacher": spec.teacher.model_copy(update={"ref": teacher})})
    metadata = yaml.safe_load(card_of(lab, spec).split("---\n", 2)[1])
    assert metadata.get("base_model") == expected
