from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdnas.errors import TaskDataError
from kdnas.evaluation.data.loading import load_task, what_is_amiss
from kdnas.evaluation.tasks.examples import (
    SpanExample,
    TextExample,
)
from kdnas.evaluation.tasks.registry import SUITES, TASKS, find_task, own_task
from kdnas.testing.task_files import counts, file, is_whole, texts, told


def squad(path: Path, *contexts: str, impossible: bool = False, prefix: str = "") -> Path:
    """Two questions a context, answered by its first word."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{prefix}{context}-{n}",
                    "question": f"what {n}?",
                    "answers": []
                    if impossible and n
                    else [{"text": context.split()[0], "answer_start": 0}],
                    **({"is_impossible": bool(n)} if impossible else {}),
                }
                for n in range(2)
            ],
        }
        for context in contexts
    ]
    return file(path, json.dumps({"data": [{"paragraphs": paragraphs}]}))


def rte(folder: Path) -> None:
    for part, number in (("train", 3), ("dev", 2)):
        rows = [f"{n}\t{part} {n}\tb\tnot_entailment" for n in range(number)]
        file(folder / f"{part}.tsv", "index\tsentence1\tsentence2\tlabel", *rows)
    file(folder / "test.tsv", "index\tsentence1\tsentence2", "0\ta\tb")


@pytest.mark.parametrize("folder", ["RTE", "glue/rte", "GLUE_v1/Rte", "mine", "."])
def test_a_task_is_found_in_its_folder_or_below(tmp_path: Path, folder: str) -> None:
    rte(tmp_path / "data" / folder)
    where = tmp_path / "data" / ("mine" if folder == "mine" else ".")
    data = load_task(TASKS["rte"], where)
    assert counts(data) == (3, {"dev": 2})
    assert is_whole(data)
    assert told(data.notes) == ()
    assert data.labels == ("entailment", "not_entailment")
    assert data.train[0] == TextExample("0", "train 0", "b", "not_entailment")
    assert [Path(source).name for source in data.sources] == ["train.tsv", "dev.tsv"]


def test_all_of_glue_in_its_official_layout(tmp_path: Path) -> None:
    glue = tmp_path / "glue_data"
    file(glue / "CoLA" / "train.tsv", "gj04\t1\t\tOne rode.", "gj04\t0\t*\tTwo rides.")
    file(glue / "CoLA" / "dev.tsv", 'gj04\t1\t\t"Three.')
    file(glue / "SST-2" / "train.tsv", "sentence\tlabel", "fine \t1", "dull \t0")
    file(glue / "SST-2" / "dev.tsv", "sentence\tlabel", "great \t1")
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    file(glue / "MRPC" / "msr_paraphrase_train.txt", header, "1\t1\t2\ta\tb")
    file(glue / "MRPC" / "msr_paraphrase_test.txt", header, "0\t1\t2\tc\td")
    sts = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    for part in ("train", "dev"):
        file(glue / "STS-B" / f"{part}.tsv", sts, "0\tg\tf\ty\t0\tn\tn\ta\tb\t3.800")
    file(glue / "STS-B" / "original" / "sts-train.tsv", "not\tread")
    qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    for part in ("train", "dev"):
        file(glue / "QQP" / f"{part}.tsv", qqp, "1\t2\t3\twhy?\twhat?\t0")
    mnli = "index\tpairID\tsentence1\tsentence2\tlabel1\tgold_label"
    for part in ("train", "dev_matched", "dev_mismatched"):
        file(glue / "MNLI" / f"{part}.tsv", mnli, f"0\t1\t{part}\tb\tneutral\tcontradiction")
    for part in ("train", "dev"):
        file(
            glue / "QNLI" / f"{part}.tsv", "index\tquestion\tsentence\tlabel", "0\tq\ts\tentailment"
        )
    rte(glue / "RTE")
    for part in ("train", "dev"):
        rows = ("0\ta\tb\t1", "1\tc\td\t0")
        file(glue / "WNLI" / f"{part}.tsv", "index\tsentence1\tsentence2\tlabel", *rows)
    loaded = {name: load_task(find_task(name), tmp_path) for name in SUITES["glue"]}
    assert all(is_whole(data) for data in loaded.values())
    found = {name: counts(data) for name, data in loaded.items()}
    assert found.pop("MNLI") == (1, {"matched": 1, "mismatched": 1})
    (glue / "MNLI" / "dev_matched.tsv").unlink()
    lacking = load_task(find_task("MNLI"), tmp_path)
    assert not lacking.official_split
    assert (
        "not the official split: the matched part, by which MNLI is scored, is not there"
        in lacking.notes
    )
    assert found.pop("MRPC") == (1, {"test": 1})
    assert found == {
        "CoLA": (2, {"dev": 1}),
        "SST-2": (2, {"dev": 1}),
        "STS-B": (1, {"dev": 1}),
        "QQP": (1, {"dev": 1}),
        "QNLI": (1, {"dev": 1}),
        "RTE": (3, {"dev": 2}),
        "WNLI": (2, {"dev": 2}),
    }
    assert loaded["CoLA"].evaluations["dev"][0] == TextExample("1", '"Three.', None, "acceptable")
    assert loaded["STS-B"].train[0] == TextExample("0", "a", "b", 3.8)
    assert loaded["STS-B"].labels is None
    assert loaded["WNLI"].train[0] == TextExample("0", "a", "b", "entailment")
    assert texts(loaded["MNLI"].evaluations["matched"]) == ["dev_matched"]
    assert loaded["MNLI"].labels == ("entailment", "neutral", "contradiction")
    assert told(loaded["MRPC"].notes) == ("scored on the test part: no dev part has labels",)


def test_what_is_not_found_is_told_with_what_was_looked_for(tmp_path: Path) -> None:
    rte(tmp_path / "RTE")
    with pytest.raises(TaskDataError, match=r"train\.tsv, dev.* called wnli, and found RTE; check"):
        load_task(TASKS["wnli"], tmp_path)
    with pytest.raises(TaskDataError, match=r"no data of WNLI in .*RTE"):
        load_task(TASKS["wnli"], tmp_path / "RTE")
    with pytest.raises(TaskDataError, match=r"data folder .*gone' is not there"):
        load_task(TASKS["rte"], tmp_path / "gone")


def test_files_of_another_task_are_refused(tmp_path: Path) -> None:
    rte(tmp_path / "mine")
    with pytest.raises(
        TaskDataError,
        match=r"train\.tsv, line 2 has the label 'not_entailment', which MRPC does not know; its "
        r"labels are not_equivalent, equivalent",
    ):
        load_task(TASKS["mrpc"], tmp_path / "mine")
    with pytest.raises(TaskDataError, match=r"it needs question and sentence and label"):
        load_task(TASKS["qnli"], tmp_path / "mine")


def test_a_label_that_only_looks_like_a_number_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "SST-2"
    folder.mkdir()
    for part in ("train", "dev"):
        (folder / f"{part}.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t²\n", "utf-8")
    with pytest.raises(TaskDataError, match="has the label '²', which SST-2 does not know"):
        load_task(TASKS["sst-2"], tmp_path)


def test_without_a_training_part_a_fifth_is_held_out(tmp_path: Path) -> None:
    rows = [f"{n}\tquestion {n // 2}\tanswer {n}\tentailment" for n in range(100)]
    file(tmp_path / "QNLI" / "dev.tsv", "index\tquestion\tsentence\tlabel", *rows)
    data = load_task(TASKS["qnli"], tmp_path)
    assert counts(data) == (80, {"dev": 20})
    assert not data.official_split
    [note] = data.notes
    assert note.startswith("not the official split: there is no training part")
    assert "seed 0" in note
    assert not set(texts(data.train)) & set(texts(data.evaluations["dev"]))
    assert load_task(TASKS["qnli"], tmp_path) == data
    other = load_task(TASKS["qnli"], tmp_path, seed=1)
    assert counts(other) == (80, {"dev": 20})
    assert other.evaluations != data.evaluations


def test_without_labels_to_score_the_training_part_is_cut(tmp_path: Path) -> None:
    file(tmp_path / "SST-2" / "train.tsv", "sentence\tlabel", *(f"text {n}\t1" for n in range(10)))
    file(tmp_path / "SST-2" / "test.tsv", "index\tsentence", "0\tsecret")
    data = load_task(TASKS["sst-2"], tmp_path)
    assert counts(data) == (8, {"dev": 2})
    assert data.notes[0].startswith("not the official split: there is no labelled part to score")


def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    file(tmp_path / "one" / "dev.tsv", "sentence\tlabel", "same\t1", "same\t1")
    with pytest.raises(
        TaskDataError, match=r"2 examples .* \(.*dev\.tsv, line [23], …\) cannot be"
    ):
        load_task(TASKS["sst-2"], tmp_path / "one")
    file(tmp_path / "none" / "test.tsv", "index\tsentence", "0\tsecret")
    with pytest.raises(TaskDataError, match=r"no labelled examples of SST-2: .*test\.tsv"):
        load_task(TASKS["sst-2"], tmp_path / "none")


def xnli(folder: Path, part: str, languages: str, number: int = 10) -> None:
    for language in languages.split():
        rows = [
            f"{language} {n}\tthen\t{'neutral' if n % 2 else 'entailment'}" for n in range(number)
        ]
        file(folder / f"{part}-{language}.tsv", *rows)


def test_xnli_is_cut_alike_in_all_languages(tmp_path: Path) -> None:
    xnli(tmp_path / "xnli", "dev", "de en sw zh")
    xnli(tmp_path / "xnli", "test", "en sw", 30)
    data = load_task(TASKS["xnli"], tmp_path)
    assert counts(data) == (8, {"en": 2, "de": 2, "sw": 2, "zh": 2})
    trained = {text.split()[1] for text in texts(data.train)}
    for language, examples in data.evaluations.items():
        assert {text.split()[0] for text in texts(examples)} == {language}
        assert not {text.split()[1] for text in texts(examples)} & trained
    assert data.notes[0] == "scored on the dev part: the test part has fewer languages"
    assert not data.official_split


def test_xnli_is_trained_on_english_or_on_mnli(tmp_path: Path) -> None:
    xnli(tmp_path / "xnli", "test", "en sw")
    mnli = "index\tsentence1\tsentence2\tgold_label"
    file(tmp_path / "MNLI" / "train.tsv", mnli, "0\ta\tb\tneutral", "1\tc\td\t-")
    file(tmp_path / "MNLI" / "dev_matched.tsv", mnli, "0\ta\tb\tneutral")
    data = load_task(TASKS["xnli"], tmp_path)
    assert counts(data) == (1, {"en": 10, "sw": 10})
    assert is_whole(data)
    assert told(data.notes) == ("1 row of train.tsv without a label left out", "trained on MNLI")
    header = "premise\thypo\tlabel"
    file(
        tmp_path / "xnli" / "multinli.train.en.tsv", header, "a\tb\tcontradictory", "c\td\tneutral"
    )
    file(tmp_path / "xnli" / "multinli.train.sw.tsv", "unread", "broken")
    data = load_task(TASKS["xnli"], tmp_path)
    assert counts(data)[0] == 2
    assert data.train[0] == TextExample("1", "a", "b", "contradiction")


def test_the_official_file_of_xnli_holds_all_languages(tmp_path: Path) -> None:
    rows = [f"{lang}\tneutral\t{lang} {n}\tb" for lang in ("ar", "en") for n in range(5)]
    header = "language\tgold_label\tsentence1\tsentence2"
    file(tmp_path / "XNLI-1.0" / "xnli.test.tsv", header, *rows)
    data = load_task(TASKS["xnli"], tmp_path)
    assert counts(data) == (4, {"ar": 1, "en": 1})
    assert texts(data.train)[0].startswith("en ")


def test_squad_of_both_kinds_from_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "SQuAD"
    squad(folder / "train-v1.1.json", "one a", "two a")
    squad(folder / "dev-v1.1.json", "three a")
    squad(folder / "train-v2.0.json", "four a", "five a", "six a", impossible=True)
    squad(folder / "dev-v2.0.json", "seven a", impossible=True)
    first, second = (load_task(find_task(name), tmp_path) for name in ("squad", "squad2"))
    assert counts(first) == (4, {"dev": 2})
    assert counts(second) == (6, {"dev": 2})
    assert [e.impossible for e in second.train[:2] if isinstance(e, SpanExample)] == [False, True]
    said = r"dev-v2\.0\.json has 1 questions without an answer, such as '.+', unlike SQuAD 1\.1"
    with pytest.raises(TaskDataError, match=said):
        load_task(find_task("squad"), folder / "dev-v2.0.json")


def test_questions_about_one_context_stay_together(tmp_path: Path) -> None:
    squad(tmp_path / "squad2" / "dev-v2.0.json", *(f"c{n} a" for n in range(20)), impossible=True)
    data = load_task(TASKS["squad 2.0"], tmp_path)
    assert counts(data) == (32, {"dev": 8})
    trained = {e.context for e in data.train if isinstance(e, SpanExample)}
    scored = {e.context for e in data.evaluations["dev"] if isinstance(e, SpanExample)}
    assert not trained & scored


def test_xquad_is_trained_on_squad_or_cut_alike(tmp_path: Path) -> None:
    for language in ("zh", "en"):
        squad(tmp_path / "xquad" / f"xquad.{language}.json", *(f"c{n} a" for n in range(10)))
    file(tmp_path / "xquad" / "LICENSE.txt", "free")
    data = load_task(TASKS["xquad"], tmp_path)
    assert counts(data) == (16, {"en": 4, "zh": 4})
    ids = {name: [e.id for e in part] for name, part in data.evaluations.items()}
    assert ids["en"] == ids["zh"]
    squad(tmp_path / "squad" / "train-v1.1.json", "one a")
    data = load_task(TASKS["xquad"], tmp_path)
    assert counts(data) == (2, {"en": 20, "zh": 20})
    assert told(data.notes) == ("trained on SQuAD 1.1",)
    assert is_whole(data)


def test_mlqa_takes_questions_in_the_language_of_the_context(tmp_path: Path) -> None:
    for part, languages in (("dev", ("en-en", "de-de")), ("test", ("en-en", "en-de", "de-de"))):
        for pair in languages:
            context, question = pair.split("-")
            name = f"{part}-context-{context}-question-{question}.json"
            squad(tmp_path / "MLQA_V1" / part / name, f"{part} {pair}", "b c")
    squad(tmp_path / "squad" / "train-v1.1.json", "one a")
    data = load_task(TASKS["mlqa"], tmp_path)
    assert counts(data) == (2, {"en": 4, "de": 4})
    first = data.evaluations["de"][0]
    assert isinstance(first, SpanExample)
    assert (first.context, first.language) == ("test de-de", "de")


def test_tydiqa_is_trained_on_all_languages_and_scored_in_each(tmp_path: Path) -> None:
    folder = tmp_path / "tydiqa"
    squad(folder / "tydiqa-goldp-v1.1-train.json", "one a", prefix="swahili-")
    dev = folder / "tydiqa-goldp-v1.1-dev"
    squad(dev / "tydiqa-goldp-dev-english.json", "two a", prefix="english-")
    squad(dev / "tydiqa-goldp-dev-korean.json", "three a", prefix="korean-")
    data = load_task(find_task("tydiqa"), tmp_path)
    assert counts(data) == (2, {"en": 2, "ko": 2})
    assert is_whole(data)


def test_tydiqa_without_a_part_to_score_is_cut_in_each_language(tmp_path: Path) -> None:
    for language in ("sw", "en"):
        contexts = [f"{language}{n} a" for n in range(10)]
        squad(tmp_path / "tydiqa_goldp_train" / f"tydiqa.goldp.{language}.train.json", *contexts)
    data = load_task(find_task("tydiqa"), tmp_path)
    assert counts(data) == (32, {"en": 4, "sw": 4})


def cola(folder: Path, *names: str) -> None:
    for name in names:
        file(folder / name, *(f"src\t{n % 2}\t\t{name} {n}." for n in range(4)))


def test_both_files_of_the_development_part_of_cola_are_scored(tmp_path: Path) -> None:
    cola(tmp_path / "CoLA", "train.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv")
    data = load_task(TASKS["cola"], tmp_path)
    assert counts(data) == (4, {"dev": 8})
    assert is_whole(data)
    assert [example.id for example in data.evaluations["dev"]] == [str(n) for n in range(1, 9)]
    assert {e.label for e in data.train if isinstance(e, TextExample)} == {
        *("acceptable", "unacceptable")
    }


def test_half_of_the_development_part_of_cola_is_not_official(tmp_path: Path) -> None:
    cola(tmp_path / "CoLA", "in_domain_train.tsv", "in_domain_dev.tsv")
    data = load_task(TASKS["cola"], tmp_path)
    assert counts(data) == (4, {"dev": 4})
    assert not data.official_split
    assert data.notes == (
        "not the official split: in_domain_dev.tsv is one of two files of the dev part, and the "
        "other is not there",
    )


def test_what_is_passed_over_is_told(tmp_path: Path) -> None:
    cola(tmp_path / "CoLA", "train.tsv", "dev.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv")
    data = load_task(TASKS["cola"], tmp_path)
    assert counts(data) == (4, {"dev": 4})
    assert is_whole(data)
    assert told(data.notes) == (
        "dev.tsv is taken as the dev part, and not in_domain_dev.tsv, out_of_domain_dev.tsv",
    )


def test_without_a_training_part_the_development_part_is_learned_from(tmp_path: Path) -> None:
    for part in ("dev", "test"):
        file(tmp_path / f"{part}.csv", "text,label", *(f"{part} {n},{n % 2}" for n in range(10)))
    data = load_task(own_task("mine", "classification"), tmp_path)
    assert counts(data) == (10, {"test": 10})
    assert all(text.startswith("dev") for text in texts(data.train))
    assert not data.official_split
    assert data.tuning == ()
    assert data.notes == (
        "not the official split: there is no training part, so that the dev part is trained on",
    )
    assert [Path(source).name for source in data.sources] == ["dev.csv", "test.csv"]


def test_a_task_without_hub_asks_for_a_folder() -> None:
    with pytest.raises(TaskDataError, match=r"NER has no data set on the hub; give a folder"):
        load_task(TASKS["ner"], None)


def test_a_folder_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(TaskDataError, match=r"cannot look into .*: Permission denied; make it"):
        load_task(own_task("mine", "classification"), tmp_path)


def test_a_development_part_that_is_scored_is_not_tuned_on(tmp_path: Path) -> None:
    rte(tmp_path / "RTE")
    assert load_task(TASKS["rte"], tmp_path).tuning == ()


def test_answers_that_are_nowhere_are_told_or_refused(tmp_path: Path) -> None:
    squad(tmp_path / "train.json", "one a", "two b")
    path = squad(tmp_path / "dev.json", "three c", "four d", "five e")
    path.write_text(path.read_text().replace('"text": "five"', '"text": "gone"', 1))
    data = load_task(TASKS["squad 1.1"], tmp_path)
    assert "1 of 6 answers of dev.json are nowhere in their context, as that of" in data.notes[0]
    path.write_text(path.read_text().replace('"text": "', '"text": "un'))
    with pytest.raises(TaskDataError, match="has 6 of 6 answers that are nowhere in their context"):
        load_task(TASKS["squad 1.1"], tmp_path)


def test_xnli_is_found_as_it_is_published(tmp_path: Path) -> None:
    """What is scored and what is learned from are in folders beside each other."""
    for part in ("dev", "test"):
        rows = [f"{lang}\tneutral\ta {n}\tb" for lang in ("de", "en") for n in range(3)]
        head = "language\tgold_label\tsentence1\tsentence2"
        file(tmp_path / "XNLI-1.0" / f"xnli.{part}.tsv", head, *rows)
    for lang in ("de", "en"):
        rows = [f"{lang} {n}\tb\tcontradictory" for n in range(5)]
        folder = tmp_path / "XNLI-MT-1.0" / "multinli"
        file(folder / f"multinli.train.{lang}.tsv", "premise\thypo\tlabel", *rows)
    data = load_task(TASKS["xnli"], tmp_path)
    assert counts(data) == (5, {"de": 3, "en": 3})
    assert texts(data.train)[0] == "en 0"
    assert is_whole(data)


def test_the_task_that_has_files_says_what_is_amiss(tmp_path: Path) -> None:
    errors = {
        "CoLA": TaskDataError("no data of CoLA in glue"),
        "RTE": TaskDataError("RTE/train.tsv, line 2 has the label 'yes'"),
    }
    told = what_is_amiss([TASKS["cola"], TASKS["rte"]], errors)
    assert str(told).startswith("RTE/train.tsv, line 2")


def test_what_lies_there_is_named(tmp_path: Path) -> None:
    file(tmp_path / "questions.xlsx", "id,question1,question2,is_duplicate")
    with pytest.raises(TaskDataError, match=r"found questions.xlsx; check the folder, or leave"):
        load_task(TASKS["qqp"], tmp_path)
