"""What is found out about a task, its teacher and its students before the first run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kdnas.evaluation.data.splitting import tuned_on
from kdnas.evaluation.finetuning.identity import data_fingerprint
from kdnas.evaluation.finetuning.text import mean_number
from kdnas.evaluation.results import Metrics, main_score
from kdnas.models.teacher import TeacherHandle
from kdnas.records import TaskFacts
from kdnas.specs.task_distillation import TRIED
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.teacher_outputs import KeptTeacher
from workers.task.parts import Judge, Part
from workers.task.request import CheckedTask

FAR = 3.0
"""Times that deviations of a teacher's numbers differ from those of a task it has learned."""

MOST_ANSWERS = 10
"""Classes that are tried as the one answer to everything."""


@dataclass(frozen=True)
class Heard:
    """A part of the data, and what the teacher says of it.

    Attributes:
        part: the examples.
        said: of all of them, pseudo-classifiers included.
    """

    part: Part
    said: KeptTeacher

    def layer(self, layer: int) -> Tensor:
        """What the pseudo-classifier of a layer says, counted from 0: (E, K)."""
        assert self.said.layers is not None
        return self.said.layers[:, layer]


def task_facts(
    checked: CheckedTask,
    model: TeacherHandle,
    parameters: int,
    judged: Judge,
    learned: Heard,
    held_out: Heard,
    reported: Mapping[str, Heard],
) -> TaskFacts:
    """Put together what reports, cards and pages say about the teacher, and about what is trained.

    Args:
        checked: the request.
        model: the teacher that has learned the task.
        parameters: it has.
        judged: gives scores.
        learned: examples that students learn from.
        held_out: examples that epochs are chosen by.
        reported: name → examples that scores are reported on.
    """
    data = checked.data
    metrics: Metrics = {
        name: judged.metrics(one.part.examples, one.said.logits) for name, one in reported.items()
    }
    layers = []
    for layer in range(model.shape.layers):
        by_set: Metrics = {
            name: judged.metrics(one.part.examples, one.layer(layer))
            for name, one in reported.items()
        }
        held = judged.main(held_out.part.examples, held_out.layer(layer))
        layers.append({"layer": layer + 1, "held_out": held, "main": main_score(data.task, by_set)})
    fingerprint, settings = data_fingerprint(data, tuned=True), checked.hyper.to_json()
    if checked.spec.grid is not None:
        settings = {name: settings[name] for name in settings if name not in TRIED}
    return TaskFacts(
        task=data.task.name,
        kind=data.task.kind,
        metric=data.task.main_metric,
        labels=data.labels or (),
        chosen_on=tuned_on(data),
        examples={
            "train": len(checked.tuning.train),
            "held-out": len(held_out.part.examples),
            **{name: len(one.part.examples) for name, one in reported.items()},
        },
        data=fingerprint,
        teacher={
            "ref": model.ref,
            "fingerprint": model.fingerprint,
            "layers": model.shape.layers,
            "hidden": model.shape.hidden,
            "parameters": parameters,
            "tuned": not checked.has_learned,
            "held_out": judged.main(held_out.part.examples, held_out.said.logits),
            "main": main_score(data.task, metrics),
            "metrics": metrics,
        },
        layers=tuple(layers),
        student=_student(checked),
        settings={**settings, "device": checked.device, "dtype": checked.dtype},
        warnings=(
            *checked.warnings,
            *of_another_scale(checked, learned),
            *of_mute_layers(checked, judged, held_out),
        ),
        grids=checked.grids(model.fingerprint, fingerprint),
    )


def of_another_scale(checked: CheckedTask, learned: Heard) -> list[str]:
    """Warn of a teacher whose numbers are not those of the task.

    Its correlation may be high all the same, while students learn its numbers from it. One that was
    given may have learned others; one that is fine-tuned here begins at their mean with small
    weights, and may not come to numbers that are far apart.
    """
    if checked.data.labels is not None:
        return []
    # In float64, or the squares of small differences are nothing; numbers that are all the same in
    # float32, as they are learned, are refused.
    right, said = learned.part.tokens.labels.double(), learned.said.logits[:, 0].double()
    spread = float(right.std(correction=0))
    apart = abs(float(said.mean() - right.mean()))
    ratio = float(said.std(correction=0)) / spread
    if apart <= spread and 1 / FAR <= ratio <= FAR:
        return []
    if checked.has_learned:
        advice = "have it fine-tuned by `teacher.fine_tune: always`"
    else:
        divide = "divide the numbers by their deviation, and " if spread > FAR else ""
        advice = f"{divide}give it more `teacher.epochs` or a higher `teacher.learning_rate`"
    return [
        f"teacher {checked.teacher.ref!r} says numbers of another scale than those of "
        f"{checked.data.task.name} (mean {said.mean():.2f} and {right.mean():.2f}, deviation "
        f"{said.std(correction=0):.2f} and {spread:.2f}), and students learn them from it; {advice}"
    ]


def of_mute_layers(checked: CheckedTask, judged: Judge, held_out: Heard) -> list[str]:
    """Warn of teacher layers that know nothing of the task, where methods learn from them."""
    learning = [n for n in checked.spec.methods if method_named(n).needs_teacher_layers]
    if not learning:
        return []
    examples = held_out.part.examples
    same = max(judged.main(examples, said) for said in _one_answer_each(checked, held_out))
    layers = range(checked.teacher_shape.layers)
    mute = [n + 1 for n in layers if judged.main(examples, held_out.layer(n)) <= same]
    if not mute:
        return []
    which = f"layer {mute[0]}" if len(mute) == 1 else f"layers {', '.join(map(str, mute))}"
    return [
        f"{which} of the teacher's {len(layers)} can do no more on held-out examples than one "
        f"answer for all, so that what {', '.join(learning)} take from there says nothing of the "
        "task; compare with vanilla-kd"
    ]


def _one_answer_each(checked: CheckedTask, held_out: Heard) -> list[Tensor]:
    """Logits (E, K) of those who say the same of everything: a class, or the mean number.

    Of many classes the most frequent are enough: saying a rarer one scores no better.
    """
    labels, right = checked.data.labels, held_out.part.tokens.labels
    if labels is None:
        return [torch.full((len(right), 1), mean_number(checked.tuning))]
    counts = right.bincount(minlength=len(labels))
    frequent = counts.argsort(descending=True, stable=True)[:MOST_ANSWERS]
    return [row.expand(len(right), -1) for row in torch.eye(len(labels))[frequent]]


def _student(checked: CheckedTask) -> dict[str, object]:
    student, helps = checked.student, checked.assistant
    counts = [(p.numel(), p.requires_grad) for p in student.build(0.0, 0).model.parameters()]
    return {
        "name": str(student.choice),
        "kind": student.kind,
        "start": student.start,
        "fingerprint": student.origin.fingerprint,
        "layers": student.shape.layers,
        "hidden": student.shape.width,
        "parameters": sum(count for count, _ in counts),
        "trainable": sum(count for count, trained in counts if trained),
        "assistant": helps and {"name": str(helps.choice), "fingerprint": helps.origin.fingerprint},
    }
