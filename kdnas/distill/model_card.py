"""The model card of a student: what it is, what it learned, how good it is, how to use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kdnas import __version__
from kdnas.distill.full import Distilled
from kdnas.models.sentence import DENSE_WEIGHTS, LINEAR_WEIGHT, SentenceModules
from kdnas.models.teacher import TeacherHandle
from kdnas.models.teacher_files import hub_id
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.objective_base import UNTOLD, LastLayerPart, ObjectiveSpec, ObjectiveWords
from kdnas.specs.parts import Start


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the model card says beside the distillation itself.

    Attributes:
        run_id: id of the distillation in the database.
        corpus_fingerprint: of the tokenised corpus.
        corpus_sequences: training sequences.
        dtype: format of the forward passes.
        device: where it ran.
        latency: a sentence with the measured latency, or None if it was not measured.
        sentences: how the folder says sentences are embedded; None if it does not.
        not_learned: why the student is no success, beginning with "has not learned"; None if it is
            one.
    """

    run_id: str
    corpus_fingerprint: str
    corpus_sequences: int
    dtype: str
    device: str
    latency: str | None
    sentences: SentenceModules | None = None
    not_learned: str | None = None


def model_card(
    distilled: Distilled, spec: DistillationSpec, teacher: TeacherHandle, facts: CardFacts
) -> str:
    """Write the model card in Markdown with the hub's metadata block."""
    shape, best = teacher.shape, distilled.best
    words = spec.objective.words()
    fills_masks = distilled.lm_head is not None
    uses = _USE_MASKED_LM.rstrip() if fills_masks else ""
    uses += _sentence_use(facts.sentences)
    rows = {
        "architecture": f"`{spec.arch}` (layers, heads, hidden, intermediate, activation)",
        "parameters": _parameters(distilled),
        "teacher": f"{spec.teacher.ref}: {shape.model_type}, {shape.layers} layers of "
        f"{shape.hidden}, fingerprint `{shape.fingerprint}`",
        "corpus": f"{', '.join(spec.corpus.source)}: {facts.corpus_sequences} training sequences "
        f"of at most {spec.corpus.max_length} tokens, fingerprint `{facts.corpus_fingerprint}`",
        "objective": _objective_row(spec.objective),
        "start": _start(spec),
        "training": _training(distilled, spec, facts),
        **_trained_row(distilled, spec),
        "held-out loss": f"relative {best.losses.relative:.4f}, output {best.losses.output:.4f}, "
        f"mean {best.losses.mean:.4f} ({_read_at(distilled)})",
        "latency": facts.latency or "not measured",
        "made with": f"kdnas {__version__}, distillation `{facts.run_id}`",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"""---
{_metadata(spec.teacher.ref, facts.sentences is not None, fills_masks)}
---

# {spec.arch} student of {spec.teacher.ref}{", undistilled" if distilled.undistilled else ""}

{_about(distilled, words, facts)}

| | |
|---|---|
{table}

Relative loss: {words.relative}.

{_UNDISTILLED_FIGURES if distilled.undistilled else _FIGURES}

## Use

```python
{_USE.strip()}{uses}
```
{_projection_words(distilled, teacher, facts.sentences)}
## Make it again

```
kdnas full-distill --config distillation.json
```
"""


def _metadata(teacher: str, embeds_sentences: bool, fills_masks: bool) -> str:
    """What the hub reads of a card: with which library the student loads, and what it is for."""
    library = "sentence-transformers" if embeds_sentences else "transformers"
    tags = ["knowledge-distillation", "kdnas"]
    tags += ["sentence-transformers", "sentence-similarity"] if embeds_sentences else []
    purpose = "sentence-similarity" if embeds_sentences else "feature-extraction"
    base = hub_id(teacher)
    return "\n".join(
        [
            f"library_name: {library}",
            *([] if base is None else [f"base_model: {base}"]),
            "tags:",
            *(f"- {tag}" for tag in tags),
            f"pipeline_tag: {'fill-mask' if fills_masks else purpose}",
        ]
    )


_ABOUT = """
A general-purpose encoder, distilled task-agnostically from its teacher. Fine-tune it like any
other encoder of its family.

It was distilled by learning {learned}.
"""

_ABOUT_START = """
An encoder as a student starts: nothing read during its distillation was better, so no step of it is
in these weights.

Its losses are of what it was to learn: {learned}.
"""

_ABOUT_UNDISTILLED = """
An encoder as a student starts, undistilled: no step was trained. It is there to be compared with
the student that was distilled from this start.

Its losses are of what it would learn: {learned}.
"""

_FIGURES = """
![Loss curve](loss_curve.png)

`metrics.jsonl` has every figure of the training, and `tensorboard/` has them for TensorBoard.
""".strip()

_UNDISTILLED_FIGURES = """
`metrics.jsonl` has its losses, and `tensorboard/` has them for TensorBoard.
""".strip()


_USE = """
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModel.from_pretrained("path/to/this/folder")
"""

_USE_MASKED_LM = """

# with the masked-LM head that belongs to it
from transformers import AutoModelForMaskedLM

masked_lm = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
"""


_USE_SENTENCES = """

# as sentence embeddings, pooled as the teacher does
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("path/to/this/folder").encode(["a sentence", "another one"])
"""

_USE_PROJECTION = """

# the same without sentence-transformers
from safetensors.torch import load_file

encoded = tokenizer(["a sentence", "another one"], padding=True, return_tensors="pt")
projection = load_file("path/to/this/folder/{folder}/{weights}")["{weight}"]
states, mask = model(**encoded).last_hidden_state, encoded["attention_mask"].unsqueeze(-1)
vectors = {pooled} @ projection.T{normalised}
"""

_POOLED = {
    "mean": "((states * mask).sum(1) / mask.sum(1))",
    "mean_sqrt_len_tokens": "((states * mask).sum(1) / mask.sum(1).sqrt())",
    "cls": "states[:, 0]",
}
"""Where padding comes last, as it does in the tokenizers of all families."""

_PROJECTION = """
Sentence embeddings have the teacher's {teacher} dimensions, not the student's {student}: behind the
pooling `{folder}` is a linear map W from the student's last layer to the teacher's, fitted by least
squares on text of the corpus, so that vectors lie in the teacher's space. `AutoModel` gives the
states before it, as wide as the student.
"""


def _sentence_use(sentences: SentenceModules | None) -> str:
    if sentences is None:
        return ""
    use = _USE_SENTENCES.rstrip()
    mode = sentences.pooling[0]
    if sentences.projection is None or mode not in _POOLED:
        return use
    by_hand = _USE_PROJECTION.format(
        folder=sentences.projection,
        weights=DENSE_WEIGHTS,
        weight=LINEAR_WEIGHT,
        pooled=_POOLED[mode],
        normalised="\nvectors /= vectors.norm(dim=1, keepdim=True)" if sentences.normalised else "",
    )
    return use + by_hand.rstrip()


def _projection_words(
    distilled: Distilled, teacher: TeacherHandle, sentences: SentenceModules | None
) -> str:
    if sentences is None or sentences.projection is None:
        return ""
    assert distilled.projection is not None
    student, hidden = distilled.projection.shape
    return _PROJECTION.format(folder=sentences.projection, teacher=hidden, student=student)


def _about(distilled: Distilled, words: ObjectiveWords, facts: CardFacts) -> str:
    text = _ABOUT_UNDISTILLED if distilled.undistilled else _ABOUT
    if _is_its_start(distilled):
        text = _ABOUT_START
    about = text.strip().format(learned=words.learned)
    return f"{about}\n\n**It {facts.not_learned}.**" if facts.not_learned else about


def _is_its_start(distilled: Distilled) -> bool:
    """Whether a distillation ended with the student that it began with."""
    return distilled.best.step == 0 and not distilled.undistilled


def _read_at(distilled: Distilled) -> str:
    if distilled.undistilled:
        return "as it starts"
    if _is_its_start(distilled):
        return "as it starts: nothing read during its distillation was better"
    return f"step {distilled.best.step}, the best one read"


def _parameters(distilled: Distilled) -> str:
    millions = sum(p.numel() for p in distilled.student.parameters()) / 1e6
    head = ""
    if distilled.lm_head is not None:
        own = sum(p.numel() for p in distilled.lm_head.parameters()) / 1e6
        head = f"; the masked-LM head has {own:.1f} M more"
    return f"{millions:.1f} M, embeddings included{head}"


def _objective_row(objective: ObjectiveSpec) -> str:
    shown = objective.model_dump(exclude=set(UNTOLD))
    options = {key: value for key, value in shown.items() if value is not None}
    said = ", ".join(f"{key.replace('_', ' ')} `{_plain(v)}`" for key, v in options.items())
    return f"{objective.name}: {said}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(part)}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _start(spec: DistillationSpec) -> str:
    if spec.student.init_from is not None:
        return f"the weights of {spec.student.init_from.ref}"
    return {
        "teacher": "cut from the teacher: its embeddings, attention and neurons",
        "warm": "warm: embeddings from the teacher's",
        "random": "random weights",
        "copy": "copy: embeddings and layers of the teacher",
    }[_init(spec)]


def _init(spec: DistillationSpec) -> Start:
    return "copy" if spec.objective.copies_layers else spec.student.init


def _trained_row(distilled: Distilled, spec: DistillationSpec) -> dict[str, str]:
    """Say which weights have seen a gradient, where an objective leaves some out."""
    parts = spec.objective.last_layer_parts
    if distilled.best.step == 0 or parts is None:
        return {}
    learned = [words for part, words in _QKV.items() if part in parts]
    left_out = [words for part, words in _QKV.items() if part not in parts]
    rest = _listed([f"its {words}" for words in left_out] + ["what follows them in that layer"])
    if spec.student.init_from is not None:
        held = f"still that of {spec.student.init_from.ref}"
    else:
        held = _UNTRAINED[_init(spec)]
    below = "embeddings, all layers below the last," if spec.arch.layers > 1 else "embeddings"
    return {
        "weights": f"trained: {below} and the last layer's "
        f"{_listed(learned)}; not trained: {rest}, {held}"
    }


_QKV: dict[LastLayerPart, str] = {"q": "queries", "k": "keys", "v": "values"}

_UNTRAINED: dict[Start, str] = {
    "teacher": "still as it was cut from the teacher",
    "warm": "whose output matrices are still zero, so that the last layer computes nothing",
    "random": "still random",
    "copy": "still as it was copied from the teacher",
}


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _training(distilled: Distilled, spec: DistillationSpec, facts: CardFacts) -> str:
    training = spec.training
    if distilled.undistilled:
        return f"none, seed {training.seed} of the start"
    shared = ""
    if training.num_workers > 1:
        shared = f", each shared by {training.num_workers} data-parallel workers"
    return (
        f"{distilled.steps} steps of {training.batch_size} sequences{shared}, peak learning rate "
        f"{training.learning_rate:g}, seed {training.seed}, {facts.dtype} on {facts.device}"
    )
