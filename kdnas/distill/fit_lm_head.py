"""Fitting a masked-LM head to a frozen encoder that has none.

Encoders such as sentence models come without the head that output distributions need. The head is
small, and its decoder is the teacher's own table of word embeddings, so a few hundred steps on the
corpus give one. It is only as good as what the encoder still knows of masked tokens, which the
held-out accuracy tells.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas import ENGINE_VERSION
from kdnas.allocator import keep_freed_memory
from kdnas.corpus.batches import BatchPlan, PaddedBatch, eval_batches, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.held_out import HELD_OUT_BATCH
from kdnas.distill.numerics import Device, autocast, derived_seed, num_threads
from kdnas.distill.schedule import linear_warmup_decay
from kdnas.distill.setup import Setup
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.errors import TrainingError
from kdnas.models.batch import MaskedTokens
from kdnas.models.lm_head import MaskedLMHead, save_lm_head
from kdnas.models.taps import Activations, TapPoints
from kdnas.models.teacher import LM_HEAD_KIND, TeacherHandle
from kdnas.records import fingerprint
from kdnas.specs.parts import StudentSpec
from kdnas.store import Store

BATCH_SIZE = 32
LEARNING_RATE = 2e-3
WARMUP_FRACTION = 0.1
BETAS = (0.9, 0.98)
HELD_OUT = 512
COUNTED_SEQUENCES = 100_000
PROGRESS_SECONDS = 0.5
_FITTING, _READING = 6, 7  # tell these hidings of tokens from those of other trainings


@dataclass(frozen=True, slots=True)
class MaskedLMReading:
    """How well masked tokens are guessed on the held-out split.

    Attributes:
        loss: cross entropy in nats a masked token.
        accuracy: share of the masked tokens whose score is the largest.
    """

    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class FittedHead:
    """A masked-LM head in the store.

    Attributes:
        fingerprint: of the artefact, of kind ``lm-head``.
        before: held-out reading of the untrained head, which knows how often each token occurs.
        after: held-out reading of the trained head.
        seconds: of the fitting; 0 if the head was there already.
    """

    fingerprint: str
    before: MaskedLMReading
    after: MaskedLMReading
    seconds: float


def fit_lm_head(
    teacher: TeacherHandle,
    corpus: TokenizedCorpus,
    steps: int,
    store: Store,
    device: Device,
    dtype: str,
    *,
    threads: int = 1,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> FittedHead:
    """Train a masked-LM head on a teacher's last hidden state, or take it up if it is there.

    The encoder is frozen and run without gradient; the decoder is tied to its word embeddings.
    The bias starts at the logarithm of the tokens' frequencies. What decides the head (teacher,
    corpus, steps, seed, number format) is the key under which the store remembers it.

    Args:
        teacher: the teacher.
        corpus: the tokenised corpus.
        steps: optimiser steps, of 32 sequences each.
        store: where the head goes.
        device: where it runs.
        dtype: format of the forward passes.
        threads: intra-op threads on a CPU.
        seed: of the head's start, the order of the batches and the masked places.
        on_progress: is told steps made and all steps, twice a second; what it raises ends the
            fitting, and then nothing is stored.

    Raises:
        TeacherError: the teacher does not load, or its tokenizer has no mask token.
        CorpusError: the corpus is smaller than a batch.
        TrainingError: the loss stopped being finite.
        StoreError: the head cannot be written.
    """
    key = fingerprint(
        {
            "teacher": teacher.fingerprint,
            "corpus": corpus.fingerprint,
            "steps": steps,
            "seed": seed,
            "dtype": dtype,
            "recipe": [BATCH_SIZE, LEARNING_RATE, WARMUP_FRACTION, BETAS, ENGINE_VERSION],
        }
    )
    if known := store.recall(LM_HEAD_KIND, key):
        about = store.manifest(LM_HEAD_KIND, known).metadata
        before, after = (MaskedLMReading(**about[when]) for when in ("before", "after"))
        return FittedHead(known, before, after, 0.0)
    started = time.monotonic()
    keep_freed_memory()
    with num_threads(threads):
        fitting = _Fitting(teacher, corpus, steps, device, dtype, seed)
        before = fitting.read()
        fitting.train(on_progress)
        after = fitting.read()
    if not math.isfinite(after.loss):
        raise TrainingError(
            f"the masked-LM head of teacher {teacher.ref!r} diverged: its held-out loss is "
            f"{after.loss} after {steps} steps; try `dtype: float32`"
        )
    about = {
        "teacher": teacher.fingerprint,
        "corpus": corpus.fingerprint,
        "steps": steps,
        "before": asdict(before),
        "after": asdict(after),
    }
    with store.create(LM_HEAD_KIND) as draft:
        save_lm_head(fitting.head, draft.folder)
        name = draft.publish(None, about)
    store.remember(LM_HEAD_KIND, key, name)
    return FittedHead(name, before, after, time.monotonic() - started)


class _Fitting:
    """Teacher, head and batches in memory."""

    def __init__(
        self,
        teacher: TeacherHandle,
        corpus: TokenizedCorpus,
        steps: int,
        device: Device,
        dtype: str,
        seed: int,
    ) -> None:
        self._setup = Setup(teacher, None, device, dtype, StudentSpec())
        self._corpus, self._steps, self._seed = corpus, steps, seed
        self._device, self._dtype, self._layer = device, dtype, teacher.shape.layers
        self._batches = BatchPlan(corpus.lengths, corpus.train_indices, BATCH_SIZE, seed)
        head = MaskedLMHead.of_config(teacher.config, seed=derived_seed("lm head", seed))
        if head.bias.requires_grad:
            with torch.no_grad():
                head.bias.copy_(log_frequencies(corpus, len(head.bias)))
        self.head = head.to(device)

    def train(self, on_progress: Callable[[int, int], None]) -> None:
        """Make all steps."""
        learned = [p for p in self.head.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            learned, lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0, fused=True
        )
        shown = -math.inf
        with self._pass() as run:
            for step in range(self._steps):
                rate = LEARNING_RATE * linear_warmup_decay(step, self._steps, WARMUP_FRACTION)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                padded = pad_batch(self._corpus, self._batches.batch_indices(step))
                with autocast(self._device, self._dtype):
                    scores, masked = self._scores(run, padded, self._seed, _FITTING, step)
                    losses = F.cross_entropy(scores, masked.labels, reduction="none")
                loss = (losses * masked.weights).sum() / masked.weights.sum().clamp_min(1)
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(learned, 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if time.monotonic() - shown >= PROGRESS_SECONDS or step + 1 == self._steps:
                    shown = time.monotonic()
                    on_progress(step + 1, self._steps)

    def read(self) -> MaskedLMReading:
        """Read the held-out loss and accuracy, in float32."""
        corpus = self._corpus
        batches = eval_batches(corpus, HELD_OUT_BATCH, HELD_OUT)
        sums = torch.zeros(3, dtype=torch.float64, device=self._device)
        with self._pass() as run, torch.no_grad():
            for number, padded in enumerate(batches):
                scores, masked = self._scores(
                    run, padded, corpus.seed, _READING, number, exact=True
                )
                losses = F.cross_entropy(scores, masked.labels, reduction="none")
                right = scores.argmax(1) == masked.labels
                found = torch.stack([losses, right.float(), torch.ones_like(losses)])
                sums += (found * masked.weights).double().sum(1)
        loss, right_ones, places = sums.tolist()
        return MaskedLMReading(loss / places, right_ones / places)

    def _pass(self) -> TeacherPass:
        points = TapPoints(hidden=frozenset({self._layer}))
        return TeacherPass(self._setup.model, self._setup.family, points, self._device, self._dtype)

    def _scores(
        self, run: TeacherPass, padded: PaddedBatch, *seed: int, exact: bool = False
    ) -> tuple[Tensor, MaskedTokens]:
        """Scores (M, V) at the masked places, and these places."""
        batch = self._setup.batch(self._setup.masking(padded, *seed))
        masked = batch.masked
        assert masked is not None  # the masking gives labels
        states: Activations = run(batch, exact=exact)
        hidden = states.hidden[self._layer].flatten(0, 1).index_select(0, masked.rows)
        return self.head(hidden, states.word_embeddings), masked


def log_frequencies(corpus: TokenizedCorpus, vocab_size: int) -> Tensor:
    """Logarithms of the shares of each token in the training split, (V,) in float32.

    The first hundred thousand sequences are counted; each count begins at 1.
    """
    counted = corpus.train_indices[:COUNTED_SEQUENCES]
    ids = np.concatenate([corpus.tokens(index) for index in counted])
    counts = 1 + np.bincount(ids, minlength=vocab_size)
    return torch.from_numpy(np.log(counts / counts.sum())).float()
