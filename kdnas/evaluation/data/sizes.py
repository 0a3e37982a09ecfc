"""How many examples benchmarks have in their parts, as published: a part of a part is none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kdnas.evaluation.tasks.task import Task
from kdnas.specs.evaluation import OWN_SUITE

MOST_OFF: Final = 0.001
"""Share of a part that may lack or be torn: QQP's files have some such lines."""

_XNLI: Final = {"train": (392702,), "dev": (2490,), "test": (5010,)}
_MLQA: Final = {
    **{"en": (11590, 1148), "ar": (5335, 517), "de": (4517, 512), "es": (5253, 500)},
    **{"hi": (4918, 507), "vi": (5495, 511), "zh": (5137, 504)},
}
_TYDIQA: Final = {
    **{"ar": (921,), "bn": (113,), "en": (440,), "fi": (782,), "id": (565,)},
    **{"ko": (276,), "ru": (812,), "sw": (499,), "te": (669,)},
}
PUBLISHED_EXAMPLES: Final[Mapping[str, Mapping[str, Sequence[int]]]] = {
    "CoLA": {"train": (8551,), "dev": (1043,)},
    "SST-2": {"train": (67349,), "dev": (872,)},
    "MRPC": {"train": (3668, 4076), "dev": (408,), "test": (1725,)},
    "STS-B": {"train": (5749,), "dev": (1500,), "test": (1379,)},
    "STS-B cosine": {"dev": (1500,), "test": (1379,)},
    "QQP": {"train": (363849,), "dev": (40431,)},
    "MNLI": {"train": (392702,), "matched": (9815,), "mismatched": (9832,)},
    "QNLI": {"train": (104743, 108436), "dev": (5463, 5732)},
    "RTE": {"train": (2490,), "dev": (277,)},
    "WNLI": {"train": (635,), "dev": (71,)},
    "XNLI": _XNLI,
    "SQuAD 1.1": {"train": (87599,), "dev": (10570,)},
    "SQuAD 2.0": {"train": (130319,), "dev": (11873,)},
    "XQuAD": {"train": (87599,), "dev": (1190,), "test": (1190,)},
    "MLQA": {"train": (87599,), **_MLQA},
    "TyDiQA-GoldP": {"train": (49881,), "dev": (5077,), **_TYDIQA},
}
"""Task → part, variant or language → labelled examples, in every release that there is.

Wang et al. 2019 (GLUE; of MRPC also Dolan and Brockett 2005, and of QNLI both releases), Conneau et
al. 2018 (XNLI), Rajpurkar et al. 2016 and 2018 (SQuAD), Artetxe et al. 2020 (XQuAD), Lewis et al.
2020 (MLQA: test and dev), Clark et al. 2020 (TyDiQA), counted in the files or the hub's copies.
"""


def without_the_first(task: Task, scored: Collection[str]) -> list[str]:
    """Say that the part by which a benchmark of several variants is scored is not there.

    Args:
        task: such as MNLI, whose score is that of its matched part.
        scored: names of what is scored.

    Returns:
        A sentence, or nothing.
    """
    variants = () if task.suite == OWN_SUITE or task.hub is None else tuple(task.hub.evaluations)
    if len(variants) < 2 or task.layout.languages or variants[0] in scored:
        return []
    return [
        f"not the official split: the {variants[0]} part, by which {task.name} is scored, is not "
        "there"
    ]


def not_as_published(
    task: Task, part: str, train: Collection[object], scored: Mapping[str, Collection[object]]
) -> list[str]:
    """Say which parts of a benchmark have more or fewer examples than it was published with.

    Args:
        task: the benchmark; others are not known, and nothing is said of them.
        part: that is scored, ``dev`` or ``test``.
        train: what is trained on; nothing is said of none.
        scored: variant or language, or the part itself → what is scored.

    Returns:
        A sentence for each.
    """
    known = {} if task.suite == OWN_SUITE else PUBLISHED_EXAMPLES.get(task.name, {})
    wanted = {name: known.get(name, known.get(part, ())) for name in scored}
    counts = {name: len(examples) for name, examples in scored.items()}
    if train:
        wanted = {"train": known.get("train", ()), **wanted}
        counts["train"] = len(train)
    return [
        f"not the official split: the {name} part has {counts[name]} examples, {task.name}'s as "
        f"published {' or '.join(map(str, sizes))}"
        for name, sizes in wanted.items()
        if sizes and all(abs(counts[name] - size) > MOST_OFF * size for size in sizes)
    ]
