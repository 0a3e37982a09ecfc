"""The teacher's states on some text of the corpus: collected once, kept in the store."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock
from torch import nn

from kdnas.corpus.batches import pad_batch
from kdnas.corpus.strata import Indices, generator
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.numerics import Device, num_threads
from kdnas.errors import CorpusError
from kdnas.models.batch import Batch
from kdnas.models.families import family_of
from kdnas.models.start.states import FORMAT, TeacherStates, collect_states
from kdnas.models.teacher import TeacherHandle, load_teacher_model
from kdnas.records import TeacherShape, fingerprint
from kdnas.store import MADE_OF, Store

KIND = "teacher-states"
_CALIBRATION = 7  # tells this choice from others; a training of seed 7 draws alike
_SEQUENCES = 32  # of a batch
TOKENS_A_CHANNEL = 2
"""Calibration tokens that it takes at least for each channel of the teacher: with fewer, maps are
fitted to chance."""


def calibration_problem(teacher: TeacherShape, available: int, asked: int) -> str | None:
    """Say that there are too few tokens to fit a start to this teacher, or None.

    Args:
        teacher: the teacher.
        available: tokens of the training text.
        asked: how many of them are to be taken.
    """
    needed = TOKENS_A_CHANNEL * teacher.hidden
    if min(available, asked) >= needed:
        return None
    there = (
        f"there are {available}"
        if available < needed
        else f"student.calibration_tokens asks for {asked}"
    )
    return (
        f"a start that is fitted to the teacher takes at least {needed} tokens of training "
        f"text ({TOKENS_A_CHANNEL} for each of the teacher's {teacher.hidden} channels), and "
        f"{there}"
    )


def training_tokens(corpus: TokenizedCorpus) -> int:
    """Tokens of all sequences that may be trained on."""
    return int(corpus.lengths[corpus.train_indices].sum())


def calibration_states(
    teacher: TeacherHandle,
    model: nn.Module,
    corpus: TokenizedCorpus,
    tokens: int,
    store: Store,
    device: Device,
) -> TeacherStates:
    """Return the teacher's states on a piece of the corpus, collected now or before.

    The sequences are drawn from the training split by the corpus alone, the same for every seed
    of a training. Processes of one machine that want the same states wait for the first of them.
    It collects with one thread of the CPU: in whatever way those run that take them later, they
    find the same bits.

    Args:
        teacher: the teacher.
        model: its encoder, whole, on the device.
        corpus: where the text comes from.
        tokens: how many to take, or a little more.
        store: keeps the states.
        device: where that is.

    Raises:
        CorpusError: the corpus has too few tokens.
        TeacherError: the teacher's states are not finite, or constant.
        StoreError: they cannot be written.
    """
    name = fingerprint(
        {
            "format": FORMAT,
            "teacher": teacher.fingerprint,
            "layers": teacher.shape.layers,
            "corpus": corpus.fingerprint,
            "tokens": tokens,
        }
    )
    if not store.has(KIND, name):
        if problem := calibration_problem(teacher.shape, training_tokens(corpus), tokens):
            raise CorpusError(
                f"{problem}; give more text or calibration_tokens, or choose student.init warm"
            )
        store.cache_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(store.cache_dir / f".{KIND}-{name}.lock"):
            if not store.has(KIND, name):
                with store.create(KIND) as draft:
                    _collect(teacher, model, corpus, tokens, device, draft.folder)
                    made_of = [teacher.fingerprint, corpus.fingerprint]
                    about = {"teacher": teacher.ref, "tokens": tokens, MADE_OF: made_of}
                    draft.publish(name, about)
    return TeacherStates(store.fetch(KIND, name))


def refuse_broken_teacher(
    teacher: TeacherHandle, model: nn.Module, corpus: TokenizedCorpus, tokens: int, device: Device
) -> None:
    """Look at the teacher's states on text to which nothing is fitted; keep nothing.

    Raises:
        TeacherError: they are not finite, or constant.
    """
    with TemporaryDirectory() as folder:
        _collect(teacher, model, corpus, tokens, device, Path(folder))


def calibration_sequences(corpus: TokenizedCorpus, tokens: int) -> Indices:
    """Sequences of the training split that hold so many tokens together, shortest first."""
    order = generator(_CALIBRATION, 0).permutation(corpus.train_indices)
    enough = int((corpus.lengths[order].cumsum() < tokens).sum()) + 1
    chosen = order[:enough]
    by_length: Indices = chosen[corpus.lengths[chosen].argsort(kind="stable")]
    return by_length


def _collect(
    teacher: TeacherHandle,
    model: nn.Module,
    corpus: TokenizedCorpus,
    tokens: int,
    device: Device,
    folder: Path,
) -> None:
    on_cpu = model if device == "cpu" else load_teacher_model(teacher)
    chosen = calibration_sequences(corpus, tokens)
    padded = (
        pad_batch(corpus, chosen[i : i + _SEQUENCES]) for i in range(0, len(chosen), _SEQUENCES)
    )
    batches = (Batch.of(p.input_ids, p.attention_mask, device="cpu") for p in padded)
    with num_threads(1):
        collect_states(
            on_cpu,
            family_of(teacher.shape.model_type),
            batches,
            folder,
            teacher.ref,
            longest=teacher.longest_sequence,
        )
