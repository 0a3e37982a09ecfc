"""The page of the study of readings: its figures, its words and its picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
from reading_measures import LEAST, RESAMPLES, Interval, agreement, alike, kept, num_best

from kdnas.architecture import Architecture
from kdnas.tabular.table import Table

SWEPT: Final = 200
"""States that are to be read on the way."""
LONGEST: Final = 960
"""Steps of the longest schedule that is to be read."""
BEST: Final = 10
WITHIN: Final = (10, 25, 50)
DRAWN_WITHIN: Final = 25
"""Per cent of the picture, which shows one of these shares."""
FULL: Final = "full"
"""Stands for the full distillations beside the lengths of schedules."""

Values = Mapping[Architecture, float]


@dataclass(frozen=True)
class FullRun:
    """A full distillation: its best held-out relative loss, and what all have in common."""

    architecture: Architecture
    seed: int
    relative: float
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Ranking:
    """What ranks states; the lower its value, the better.

    Attributes:
        words: what the page calls it.
        values: of the states for which there is one.
        step: after which it is read; None of a rule of thumb.
        schedule: of the training that it is a reading of.
    """

    words: str
    values: Values
    step: int | None = None
    schedule: int | None = None


def readings(table: Table, schedule: int, step: int, *, of_all_seeds: bool = False) -> Values:
    """Losses of a reading: of the first seed of each state, or the mean over its seeds.

    Whoever reads a student early has one seed; what it is worth is the mean.
    """
    found: dict[Architecture, dict[int, float]] = defaultdict(dict)
    for row in table.rows:
        if (row.key.schedule, row.key.step) == (schedule, step):
            found[row.key.architecture][row.key.seed] = row.loss
    return {
        state: mean(own.values()) if of_all_seeds else own[min(own)] for state, own in found.items()
    }


def early(table: Table, schedule: int | None) -> list[Ranking]:
    """All that is read before the end of a schedule, by step; None takes all readings."""
    places = {(row.key.step, row.key.schedule) for row in table.rows if row.key.schedule}
    starts: dict[Architecture, float] = {}
    found = []
    for step, length in sorted(places):
        if step == 0:  # whatever the schedule: it has not begun
            starts = {**readings(table, length, 0), **starts}
        elif schedule is None or (step < schedule and length <= schedule):
            words = f"after {step} of {length} steps"
            found.append(Ranking(words, readings(table, length, step), step, length))
    return [Ranking("before the first step", starts, 0, None), *found] if starts else found


def rules(table: Table) -> list[Ranking]:
    """What a user would rank by without any reading and any latency: larger is better."""
    sizes = {a: s.params_millions for a, s in table.states.items() if s.params_millions is not None}
    return [
        Ranking("by parameters (rule of thumb)", {a: -size for a, size in sizes.items()}),
        Ranking(
            "by layers × hidden (rule of thumb)",
            {a: float(-a.layers * a.hidden) for a in table.states},
        ),
        Ranking(
            "by layers × hidden × ⁶√(intermediate × heads) (rule of thumb)",
            {a: -a.layers * a.hidden * (a.intermediate * a.heads) ** (1 / 6) for a in table.states},
        ),
    ]


def compare(ranking: Ranking, truth: Values, table: Table) -> dict[str, Any]:
    """How well a ranking agrees with the truth: over all states, and where latency is alike."""
    states = sorted((a for a in truth if a in ranking.values), key=str)
    first, last = [ranking.values[a] for a in states], [truth[a] for a in states]
    whole = [np.arange(len(states))] if len(states) >= LEAST else []
    groups = alike([table.states[a].latency_ms for a in states])
    return {
        "words": ranking.words,
        "step": ranking.step,
        "schedule": ranking.schedule,
        "states": len(states),
        "whole": _figures(first, last, whole),
        "alike": _figures(first, last, groups),
    }


def _figures(first: Sequence[float], last: Sequence[float], groups: Any) -> dict[str, Any] | None:
    if not groups:
        return None
    return {
        "groups": len(groups),
        "best": sum(num_best(len(own), BEST) for own in groups),
        "spearman": agreement(first, last, groups, "spearman"),
        "kendall": agreement(first, last, groups, "kendall"),
        "kept": {str(share): kept(first, last, groups, BEST, share) for share in WITHIN},
    }


def schedules(table: Table, least: int = 0) -> list[int]:
    """Lengths of the trainings that have come to their end, the longest first.

    Args:
        table: with the readings.
        least: step from which on they were read before it; 1 leaves out those of which only the
            start was read.
    """
    places = {(row.key.schedule, row.key.step) for row in table.rows}
    return sorted(
        {
            length
            for length, step in places
            if least <= step < length and (length, length) in places
        },
        reverse=True,
    )


def page(
    table: Table, full: Sequence[FullRun], full_wanted: int, output: Path | None
) -> tuple[str, dict[str, Any]]:
    """The page and its numbers.

    Args:
        table: with the readings.
        full: distillations that are finished.
        full_wanted: how many there are to be.
        output: of the page, without an ending.
    """
    sections = {}
    for length in schedules(table):
        truth = readings(table, length, length, of_all_seeds=True)
        ranked = [*early(table, length), *rules(table)]
        sections[str(length)] = [compare(one, truth, table) for one in ranked]
    by_seed: dict[int, dict[Architecture, float]] = defaultdict(dict)
    for one in full:
        by_seed[one.seed][one.architecture] = one.relative
    if by_seed:
        known = {a for own in by_seed.values() for a in own}
        truth = {a: mean(own[a] for own in by_seed.values() if a in own) for a in known}
        ranked = [*early(table, None), *rules(table)]
        sections[FULL] = [compare(one, truth, table) for one in ranked]
    numbers: dict[str, Any] = {
        "card": dict(table.card),
        "num_states_of_space": len(table.space),
        "sections": sections,
        "full": [
            {"architecture": str(one.architecture), "seed": one.seed, "relative": one.relative}
            for one in full
        ],
        "about_full": dict(full[0].about) if full else None,
        "between_seeds": _between_seeds(by_seed, table),
    }
    lines = [
        "# What an early reading of a student foretells",
        "",
        *_head(table),
        "",
        "## What it means",
        "",
        *_meaning(numbers),
        "",
        "## What is not there yet",
        "",
        *_missing(table, full, full_wanted),
        "",
        *([f"![rank correlations and shares kept]({output.name}.png)", ""] if output else []),
        *_how_to_read(),
        "",
    ]
    for name, rows in sections.items():
        lines += [*_section(name, rows, numbers), ""]
    lines += ["Made with `python benchmarks/reading_study.py`.", ""]
    return "\n".join(lines), numbers


def _between_seeds(
    by_seed: Mapping[int, Mapping[Architecture, float]], table: Table
) -> dict[str, Any] | None:
    """How well one seed of the full distillation agrees with the next."""
    if len(by_seed) < 2:
        return None
    (one, first), (other, second) = sorted(by_seed.items())[:2]
    return compare(Ranking(f"seed {one} of it, beside seed {other}", first), second, table)


def _head(table: Table) -> Iterator[str]:
    card, seeds = table.card, sorted({row.key.seed for row in table.rows})
    context = card["context"]
    proxy = context["proxy"]
    yield (
        f"Students of the {len(table.space)} states of the scaled space of `{card['teacher']}`, "
        f"drawn, cut from their teacher and trained by mini-KD on {', '.join(card['corpus'])} "
        f"(`{context['corpus']}`): objective `{context['objective']['name']}`, the last layers "
        f"with a weight of {context['objective'].get('last_weight', 1):g}, {proxy['batch_size']} "
        f"sequences a step, peak rate {proxy['learning_rate']:g}, {context['dtype']}; "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}. A reading is the "
        f"held-out relative loss on {proxy['held_out']} sequences. On the way to the end of a "
        "training its learning rate is high; at the end, as after 60 of 60 steps, it is 0."
    )


def _how_to_read() -> Iterator[str]:
    yield (
        "ρ is Spearman's, τ Kendall's (τ-b), with 95 % intervals by the percentile bootstrap over "
        f"states ({RESAMPLES} draws). *Like latency*: states in up to five groups of the same size "
        f"by latency, at least {LEAST} in each; ranked within their group, the mean over the "
        "groups, drawn within them. The last columns are for halving: of the best "
        f"{BEST} % in the end, how many are among the best {', '.join(map(str, WITHIN[:-1]))} and "
        f"{WITHIN[-1]} % by what ranks them; with like latency, of each group's. Chance alone "
        "has as many per cent as it goes on with. A rule of thumb takes the larger for better; "
        "the last one is what searches begin with, its root chosen on the end of 60 steps. A "
        "reading of several seeds is that of the first, and the end the mean over them."
    )


def _section(name: str, rows: list[dict[str, Any]], numbers: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Beside {_truth(name)}"
    yield ""
    if name == FULL:
        about = numbers["about_full"]
        yield (
            f"Distillations with the preset `laptop`, {about['steps']} steps of "
            f"{about['batch_size']} sequences, peak rate {about['learning_rate']:g}, the best "
            f"held-out relative loss on {about['held_out']} sequences; the mean over seeds "
            f"{', '.join(map(str, sorted({one['seed'] for one in numbers['full']})))}, as far as "
            "they are there."
        )
        between = numbers["between_seeds"]
        if between is not None and between["whole"] is not None:
            yield ""
            yield (
                f"Two seeds of it rank {between['states']} states alike with ρ "
                f"{_interval(between['whole']['spearman'])}: more cannot be foretold."
            )
        yield ""
    shares = " | ".join(f"{share} %" for share in WITHIN)
    for key, words in (("whole", "over all states"), ("alike", "with like latency")):
        known = [row for row in rows if row[key] is not None]
        if not known:
            most = max(row["states"] for row in rows)
            yield f"Too few states for figures {words}: {most}."
            yield ""
            continue
        groups = sorted({row[key]["groups"] for row in known})
        heading = words if key == "whole" else f"{words}, {' or '.join(map(str, groups))} groups"
        yield f"| {heading} | states | ρ | τ | of the best {BEST} % | among the best {shares} |"
        yield "|---" * (5 + len(WITHIN)) + "|"
        for row in known:
            found = row[key]
            cells = [
                row["words"],
                str(row["states"]),
                _interval(found["spearman"]),
                _interval(found["kendall"]),
                str(found["best"]),
                *(f"{100 * found['kept'][str(share)]:.0f} %" for share in WITHIN),
            ]
            yield f"| {' | '.join(cells)} |"
        yield ""


def _truth(name: str) -> str:
    return "the full distillation" if name == FULL else f"the end of {name} steps"


def _interval(found: Interval | None) -> str:
    """A correlation with its interval; all states may be the same."""
    return "–" if found is None else f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"


def _meaning(numbers: Mapping[str, Any]) -> Iterator[str]:
    """Say of each truth what was found, in plain words and with the figures."""
    sections = numbers["sections"]
    if not any(row["whole"] for rows in sections.values() for row in rows):
        yield "There are too few states so far to say anything."
    for name, rows in sections.items():
        known = [row for row in rows if row["whole"] is not None and row["whole"]["spearman"]]
        read = [row for row in known if row["step"] is not None]
        if not read:
            continue
        states = max(row["states"] for row in read)
        yield f"- **{_truth(name).capitalize()}, {states} states.**"
        yield f"  - {_ranks(known)}"
        if any(row["alike"] for row in read):
            yield f"  - {_ranks(known, 'alike')}"
        yield f"  - {_halving(read)}"


def _ranks(rows: Sequence[Mapping[str, Any]], key: str = "whole") -> str:
    known = [row for row in rows if row[key] is not None and row[key]["spearman"] is not None]
    shown = [
        *_ends([row for row in known if row["step"] is not None]),
        *(row for row in known if row["step"] is None),
    ]
    told = [f"{_interval(row[key]['spearman'])} {row['words']}" for row in shown]
    where = "Over all states" if key == "whole" else "Among states of like latency"
    return f"{where} the rank correlation with it is {', '.join(told)}."


def _ends(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first reading and the last one."""
    return [rows[0], rows[-1]] if len(rows) > 1 else list(rows)


def _halving(rows: Sequence[Mapping[str, Any]]) -> str:
    """What is left of the best ones after a halving by the first and by the last reading."""
    told = []
    for row in _ends(rows):
        shares = f"{_half(row['whole'])} over all states"
        if row["alike"] is not None:
            shares += f", {_half(row['alike'])} where latency is alike"
        told.append(f"{row['words']} {shares}")
    return f"The better half holds of the best {BEST} %: {'; '.join(told)}."


def _half(found: Mapping[str, Any]) -> str:
    return f"{100 * found['kept'][str(WITHIN[-1])]:.0f} %"


def _missing(table: Table, full: Sequence[FullRun], full_wanted: int) -> Iterator[str]:
    """Say what there is to be and is not."""
    lengths = schedules(table, least=1)
    missing = []
    ended = {length: len(readings(table, length, length)) for length in lengths}
    for length in sorted(ended, key=lambda one: ended[one])[-1:]:
        trained = ended[length]
        if trained < SWEPT:
            missing.append(
                f"- Of {SWEPT} states {trained} have been read on the way to the end of {length} "
                "steps so far."
            )
    if not lengths:
        missing.append(
            f"- None of {SWEPT} states has been read on the way to the end of a training so far."
        )
    if LONGEST not in lengths:
        missing.append(f"- Nothing is read of trainings of {LONGEST} steps.")
    if len(full) < full_wanted:
        done = f"{len(full)} are" if len(full) > 1 else "one is" if full else "none is"
        missing.append(f"- Of {full_wanted} full distillations {done} finished.")
    if len({row.key.seed for row in table.rows}) == 1:
        missing.append(
            "- Readings are of one seed, so that the end of a schedule shares its luck with the "
            "readings on the way to it."
        )
    missing.append("- Other teachers, texts, objectives and starts were not looked at.")
    yield from missing


def draw(numbers: Mapping[str, Any], path: Path) -> None:
    """Draw rank correlations and what is kept of the best, for each reading and rule of thumb.

    Args:
        numbers: of the page.
        path: of the PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    series = {
        f"{_truth(name)}, {where}": {
            _tick(row): row[key] for row in rows if row[key] is not None and row[key]["spearman"]
        }
        for name, rows in numbers["sections"].items()
        for key, where in (("whole", "all states"), ("alike", "like latency"))
    }
    known = {place for found in series.values() for place in found}
    ticks = {place: n for n, place in enumerate(sorted(known))}
    for number, (words, found) in enumerate(series.items()):
        apart = 0.08 * (number - (len(series) - 1) / 2)
        places = [ticks[place] + apart for place in found]
        middle, low, high = np.array([one["spearman"] for one in found.values()]).reshape(-1, 3).T
        shares = [one["kept"][str(DRAWN_WITHIN)] for one in found.values()]
        # A colour a truth: full circles over all states, open squares where latency is alike.
        truth, is_alike = divmod(number, 2)
        look = {"color": f"C{truth}", "markersize": 5, "markerfacecolor": "w" if is_alike else None}
        mark = "s" if is_alike else "o"
        upper.errorbar(places, middle, [middle - low, high - middle], fmt=mark, label=words, **look)
        lower.plot(places, shares, mark, **look)
    upper.set(ylabel="Spearman's ρ (95 % interval)", title="Rank correlation")
    title = f"Of the best {BEST} %, among the best {DRAWN_WITHIN} % by what ranks them"
    lower.set(ylabel="share", ylim=(0, 1.03), title=title)
    lower.set_xticks(list(ticks.values()), [words for *_, words in ticks], fontsize="small")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)


def _tick(row: Mapping[str, Any]) -> tuple[int, int, str]:
    """Where a row stands in the picture, rules of thumb before the readings, and its words."""
    if row["step"] is None:
        words = row["words"].removeprefix("by ").removesuffix(" (rule of thumb)")
        return -1, 0, words.replace(" × ", "\n× ")
    words = f"step {row['step']}" + (f"\nof {row['schedule']}" if row["schedule"] else "")
    return row["step"], row["schedule"] or 0, words
