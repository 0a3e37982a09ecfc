"""The tasks that a model can be evaluated on, and where their data lie.

A registry: how files are found is in ``data.finding``, how they are read in ``data.tables``,
``data.files.squad`` and ``data.files.columns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kdnas.errors import SpecError, unknown_name
from kdnas.evaluation.tasks.task import (
    METRIC_NAMES,
    RECORD_FILES,
    TABLE_FILES,
    Columns,
    HubPart,
    HubSource,
    Kind,
    LocalLayout,
    Task,
    own_task,
    simple,
)

__all__ = ["METRIC_NAMES", "SUITES", "TASKS", "Kind", "Task", "find_task", "own_task"]


def _codes(languages: str) -> dict[str, str]:
    return {code: code for code in languages.split()}


_GLUE = ("nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
_CONVERTED = "refs/convert/parquet"
_SQUAD_FILES = RECORD_FILES
_COLUMN_FILES = (
    *(".tsv", ".txt", ".conll", ".conllu", ".iob", ".iob2", ".bio", ".annotated"),
    *(".ner", ".bmes", ".bioes", ".iobes", ".bilou"),
    *(".train", ".dev", ".test", ".testa", ".testb", "", ".csv", *RECORD_FILES),
)
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_XNLI = _codes("en ar bg de el es fr hi ru sw th tr ur vi zh")
_MLQA = _codes("en ar de es hi vi zh")
_XQUAD = _codes("en ar de el es hi ro ru th tr vi zh")
_PANX = _codes(
    "en af ar az bg bn de el es et eu fa fi fr gu he hi hu id it ja jv ka kk ko lt ml mr ms my nl "
    "pa pl pt qu ro ru sw ta te th tl tr uk ur vi yo zh"
)
TYDIQA_LANGUAGES: Mapping[str, str] = {
    "english": "en",
    "arabic": "ar",
    "bengali": "bn",
    "finnish": "fi",
    "indonesian": "id",
    "korean": "ko",
    "russian": "ru",
    "swahili": "sw",
    "telugu": "te",
}
_TYDIQA_NAMES = {**TYDIQA_LANGUAGES, **{code: code for code in TYDIQA_LANGUAGES.values()}}


def _glue(
    name: str,
    config: str,
    columns: Columns,
    labels: tuple[str, ...] | None,
    metrics: tuple[str, ...],
    *,
    folders: tuple[str, ...] = (),
    files: tuple[str, ...] = ("train.tsv", "dev.tsv"),
    local: tuple[Columns, ...] = (),
    positions: tuple[int, int | None, int] | None = None,
    together: str | None = None,
    evaluations: tuple[tuple[str, str], ...] = (("dev", "validation"),),
) -> Task:
    """A task of GLUE; the hub's columns are those of the files unless ``local`` says others."""
    path, revision = _GLUE
    return Task(
        name=name,
        suite="glue",
        kind="classification" if labels else "regression",
        labels=labels,
        metrics=metrics,
        main_metric=metrics[0],
        layout=LocalLayout(
            (simple(name), *folders),
            TABLE_FILES,
            files,
            tuple(dict.fromkeys((*local, columns))),
            positions,
            together=together,
        ),
        hub=HubSource(
            path,
            revision,
            columns,
            HubPart(config, "train"),
            {key: HubPart(config, split) for key, split in evaluations},
        ),
    )


def _span(
    name: str,
    suite: str,
    layout: LocalLayout,
    hub: HubSource,
    *,
    train_language: str | None = None,
    parallel: bool = False,
    train_from: str | None = None,
) -> Task:
    return Task(
        name=name,
        suite=suite,
        kind="span",
        labels=None,
        metrics=("f1", "exact_match"),
        main_metric="f1",
        layout=layout,
        hub=hub,
        train_language=train_language,
        parallel=parallel,
        train_from=train_from,
    )


def _tagging(
    name: str,
    folders: tuple[str, ...],
    files: tuple[str, ...],
    hub: HubSource | None,
    languages: Mapping[str, str] | None = None,
    train_language: str | None = None,
) -> Task:
    return Task(
        name=name,
        suite="ner",
        kind="tagging",
        labels=None,
        metrics=("f1", "precision", "recall"),
        main_metric="f1",
        layout=LocalLayout(folders, _COLUMN_FILES, files, _LISTS, languages=languages or {}),
        hub=hub,
        train_language=train_language,
    )


_SPANS = Columns("context", "question", "answers")
_WORDS = Columns("tokens", None, "ner_tags")
_LISTS = tuple(
    Columns(words, None, tags) for tags in ("ner_tags", "tags") for words in ("tokens", "words")
)
_SENTENCES = Columns("sentence1", "sentence2", "label")

_TASKS = (
    _glue(
        "CoLA",
        "cola",
        Columns("sentence", None, "label"),
        ("unacceptable", "acceptable"),
        ("matthews", "accuracy"),
        files=("train.tsv", "dev.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv"),
        positions=(3, None, 1),
        together=r"^(in|out_of)_domain_dev",  # GLUE's development part is both
    ),
    _glue(
        "SST-2", "sst2", Columns("sentence", None, "label"), ("negative", "positive"), ("accuracy",)
    ),
    _glue(
        "MRPC",
        "mrpc",
        _SENTENCES,
        ("not_equivalent", "equivalent"),
        ("f1", "accuracy"),
        files=("train.tsv", "dev.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"),
        local=(Columns("#1 String", "#2 String", "Quality"),),
    ),
    _glue(
        "STS-B",
        "stsb",
        _SENTENCES,
        None,
        ("pearson", "spearman"),
        folders=("stsbenchmark",),
        files=("train.tsv", "dev.tsv", "sts-train.csv", "sts-dev.csv"),
        positions=(5, 6, 4),  # of the benchmark's own files; GLUE's have a header
        local=(Columns("sentence1", "sentence2", "score"),),
    ),
    _glue(
        "QQP",
        "qqp",
        Columns("question1", "question2", "label"),
        ("not_duplicate", "duplicate"),
        ("f1", "accuracy"),
        folders=("quoraquestionpairs",),
        local=(Columns("question1", "question2", "is_duplicate"),),
    ),
    _glue(
        "MNLI",
        "mnli",
        Columns("premise", "hypothesis", "label"),
        _NLI,
        ("accuracy",),
        folders=("multinli",),
        files=("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"),
        local=(Columns("sentence1", "sentence2", "gold_label"),),
        evaluations=(
            ("matched", "validation_matched"),
            ("mismatched", "validation_mismatched"),
        ),
    ),
    _glue("QNLI", "qnli", Columns("question", "sentence", "label"), _ENTAILMENT, ("accuracy",)),
    _glue(
        "RTE",
        "rte",
        _SENTENCES,
        _ENTAILMENT,
        ("accuracy",),
        local=(Columns("premise", "hypothesis", "label"),),  # as SuperGLUE has it
    ),
    _glue("WNLI", "wnli", _SENTENCES, ("not_entailment", "entailment"), ("accuracy",)),
    Task(
        name="XNLI",
        suite="xnli",
        kind="classification",
        labels=_NLI,
        metrics=("accuracy",),
        main_metric="accuracy",
        layout=LocalLayout(
            ("xnli",),
            TABLE_FILES,
            ("xnli.dev.tsv", "xnli.test.tsv", "multinli.train.en.tsv", "dev-en.tsv", "test-en.tsv"),
            (
                Columns("sentence1", "sentence2", "gold_label", "language"),
                Columns("sentence1", "sentence2", "gold_label"),
                Columns("premise", "hypo", "label"),
                Columns("premise", "hypothesis", "label"),
            ),
            (0, 1, 2),
            _XNLI,
        ),
        hub=HubSource(
            "facebook/xnli",
            "b8dd5d7af51114dbda02c0e3f6133f332186418e",
            Columns("premise", "hypothesis", "label"),
            HubPart("en", "train"),
            {language: HubPart(language, "test") for language in _XNLI},
        ),
        train_language="en",
        parallel=True,
        train_from="mnli",
    ),
    _span(
        "SQuAD 1.1",
        "squad",
        LocalLayout(
            ("squad11", "squadv11", "squad1", "squad"),
            _SQUAD_FILES,
            ("train-v1.1.json", "dev-v1.1.json"),
            skip=r"v?2\.0|squad_?v?2|xquad|mlqa|tydi",
        ),
        HubSource(
            "rajpurkar/squad",
            "7b6d24c440a36b6815f21b70d25016731768db1f",
            _SPANS,
            HubPart(None, "train"),
            {"dev": HubPart(None, "validation")},
        ),
    ),
    _span(
        "SQuAD 2.0",
        "squad2",
        LocalLayout(
            ("squad20", "squadv20", "squad2", "squadv2", "squad"),
            _SQUAD_FILES,
            ("train-v2.0.json", "dev-v2.0.json"),
            skip=r"v?1\.1|xquad|mlqa|tydi",
        ),
        HubSource(
            "rajpurkar/squad_v2",
            "3ffb306f725f7d2ce8394bc1873b24868140c412",
            _SPANS,
            HubPart(None, "train"),
            {"dev": HubPart(None, "validation")},
        ),
    ),
    _span(
        "XQuAD",
        "xquad",
        LocalLayout(("xquad",), _SQUAD_FILES, ("xquad.en.json", "xquad.es.json"), languages=_XQUAD),
        HubSource(
            "google/xquad",
            "51adfef1c1287aab1d2d91b5bead9bcfb9c68583",
            _SPANS,
            None,
            {language: HubPart(f"xquad.{language}", "validation") for language in _XQUAD},
        ),
        train_language="en",
        parallel=True,
        train_from="squad 1.1",
    ),
    _span(
        "TyDiQA-GoldP",
        "tydiqa",
        LocalLayout(
            ("tydiqagoldp", "tydiqa", "tydi"),
            _SQUAD_FILES,
            ("tydiqa-goldp-v1.1-train.json", "tydiqa-goldp-v1.1-dev.json", "tydiqa.en.train.json"),
            languages=_TYDIQA_NAMES,
        ),
        HubSource(
            "google-research-datasets/tydiqa",
            "da78f23f9119363459acbaf46bf89426ff26c259",
            _SPANS,
            HubPart("secondary_task", "train"),
            {"dev": HubPart("secondary_task", "validation")},
        ),
    ),
    _span(
        "MLQA",
        "mlqa",
        LocalLayout(
            ("mlqa",),
            _SQUAD_FILES,
            ("test-context-en-question-en.json", "dev-context-en-question-en.json"),
            languages=_MLQA,
            skip="translate",
        ),
        HubSource(
            "facebook/mlqa",
            _CONVERTED,
            _SPANS,
            None,
            {language: HubPart(f"mlqa.{language}.{language}", "test") for language in _MLQA},
            converted=True,
        ),
        train_language="en",
        parallel=True,
        train_from="squad 1.1",
    ),
    _tagging(
        "CoNLL-2003",
        ("conll2003", "conll03", "conll"),
        ("eng.train", "eng.testa", "eng.testb", "train.txt", "valid.txt", "test.txt"),
        HubSource(
            "eriktks/conll2003",
            _CONVERTED,
            _WORDS,
            HubPart("conll2003", "train"),
            {"test": HubPart("conll2003", "test")},
            converted=True,
        ),
    ),
    _tagging(
        "WNUT-17",
        ("wnut17", "wnut2017", "wnut"),
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        HubSource(
            "leondz/wnut_17",
            "1ac0b6d18c8a1a1d1606b24bef78b8af2f92d2d9",
            _WORDS,
            HubPart("wnut_17", "train"),
            {"test": HubPart("wnut_17", "test")},
            converted=True,
        ),
    ),
    _tagging(
        "PAN-X",
        ("panx", "wikiann"),
        ("train-en.tsv", "dev-en.tsv", "test-en.tsv"),
        HubSource(
            "unimelb-nlp/wikiann",
            "main",
            _WORDS,
            HubPart("en", "train"),
            {language: HubPart(language, "test") for language in _PANX},
        ),
        _PANX,
        "en",
    ),
    _tagging("NER", (), ("train.conll", "dev.conll", "test.conll"), None),
)

_STS_B = next(task for task in _TASKS if task.name == "STS-B")
_ALL = (
    *_TASKS,
    replace(  # the usual measure of sentence embeddings
        _STS_B,
        name="STS-B cosine",
        suite="sts",
        metrics=("spearman", "pearson"),
        main_metric="spearman",
        way="embeddings",
    ),
)

TASKS: Mapping[str, Task] = {task.name.lower(): task for task in _ALL}

SUITES: Mapping[str, tuple[str, ...]] = {
    suite: tuple(task.name for task in _ALL if task.suite == suite)
    for suite in dict.fromkeys(task.suite for task in _ALL)
}


def find_task(name: str) -> Task:
    """The task of a name, whatever its case and punctuation; ``squad`` is SQuAD 1.1.

    Raises:
        SpecError: there is no such task; lists those there are.
    """
    wanted = simple(name)
    for task in _ALL:
        if wanted in (simple(task.name), *task.layout.folders):
            return task
    raise SpecError(unknown_name("task", name, (task.name for task in _ALL)))
