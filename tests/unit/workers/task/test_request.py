"""Requests for distillations for a task: what fits, and what is refused before any training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import pstdev
from typing import Any

import pytest

from kdnas.errors import KdnasError, RequestError, SpecError, TaskDataError, TeacherError
from kdnas.specs.task_distillation import METHODS
from kdnas.taskspecific.output_space import Classes, Numbers
from kdnas.taskspecific.published import published_choice
from kdnas.testing.task_files import told
from kdnas.testing.tiny_task_lab import LABELS, TinyTaskLab, write_own
from kdnas.testing.tiny_tasks import WORDS
from kdnas.testing.tiny_teacher import make_tiny_teacher
from workers.task import ready as ready_module
from workers.task import students as students_module
from workers.task.ready import prepare_for_task
from workers.task.request import check_task


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyTaskLab:
    return TinyTaskLab.make(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would train, or run the teacher over the examples, fails the test."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was trained")

    for name in ("tuned_teacher", "run_over", "warm_up", "load_task_model"):
        monkeypatch.setattr(ready_module, name, refuse)
    monkeypatch.setattr(students_module, "started_student", refuse)


def refused(lab: TinyTaskLab, spec: Any, kind: type[KdnasError], said: str) -> None:
    """It is, in one sentence."""
    with pytest.raises(kind, match=said) as error:
        prepare_for_task(spec, lab.settings())
    assert isinstance(error.value, RequestError)
    text = str(error.value)
    assert "\n" not in text
    assert text[-1] not in ".!"
    assert not (lab.folder / "home" / "store" / "task-teacher").exists()


@pytest.mark.usefixtures("untrained")
class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"student": "first-layers:9"}, "asks for 9 layers of teacher .* which has 6; .* 6"),
            ({"student": "layers:1,7"}, "asks for layer 7 of teacher .* which has 6"),
            ({"student": "layers:3,1"}, "'layers:3,1' must name each layer once and in rising"),
            ({"student": "first-layers:1"}, "universal-kd-il teaches the inner layers .* 1 layer"),
            (
                {"methods": ["universal-kd-ca"]},
                "universal-kd-ca is for students whose .* it is universal-kd-il: take that",
            ),
            ({"student": "bilstm"}, "universal-kd-il is for .* Transformers; .* universal-kd-ca"),
            (
                {"student": "first-layers:5", "methods": ["takd"]},
                "takd needs an assistant between a student of 5 layers and a teacher of 6",
            ),
            (
                {"methods": ["takd"], "assistant": "first-layers:1"},
                r"assistant 'first-layers:1' \(layers × width: 1 × 24\) is not larger than the "
                r"student \(2 × 24\); name one between them",
            ),
            (
                {"methods": ["takd"], "assistant": "first-layers:6"},
                r"'first-layers:6' .* is not smaller than the teacher \(6 × 24\)",
            ),
            (
                {"student": "1,2,24,48,gelu"},
                "universal-kd-il teaches the inner layers .* 1 layer has none",
            ),
            (
                {"methods": ["takd"], "assistant": "1,2,24,48,gelu"},
                "is not larger than the student",
            ),
            ({"methods": ["dih"], "teacher_layers": [3, 7]}, "layer 7 is none of the teacher's 6"),
            (
                {"methods": ["pkd"], "teacher_layers": [1, 2, 3]},
                r"teacher_layers \[1, 2, 3\] are 3 for the 1 inner layers",
            ),
            ({"task": "squad"}, "SQuAD 1.1 is of kind span, and students learn classifications"),
            ({"task": "wnut-17"}, "of kind tagging"),
        ],
    )
    def test_what_student_or_methods_cannot_do(
        self, changes: dict[str, Any], said: str, lab: TinyTaskLab
    ) -> None:
        refused(lab, lab.classification(**changes), SpecError, said)

    def test_a_student_that_is_deeper_than_its_teacher_where_layers_are_matched(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        small = make_tiny_teacher(tmp_path / "small", layers=2, hidden=24, heads=2, words=WORDS)
        spec = lab.classification(
            teacher=small, student="bilstm", methods=["vanilla-kd", "pkd", "universal-kd-ca"]
        )
        refused(lab, spec, SpecError, "a student of 3 layers has more than its teacher's 2")

    def test_a_teacher_with_another_number_of_labels(self, lab: TinyTaskLab) -> None:
        teacher = lab.learned("three", ("entailment", "neutral", "contradiction"))
        said = r"has a head of 3 outputs, and SST-2 has 2 labels \(negative, positive\); give"
        refused(lab, lab.classification(teacher=teacher), TeacherError, said)

    def test_a_teacher_of_a_regression_for_a_classification_and_the_other_way(
        self, lab: TinyTaskLab
    ) -> None:
        one = lab.learned("one-number", None)
        refused(
            lab, lab.classification(teacher=one), TeacherError, "head of 1 outputs, .* 2 labels"
        )
        two = lab.learned("two")
        refused(
            lab, lab.regression(teacher=two), TeacherError, "head of 2 outputs, .* has one number"
        )

    def test_a_teacher_with_other_labels(self, lab: TinyTaskLab) -> None:
        teacher = lab.learned("other-labels", ("entailment", "not_entailment"))
        said = "a head for the labels entailment, not_entailment, and SST-2 has negative, positive"
        refused(lab, lab.classification(teacher=teacher), TeacherError, said)

    def test_a_teacher_that_was_fine_tuned_on_another_task(self, lab: TinyTaskLab) -> None:
        teacher = lab.learned("cola", LABELS, task="CoLA")
        said = "was fine-tuned on CoLA, not on SST-2; give one that has learned SST-2"
        refused(lab, lab.classification(teacher=teacher), TeacherError, said)

    def test_a_students_folder_with_another_tokenizer(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        other = make_tiny_teacher(tmp_path / "other", layers=2, words=reversed(WORDS))
        said = r"has another tokenizer than teacher .* is token \d+ of its own and token \d+ of"
        refused(lab, lab.classification(student=str(other)), TeacherError, said)

    def test_a_students_folder_with_other_numbers_of_its_words(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        """Of words that are in none of the first examples; so none is cut differently there."""
        other = make_tiny_teacher(tmp_path / "other", layers=2, hidden=24, heads=2, words=WORDS)
        file = other / "tokenizer.json"
        whole = json.loads(file.read_text("utf-8"))
        vocab = whole["model"]["vocab"]
        one, two = [word for word in vocab if word.startswith("##")][:2]
        vocab[one], vocab[two] = vocab[two], vocab[one]
        file.write_text(json.dumps(whole), "utf-8")
        said = (
            r"has another tokenizer .* \('##.' is token \d+ of its own and token \d+ of the teach"
        )
        refused(lab, lab.classification(student=str(other)), TeacherError, said)
        more = make_tiny_teacher(
            tmp_path / "more", layers=2, hidden=24, heads=2, words=[*WORDS, "zebra"]
        )
        said = r"\('zebra' is token \d+ of its own and none of the teacher's\)"
        refused(lab, lab.classification(student=str(more)), TeacherError, said)

    def test_a_students_folder_that_is_none(self, lab: TinyTaskLab, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        refused(lab, lab.classification(student=str(tmp_path / "empty")), TeacherError, "empty")

    def test_a_regression_with_texts_for_labels(self, lab: TinyTaskLab, tmp_path: Path) -> None:
        file = write_own(tmp_path / "mine.jsonl", ["high", "low"] * 20)
        said = r"mine.jsonl, line 1 has the score 'high'; write a number"
        refused(lab, lab.regression(data_dir=str(file)), TaskDataError, said)

    @pytest.mark.parametrize("kind", ["classification", "regression"])
    def test_one_answer_alone(self, kind: str, lab: TinyTaskLab, tmp_path: Path) -> None:
        label = "yes" if kind == "classification" else 1.5
        file = write_own(tmp_path / "mine.jsonl", [label] * 40)
        where = r"goods \(.*mine\.jsonl, line \d+, …\) have the number 1\.5; give different ones"
        said = rf"only class 'yes' \(.*mine\.jsonl, line \d+, …\); give|all 40 examples of {where}"
        spec = lab.regression(data_dir=str(file), own={"kind": kind})
        refused(lab, spec, TaskDataError, said)

    def test_one_class_alone_among_what_is_learned_from(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        """Of the other one there are examples to be scored, or held out, alone."""
        folder = tmp_path / "SST-2"
        folder.mkdir()
        for part, label in (("train", 1), ("dev", 0)):
            rows = "".join(f"{a} {b}\t{label}\n" for a in WORDS for b in WORDS[:4])
            (folder / f"{part}.tsv").write_text(f"sentence\tlabel\n{rows}", "utf-8")
        said = "of SST-2 to learn from have the one class 'positive'"
        refused(lab, lab.classification(data_dir=str(tmp_path)), TaskDataError, said)

    def test_one_number_alone_among_what_is_learned_from(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        write_own(tmp_path / "train.jsonl", [1.5] * 40)
        write_own(tmp_path / "dev.jsonl", [0.5, 2.5] * 5)
        said = "of goods to learn from have the one number 1.5, so that there is nothing to learn"
        refused(lab, lab.regression(data_dir=str(tmp_path)), TaskDataError, said)

    def test_numbers_that_are_one_as_they_are_learned(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        file = write_own(tmp_path / "mine.jsonl", [1.7e9, 1.7e9 + 10] * 20)
        said = r"goods, such as 1700000000\.0 and 1700000010\.0, are all the same in float32"
        refused(lab, lab.regression(data_dir=str(file)), TaskDataError, said)

    def test_a_class_that_epochs_alone_would_be_chosen_by(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        for part, labels in (("train", ["yes", "no"]), ("dev", ["yes", "maybe"]), ("test", ["no"])):
            write_own(tmp_path / f"{part}.jsonl", labels * 20)
        said = (
            r"20 of the examples of goods that epochs are chosen by \(.*dev.jsonl, line 2, …\) have"
            " the class 'maybe', which no example to learn from and none that is scored has"
        )
        spec = lab.regression(data_dir=str(tmp_path), own={"kind": "classification"})
        refused(lab, spec, TaskDataError, said)

    def test_a_teacher_whose_outputs_each_say_yes_or_no(
        self, lab: TinyTaskLab, tmp_path: Path
    ) -> None:
        teacher = shutil.copytree(lab.learned("each-for-itself"), tmp_path / "teacher")
        config = json.loads((teacher / "config.json").read_text("utf-8"))
        config["problem_type"] = "multi_label_classification"
        (teacher / "config.json").write_text(json.dumps(config), "utf-8")
        said = "outputs each say yes or no for themselves .*, and an example of SST-2 has one answ"
        refused(lab, lab.classification(teacher=teacher), TeacherError, said)

    def test_a_file_without_labels(self, lab: TinyTaskLab, tmp_path: Path) -> None:
        file = tmp_path / "mine.jsonl"
        file.write_text('{"text": "good"}\n' * 20, "utf-8")
        spec = lab.regression(data_dir=str(file))
        refused(lab, spec, TaskDataError, "label")


def test_a_tagging_task_of_ones_own_is_refused_as_a_request(lab: TinyTaskLab) -> None:
    with pytest.raises(ValueError, match="kind tagging cannot be distilled for"):
        lab.regression(own={"kind": "tagging"})


@pytest.mark.parametrize("name", [n for n in METHODS if n != "universal-kd-ca"])
def test_a_request_that_can_be_done_is_checked(name: str, lab: TinyTaskLab) -> None:
    checked = check_task(lab.classification(methods=[name]), lab.store())
    assert checked.spec.teacher.fingerprint == checked.teacher.fingerprint
    assert not checked.has_learned
    assert checked.student.shape.layers == 2
    assert (checked.assistant is not None) == (name == "takd")
    assert told(checked.warnings) == ()
    again = check_task(checked.spec, lab.store())  # as it is stored, and resumed
    assert again.teacher.fingerprint == checked.teacher.fingerprint


@pytest.mark.parametrize("student", ["first-layers:2", "bilstm"])
@pytest.mark.parametrize("assistant", ["first-layers:4", "gated-cnn"])
def test_an_assistant_of_another_kind_is_warned_of(
    student: str, assistant: str, lab: TinyTaskLab
) -> None:
    spec = lab.classification(student=student, assistant=assistant, methods=["takd"])
    found = [text for text in check_task(spec, lab.store()).warnings if "assistant" in text]
    kinds = {"first-layers:4": "transformer", "first-layers:2": "transformer"}
    own, theirs = kinds.get(assistant, assistant), kinds.get(student, student)
    assert [text.partition(" and is trained")[0] for text in found] == (
        [] if own == theirs else [f"assistant '{assistant}' is a {own}"]
    )


def test_states_of_two_widths_are_compared_through_maps_and_it_is_said(
    lab: TinyTaskLab, tmp_path: Path
) -> None:
    other = make_tiny_teacher(tmp_path / "wide", layers=3, hidden=32, heads=2, words=WORDS)
    methods = ["vanilla-kd", "pkd", "alp-kd", "dih"]
    checked = check_task(lab.classification(student=str(other), methods=methods), lab.store())
    assert told(checked.warnings) == (
        "pkd, alp-kd: states of 32 and 24 numbers are compared through linear maps of the "
        "student's, which are learned with it and thrown away",
    )
    quiet = lab.classification(student=str(other), methods=["dih"])
    assert told(check_task(quiet, lab.store()).warnings) == ()


def test_layers_of_a_teacher_that_has_learned_have_learned_too_and_it_is_said(
    lab: TinyTaskLab,
) -> None:
    spec = lab.classification(teacher=lab.learned("given"))
    checked = check_task(spec, lab.store())
    assert checked.has_learned
    said = "has learned the task already, and so have the layers"
    assert any(said in text for text in told(checked.warnings))


def test_what_says_how_a_teacher_is_tuned_counts_for_nothing_where_it_has_learned(
    lab: TinyTaskLab,
) -> None:
    given = lab.classification(teacher=lab.learned("given"))
    warnings = told(check_task(given, lab.store()).warnings)
    for entry in ("learning_rate 0.002", "epochs 1", "batch_size 16"):
        (said,) = [text for text in warnings if text.startswith(f"teacher.{entry} counts for")]
        assert said.endswith("has learned the task already, and is taken as it is")
    assert not any(text.startswith("teacher.max_steps") for text in warnings)


def test_a_teacher_is_fine_tuned_whatever_head_it_has_if_it_is_asked_for(
    lab: TinyTaskLab,
) -> None:
    """Also with a head for another task, or for this one."""
    for name, labels, task in (
        ("other-labels", ("entailment", "not_entailment"), None),
        ("cola", LABELS, "CoLA"),
        ("given", LABELS, None),
    ):
        teacher = {"ref": str(lab.learned(name, labels, task=task)), "fine_tune": "always"}
        checked = check_task(lab.classification(teacher=teacher), lab.store())
        assert not checked.has_learned
        assert checked.data.labels == LABELS
        (said,) = told(checked.warnings)  # nothing of rates and epochs, which count
        assert "has learned a task already, and so have the layers" in said


def test_no_batch_is_larger_than_what_there_is_to_learn_from(
    lab: TinyTaskLab, tmp_path: Path
) -> None:
    file = write_own(tmp_path / "mine.jsonl", ["yes", "no"] * 10)
    own = {"data_dir": str(file), "own": {"kind": "classification"}}
    checked = check_task(lab.regression(**own, batch_size=64), lab.store())
    examples = len(checked.tuning.train)
    assert examples < 20
    assert checked.hyper.batch_size == examples
    left_open = dict.fromkeys(("batch_size", "learning_rate", "beta"))
    grid = {"batch_sizes": [8, 32, 64], "learning_rates": [1e-3], "betas": [0.5]}
    tried = check_task(lab.regression(**own, **left_open, grid=grid), lab.store())
    sizes = [point.batch_size for point in tried.points("universal-kd-il")]
    assert sizes == [8, examples]  # and not the same run twice


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (LABELS, LABELS),
        (LABELS[::-1], LABELS[::-1]),
        (tuple(label.title() for label in LABELS[::-1]), LABELS[::-1]),
        (("LABEL_0", "LABEL_1"), LABELS),
    ],
)
def test_labels_are_put_in_the_order_of_the_teachers_head(
    labels: tuple[str, ...], order: tuple[str, ...], lab: TinyTaskLab
) -> None:
    teacher = lab.learned("-".join(labels), labels)
    data = check_task(lab.classification(teacher=teacher), lab.store()).data
    assert data.labels == order
    numbered = "the model only numbers its classes; taken was that LABEL_0 is"
    assert any(note.startswith(numbered) for note in data.notes) == (labels[0] == "LABEL_0")


def test_a_teacher_that_was_fine_tuned_on_this_task_is_taken(lab: TinyTaskLab) -> None:
    teacher = lab.learned("sst-2", LABELS, task="SST-2")
    assert check_task(lab.classification(teacher=teacher), lab.store()).has_learned


@pytest.mark.parametrize(("asked", "length"), [(16, 16), (128, 32)])
def test_examples_are_cut_to_what_everybody_can_read(
    asked: int, length: int, lab: TinyTaskLab, tmp_path: Path
) -> None:
    """The teacher takes 64 tokens, this student 32."""
    short = make_tiny_teacher(
        tmp_path / "short", layers=2, hidden=24, heads=2, words=WORDS, max_positions=32
    )
    spec = lab.classification(student=str(short), max_length=asked)
    assert check_task(spec, lab.store()).hyper.max_length == length
    alone = lab.classification(max_length=asked)
    assert check_task(alone, lab.store()).hyper.max_length == min(asked, 64)


def test_a_temperature_of_numbers_is_warned_of(lab: TinyTaskLab) -> None:
    said = check_task(lab.regression(temperature=3.0), lab.store()).warnings
    assert "temperature 3 counts for nothing where numbers are learned" in said
    assert not any(
        "temperature" in text for text in check_task(lab.regression(), lab.store()).warnings
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": ["vanilla-kd", "none"], "beta": 0.7}, "beta 0.7|vanilla-kd, none"),
        ({"methods": ["annealing-kd"], "temperature": 4.0}, "temperature 4.0|annealing-kd"),
        ({"layer_choice": "last"}, "layer_choice 'last'|universal-kd-il"),
        ({"teacher_layers": [2, 4]}, "teacher_layers [2, 4]|universal-kd-il"),
        ({"assistant": "first-layers:4"}, "assistant 'first-layers:4'|universal-kd-il"),
    ],
)
def test_what_counts_for_nothing_is_warned_of(
    changes: dict[str, Any], said: str, lab: TinyTaskLab
) -> None:
    warnings = told(check_task(lab.classification(**changes), lab.store()).warnings)
    assert warnings == (said.replace("|", " counts for nothing with "),)


def test_layers_that_are_named_are_not_chosen_by_a_rule(lab: TinyTaskLab) -> None:
    spec = lab.classification(methods=["pkd"], layer_choice="last", teacher_layers=[1])
    (said,) = told(check_task(spec, lab.store()).warnings)
    assert said == "layer_choice 'last' counts for nothing: teacher_layers say which"


@pytest.mark.parametrize("fast", ["float32", "bfloat16"])
def test_the_number_format_that_was_chosen_stays(
    fast: str, lab: TinyTaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on, with what other hardware."""
    monkeypatch.setattr(
        "workers.task.request.choose_dtype", lambda asked, _: fast if asked == "auto" else asked
    )
    found = check_task(lab.classification(dtype="auto"), lab.store())
    assert found.dtype == found.spec.dtype == fast
    given = check_task(lab.classification(dtype="float32"), lab.store())
    assert given.dtype == given.spec.dtype == "float32"


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": ["vanilla-kd", "pkd"], "beta": 0.7, "layer_choice": "last"},
        {"methods": ["vanilla-kd"], "temperature": 4.0},
        {"methods": ["dih", "none"], "teacher_layers": [2, 4]},
        {"methods": ["takd"], "assistant": "first-layers:4"},
    ],
)
def test_what_counts_for_one_of_the_methods_is_not(
    changes: dict[str, Any], lab: TinyTaskLab
) -> None:
    assert told(check_task(lab.classification(**changes), lab.store()).warnings) == ()


def test_a_task_of_ones_own_has_nobody_elses_settings(lab: TinyTaskLab, tmp_path: Path) -> None:
    file = write_own(tmp_path / "mine.jsonl", ["yes", "no"] * 40)
    own = {"task": "CoLA", "own": {}, "data_dir": str(file)}
    names = ("epochs", "finetune_epochs", "batch_size", "learning_rate")
    hyper = check_task(lab.classification(**dict.fromkeys(names), **own), lab.store()).hyper
    usual = published_choice("bert-4", None)
    assert (hyper.epochs, hyper.learning_rate, hyper.beta) == (20, usual.learning_rate, usual.beta)


def test_hyper_parameters_are_as_published_unless_they_are_given(lab: TinyTaskLab) -> None:
    names = ("epochs", "finetune_epochs", "batch_size", "learning_rate")
    open_ones = lab.classification(**dict.fromkeys(names))
    hyper = check_task(open_ones, lab.store()).hyper
    assert (hyper.epochs, hyper.finetune_epochs) == (20, 10)
    assert (hyper.batch_size, hyper.learning_rate, hyper.beta) == (32, 2e-5, 0.5)
    assert (hyper.dropout, hyper.temperature, hyper.max_steps) == (0.1, 1.0, None)
    assert hyper.weight_decay == 0.01
    sequence = open_ones.model_copy(update={"student": "bilstm", "methods": ("none",)})
    for table in ("auto", "bert-4"):
        other = sequence.model_copy(update={"published": table})
        assert check_task(other, lab.store()).hyper.weight_decay == 0
    named = open_ones.model_copy(update={"published": "gated-cnn", "beta": 0.0, "dropout": 0.0})
    hyper = check_task(named, lab.store()).hyper
    assert (hyper.batch_size, hyper.learning_rate) == (54, 5e-5)  # of 64: there are no more
    assert (hyper.beta, hyper.dropout, hyper.weight_decay) == (0.0, 0.0, 0.01)
    decaying = named.model_copy(update={"weight_decay": 0.1})
    assert check_task(decaying, lab.store()).hyper.weight_decay == 0.1


@pytest.mark.parametrize(
    ("student", "assistant", "layers"),
    [
        ("first-layers:2", None, 4),
        ("first-layers:1", None, 4),
        ("first-layers:2", "layers:1,3,5", 3),
    ],
)
def test_an_assistant_stands_half_way_or_where_it_is_asked_for(
    student: str, assistant: str | None, layers: int, lab: TinyTaskLab
) -> None:
    spec = lab.classification(student=student, assistant=assistant, methods=["takd", "none"])
    found = check_task(spec, lab.store()).assistant
    assert found is not None
    assert found.shape.layers == layers


def test_spaces_are_those_of_the_labels(lab: TinyTaskLab) -> None:
    assert check_task(lab.classification(), lab.store()).space == Classes(2)
    checked = check_task(lab.regression(), lab.store())
    assert isinstance(checked.space, Numbers)
    learned = [float(e.label) for e in checked.tuning.train]  # nothing that is held out
    assert checked.space.deviation == pytest.approx(pstdev(learned))
    assert len(learned) < len(checked.data.train)
