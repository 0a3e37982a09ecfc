r"""Are the students worth anything? A linear probe on GLUE SST-2 and CoLA.

The teacher, distilled students and undistilled students of the same architecture are frozen; their
last hidden states, pooled over a sentence's real tokens, go into a logistic regression whose C is
chosen by cross-validation on the training part. Word counts without any encoder, and the larger
class, show what the tasks give away for nothing.

    kdnas full-distill --arch 3,12,288,768,gelu --corpus TEXT --objective hs --output S1
    kdnas full-distill --arch 3,12,288,768,gelu --corpus TEXT --objective minilmv2 --output S2
    python benchmarks/student_quality.py --data-dir GLUE --student hs=S1 --student minilmv2=S2 \
        --undistilled --output docs/results/student_quality

Give both students the same text and steps. GLUE is a folder with `SST-2` and `CoLA` in the
official TSV layout; the official dev sets are the test, or a seeded fifth of the training file
where there is none. A name may be given several times, with students of other seeds. Needs the
extra `bench`. `--fine-tune STEPS` also trains the whole encoder on each task. `--limit 2000` tries
the program.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from named_corpus import source_name
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from kdnas.architecture import Architecture
from kdnas.distill.numerics import autocast, choose_dtype
from kdnas.distill.schedule import linear_warmup_decay
from kdnas.distill.setup import Setup
from kdnas.distill.stages import StagePlan
from kdnas.errors import RequestError
from kdnas.models.teacher import TeacherHandle, load_teacher_model, prepare_teacher
from kdnas.objectives.hidden_state import HiddenState
from kdnas.specs.parts import StudentSpec, TrainingSpec

MAX_LENGTH, BATCH_SIZE = 128, 64
CHOICES_OF_C = (0.01, 0.1, 1.0, 10.0)
FOLDS, RESAMPLES, SPLIT_SEED = 3, 1000, 0
SEEDS = (0, 1, 2)
WARM, RANDOM = "undistilled, warm start", "undistilled, random start"
POOLINGS = ("mean", "first")

Labels = NDArray[np.int64]
Features = NDArray[np.float32]
Metric = Callable[[Labels, Labels], float]


@dataclass(frozen=True)
class Task:
    """One task, read.

    Attributes:
        name: GLUE's name, and its folder's.
        metric: what the score is called.
        train: sentences to train on.
        train_labels: 0 or 1 each.
        test: sentences to test on.
        test_labels: 0 or 1 each.
        official: whether these are the official training and dev sets.
    """

    name: str
    metric: str
    train: list[str]
    train_labels: Labels
    test: list[str]
    test_labels: Labels
    official: bool

    def score(self, truth: Labels, guesses: Labels) -> float:
        """Return the task's metric."""
        return METRICS[self.metric](truth, guesses)


def accuracy(truth: Labels, guesses: Labels) -> float:
    """Return the share of right guesses."""
    return float((truth == guesses).mean())


def matthews(truth: Labels, guesses: Labels) -> float:
    """Return Matthews' correlation of two classes; 0 where one of the two has a single value."""
    deviation = float(truth.std() * guesses.std())
    if deviation == 0:
        return 0.0
    return float((truth * guesses).mean() - truth.mean() * guesses.mean()) / deviation


METRICS: dict[str, Metric] = {"accuracy": accuracy, "Matthews": matthews}
# Task → metric, column of the sentence, column of the label, whether the file has a header.
LAYOUTS = {"SST-2": ("accuracy", 0, 1, True), "CoLA": ("Matthews", 3, 1, False)}


def read_table(path: Path, task: str) -> tuple[list[str], Labels]:
    """Read sentences and labels of a TSV file in the official layout of a task."""
    _, text, label, header = LAYOUTS[task]
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[int(header) :]
    try:
        return [row[text].strip() for row in rows], np.array([int(row[label]) for row in rows])
    except (IndexError, ValueError) as error:
        raise RequestError(
            f"{path} is not in the official layout of {task} ({error}); give GLUE's own TSV file"
        ) from None


def read_task(data_dir: Path, name: str, limit: int) -> Task:
    """Read a task; at most ``limit`` training sentences, drawn by a fixed seed (0 takes all)."""
    train_file, dev_file = data_dir / name / "train.tsv", data_dir / name / "dev.tsv"
    if not train_file.is_file():
        raise RequestError(f"{train_file} is not there; give GLUE's folder with --data-dir")
    train, train_labels = read_table(train_file, name)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(train))
    official = dev_file.is_file()
    if official:
        test, test_labels = read_table(dev_file, name)
    else:
        cut = len(train) // 5
        test, test_labels = [train[i] for i in order[:cut]], train_labels[order[:cut]]
        order = order[cut:]
    kept = order[:limit] if limit else order
    sentences = [train[i] for i in kept]
    return Task(name, LAYOUTS[name][0], sentences, train_labels[kept], test, test_labels, official)


def padded_batches(
    tokenizer: PreTrainedTokenizerBase, sentences: list[str], order: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], dict[str, Tensor]]]:
    """Yield positions and tensors of batches, padded to their longest."""
    for start in range(0, len(order), BATCH_SIZE):
        chosen = order[start : start + BATCH_SIZE]
        yield (
            chosen,
            tokenizer(
                [sentences[i] for i in chosen],
                truncation=True,
                max_length=MAX_LENGTH,
                padding=True,
                pad_to_multiple_of=8,
                return_tensors="pt",
            ),
        )


def pooled(model: nn.Module, batch: dict[str, Tensor], pooling: str) -> Tensor:
    """Return a vector a sentence, (B, D): the mean of real tokens, or the first token."""
    mask = batch["attention_mask"]
    states = model(input_ids=batch["input_ids"], attention_mask=mask).last_hidden_state
    if pooling == "first":
        return states[:, 0].float()
    return (states.float() * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)


def features(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, sentences: list[str], pooling: str
) -> Features:
    """Return the pooled last hidden states of all sentences, in eval mode and float32."""
    by_length = np.argsort([len(s) for s in sentences], kind="stable")
    found = np.empty((len(sentences), model.config.hidden_size), np.float32)  # type: ignore[union-attr,arg-type]
    model.eval()
    with torch.no_grad():
        for chosen, batch in padded_batches(tokenizer, sentences, by_length):
            found[chosen] = pooled(model, batch, pooling).numpy()
    return found


def fit_probe(train: Any, labels: Labels, test: Any, metric: Metric) -> tuple[Labels, float]:
    """Fit a logistic regression; return its guesses for the test part, and the C it chose."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    dense = isinstance(train, np.ndarray)
    probe = make_pipeline(
        StandardScaler() if dense else MaxAbsScaler(), LogisticRegression(max_iter=2000, tol=1e-3)
    )
    search = GridSearchCV(
        probe,
        {"logisticregression__C": CHOICES_OF_C},
        scoring=make_scorer(metric),
        cv=StratifiedKFold(FOLDS, shuffle=True, random_state=SPLIT_SEED),
    )
    search.fit(train, labels)
    return search.predict(test), float(search.best_params_["logisticregression__C"])


def probe_words(task: Task) -> tuple[Labels, float]:
    """Probe counts of words and pairs of words, without any encoder."""
    from sklearn.feature_extraction.text import CountVectorizer

    counts = CountVectorizer(ngram_range=(1, 2), min_df=2, token_pattern=r"\S+", binary=True)
    train = counts.fit_transform(task.train).astype(np.float64)
    return fit_probe(train, task.train_labels, counts.transform(task.test), METRICS[task.metric])


def fine_tune(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    steps: int,
    rate: float,
    seed: int,
    pooling: str,
) -> Labels:
    """Train encoder and a linear layer on a task; return the guesses for its test part."""
    torch.manual_seed(seed)
    model = deepcopy(model).requires_grad_(True).train()
    layer = nn.Linear(model.config.hidden_size, 2)  # type: ignore[union-attr,arg-type]
    parameters = [*model.parameters(), *layer.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01, fused=True)
    rng, dtype = np.random.default_rng(seed), choose_dtype("auto", "cpu")
    epochs = -(-steps * BATCH_SIZE // len(task.train))
    order = np.concatenate([rng.permutation(len(task.train)) for _ in range(epochs)])
    batches = padded_batches(tokenizer, task.train, order[: steps * BATCH_SIZE])
    for step, (chosen, batch) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate * linear_warmup_decay(step, steps, 0.1)
        with autocast("cpu", dtype):
            scores = layer(pooled(model, batch, pooling))
        labels = torch.from_numpy(task.train_labels[chosen])
        nn.functional.cross_entropy(scores.float(), labels).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found = torch.from_numpy(features(model, tokenizer, task.test, pooling))
        return layer(found).argmax(1).numpy()


def bootstrap(task: Task, runs: list[Labels]) -> NDArray[np.float64]:
    """Score the mean of runs on resampled test examples, the same draws for every model."""
    rng = np.random.default_rng(SPLIT_SEED)
    draws = rng.integers(len(task.test), size=(RESAMPLES, len(task.test)))
    truth = task.test_labels
    return np.array([np.mean([task.score(truth[d], g[d]) for g in runs]) for d in draws])


def interval(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 2.5 and 97.5 % quantiles."""
    low, high = np.quantile(scores, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True)
class Contender:
    """A model to judge; several runs of it differ in their seeds.

    Attributes:
        name: what the table calls it.
        folder: of its tokenizer.
        runs: makes the model of each run.
        about: how it was made.
        corpora: source, fingerprint and number of training sequences of each run's text.
    """

    name: str
    folder: Path
    runs: tuple[Callable[[], nn.Module], ...]
    about: str = ""
    corpora: tuple[dict[str, Any], ...] = ()


def undistilled(handle: TeacherHandle, architecture: Architecture, init: str) -> Contender:
    """Students as a distillation starts them, one a seed, without its training."""

    def build(seed: int) -> nn.Module:
        setup = Setup(handle, None, "cpu", "float32", StudentSpec(init=init))  # type: ignore[arg-type]
        plan = StagePlan(HiddenState(), 0, 1, 1)
        return setup.student(architecture, plan, TrainingSpec(steps=1, seed=seed))

    name = WARM if init == "warm" else RANDOM
    runs = tuple(lambda seed=seed: build(seed) for seed in SEEDS)  # type: ignore[misc]
    return Contender(name, handle.folder, runs, f"seeds {', '.join(map(str, SEEDS))}")


def distilled(name: str, folders: list[str]) -> Contender:
    """Students that ``kdnas full-distill`` wrote."""
    handles = [prepare_teacher(folder) for folder in folders]
    runs = tuple(lambda handle=handle: load_teacher_model(handle) for handle in handles)  # type: ignore[misc]
    made = [record(h.folder) for h in handles]
    return Contender(
        name,
        handles[0].folder,
        runs,
        "; ".join(history(*one) if one else "no record of its distillation" for one in made),
        tuple(corpus_of(*one) for one in made if one),
    )


def record(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read what a distillation wrote beside a student: its request, and the run that made it."""
    request, run = folder / "distillation.json", folder / "run.json"
    if not (request.is_file() and run.is_file()):
        return None
    return json.loads(request.read_text("utf-8")), json.loads(run.read_text("utf-8"))


def corpus_of(spec: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """Name the text of a distillation; students of older versions do not know their corpus."""
    known = ("corpus_fingerprint", "corpus_training_sequences")
    return {
        "corpus_source": [source_name(source) for source in spec["corpus"]["source"]],
        **{key: run[key] for key in known if key in run},
    }


def history(spec: dict[str, Any], run: dict[str, Any]) -> str:
    """Say how a student was distilled."""
    training, text = spec["training"], corpus_of(spec, run)
    source = ", ".join(text["corpus_source"])
    if "corpus_fingerprint" in text:
        source += (
            f" ({text['corpus_training_sequences']} training sequences, "
            f"corpus `{text['corpus_fingerprint']}`)"
        )
    length = f"{training['steps']} steps" if training["steps"] else f"{training['epochs']:g} epochs"
    return (
        f"`{spec['architecture']}` from {Path(spec['teacher']['ref']).name}, {length} of "
        f"{training['batch_size']} sequences of at most {spec['corpus']['max_length']} tokens of "
        f"{source}, seed {training['seed']}, held-out relative loss "
        f"{run['losses']['relative']:.3f} at step {run['step']}"
    )


def judge(
    contender: Contender,
    tasks: list[Task],
    pooling: str,
    tuning: tuple[int, float],
) -> dict[str, Any]:
    """Probe, and if wanted fine-tune, all runs of a contender on all tasks."""
    steps, rate = tuning
    tokenizer = AutoTokenizer.from_pretrained(contender.folder, trust_remote_code=False)
    guesses: dict[str, dict[str, list[Labels]]] = {
        kind: {task.name: [] for task in tasks} for kind in ("probe", "fine-tuned")
    }
    chosen: dict[str, list[float]] = {task.name: [] for task in tasks}
    for number, make in enumerate(contender.runs):
        model = make()
        parameters = sum(p.numel() for p in model.parameters())
        for task in tasks:
            train, test = (
                features(model, tokenizer, part, pooling) for part in (task.train, task.test)
            )
            found, c = fit_probe(train, task.train_labels, test, METRICS[task.metric])
            guesses["probe"][task.name].append(found)
            chosen[task.name].append(c)
            # One student needs several seeds of its training; several students have their own.
            for seed in (SEEDS if len(contender.runs) == 1 else (number,)) if steps else ():
                found = fine_tune(model, tokenizer, task, steps, rate, seed, pooling)
                guesses["fine-tuned"][task.name].append(found)
    return {
        "guesses": guesses,
        "c": chosen,
        "parameters": parameters,
        "about": contender.about,
        "corpora": contender.corpora,
    }


def judge_without_encoder(tasks: list[Task]) -> dict[str, dict[str, Any]]:
    """Probe word counts, and guess the larger class."""
    words = {task.name: probe_words(task) for task in tasks}
    larger = {
        t.name: [np.full_like(t.test_labels, np.bincount(t.train_labels).argmax())] for t in tasks
    }
    return {
        "words and word pairs, no encoder": {
            "guesses": {"probe": {name: [found] for name, (found, _) in words.items()}},
            "c": {name: [c] for name, (_, c) in words.items()},
        },
        "larger class": {"guesses": {"probe": larger}, "c": {}},
    }


def summarize(task: Task, runs: list[Labels], base: list[Labels] | None) -> dict[str, Any]:
    """Return score, interval, deviation of runs, and what is gained over a base."""
    scores = [task.score(task.test_labels, guesses) for guesses in runs]
    resampled = bootstrap(task, runs)
    summary: dict[str, Any] = {
        "score": statistics.mean(scores),
        "interval": interval(resampled),
        "runs": scores,
    }
    if base is not None:
        before = [task.score(task.test_labels, guesses) for guesses in base]
        summary["gain"] = summary["score"] - statistics.mean(before)
        summary["gain_interval"] = interval(resampled - bootstrap(task, base))
    return summary


def table(result: dict[str, Any], kind: str) -> str:
    """Write the table of one kind of training."""
    names = list(result["tasks"])
    titles = [
        cell
        for name in names
        for cell in (f"{name}, {result['tasks'][name]['metric']}", "above undistilled")
    ]
    lines = [
        "| model | parameters | " + " | ".join(titles) + " |",
        "|---" * (2 + len(titles)) + "|",
    ]
    for row in result["models"]:
        if not row["scores"].get(kind):
            continue
        cells = []
        for name in names:
            found = row["scores"][kind][name]
            spread = f" ± {statistics.stdev(found['runs']):.3f}" if len(found["runs"]) > 1 else ""
            cells.append(f"{found['score']:.3f}{spread} ({_range(found['interval'])})")
            gained = ""
            if "gain" in found:
                gained = f"{found['gain']:+.3f} ({_range(found['gain_interval'], '+')})"
            cells.append(gained)
        size = f"{row['parameters'] / 1e6:.1f} M" if "parameters" in row else ""
        lines.append(f"| {row['name']} | {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _range(pair: tuple[float, float], sign: str = "") -> str:
    return " … ".join(f"{value:{sign}.3f}" for value in pair)


def report(result: dict[str, Any]) -> str:
    """Write the Markdown page."""
    splits = "; ".join(
        f"{name}: {t['train']} training and {t['test']} test sentences, "
        + ("the official dev set" if t["official"] else "**not the official split**")
        for name, t in result["tasks"].items()
    )
    made = "\n".join(
        f"- {row['name']}: {row['about']}" for row in result["models"] if row.get("about")
    )
    tuned = ""
    if result["fine_tune_steps"]:
        tuned = f"""
## Fine-tuned

The whole encoder and a linear layer, {result["fine_tune_steps"]} steps of {BATCH_SIZE} sentences,
AdamW at a peak of {result["fine_tune_rate"]:g}; a model of one run is trained with seeds
{", ".join(map(str, SEEDS))}.

{table(result, "fine-tuned")}
"""
    pooling = {"mean": "mean of the last hidden states", "first": "first token's last hidden state"}
    return f"""# What the students are worth

A linear probe on frozen encoders: the {pooling[result["pooling"]]}, standardised, into a logistic
regression with C of {", ".join(f"{c:g}" for c in CHOICES_OF_C)} by {FOLDS}-fold cross-validation on
the training part. {splits}. Training sentences are drawn by a fixed seed where there are more. In
brackets 95 % intervals by {RESAMPLES} bootstraps over the test sentences; ± is the deviation of
runs with different seeds. The columns beside give the gain over `{WARM}`, on the same resampled
sentences. The probe itself draws nothing but its folds, which are the same for every model.

{table(result, "probe")}
{tuned}
{made}

{result["minutes"]:.0f} minutes on {result["threads"]} of {os.cpu_count()} cores. Made with
`{result["command"]}`; the program's head shows how the students are made.
"""


def command(arguments: argparse.Namespace) -> str:
    """Return the command line, without the folders of this machine."""
    words = ["python benchmarks/student_quality.py --data-dir GLUE"]
    words += [f"--student {pair.partition('=')[0]}=FOLDER" for pair in arguments.student]
    words += ["--undistilled"] if arguments.undistilled else []
    words += [f"--arch {arguments.arch} --limit {arguments.limit} --pooling {arguments.pooling}"]
    if arguments.fine_tune:
        words.append(
            f"--fine-tune {arguments.fine_tune} --fine-tune-rate {arguments.fine_tune_rate:g}"
        )
    return " ".join(words)


def students_of(pairs: list[str]) -> dict[str, list[str]]:
    """Sort NAME=FOLDER pairs by name."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, folder = pair.partition("=")
        if not (name and equals and folder):
            raise RequestError(f"--student {pair!r} is not NAME=FOLDER, such as hs=students/one")
        found.setdefault(name, []).append(folder)
    return found


def main() -> None:
    """Run the benchmark and write its table and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="with SST-2 and CoLA in it")
    parser.add_argument("--student", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--undistilled", action="store_true", help="add untrained students")
    parser.add_argument("--arch", default="3,12,288,768,gelu", help="of the undistilled students")
    parser.add_argument("--teacher", default="minilm")
    parser.add_argument("--limit", type=int, default=10_000, help="training sentences; 0: all")
    parser.add_argument("--pooling", choices=POOLINGS, default="mean")
    parser.add_argument("--fine-tune", type=int, default=0, metavar="STEPS")
    parser.add_argument("--fine-tune-rate", type=float, default=1e-4)
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        result = compare(arguments)
    except RequestError as error:
        parser.exit(2, f"error: {error}\n")
    result["minutes"] = (time.monotonic() - began) / 60
    text = report(result)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.with_suffix(".md").write_text(text)
        arguments.output.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Judge all contenders and set their scores side by side."""
    tasks = [read_task(arguments.data_dir, name, arguments.limit) for name in LAYOUTS]
    handle = prepare_teacher(arguments.teacher)
    contenders = [Contender("teacher", handle.folder, (lambda: load_teacher_model(handle),))]
    contenders += [distilled(*item) for item in students_of(arguments.student).items()]
    if arguments.undistilled:
        architecture = Architecture.parse(arguments.arch)
        contenders += [undistilled(handle, architecture, init) for init in ("warm", "random")]
    found: dict[str, dict[str, Any]] = {}
    for contender in contenders:
        print(f"judging {contender.name}", flush=True)
        tuning = (arguments.fine_tune, arguments.fine_tune_rate)
        found[contender.name] = judge(contender, tasks, arguments.pooling, tuning)
    print("judging without an encoder", flush=True)
    found |= judge_without_encoder(tasks)
    base = found.get(WARM, {}).get("guesses", {})
    return {
        "tasks": {
            t.name: {
                "metric": t.metric,
                "train": len(t.train),
                "test": len(t.test),
                "official": t.official,
            }
            for t in tasks
        },
        "models": [
            {
                "name": name,
                **{key: value for key, value in judged.items() if key != "guesses"},
                "scores": {
                    kind: {
                        t.name: summarize(
                            t,
                            guesses[t.name],
                            base.get(kind, {}).get(t.name) if name != WARM else None,
                        )
                        for t in tasks
                    }
                    for kind, guesses in judged["guesses"].items()
                    if all(guesses.values())
                },
            }
            for name, judged in found.items()
        ],
        "command": command(arguments),
        "pooling": arguments.pooling,
        "fine_tune_steps": arguments.fine_tune,
        "fine_tune_rate": arguments.fine_tune_rate,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    main()
