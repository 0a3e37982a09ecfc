"""The linear map through which a student's sentence embeddings are read in its teacher's space.

Shapes: S sequences, N tokens, d width of the student, D of the teacher's embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor, nn

from kdnas.artefact import save_array
from kdnas.corpus.batches import PaddedBatch, pad_batch
from kdnas.corpus.strata import Indices, generator
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.models.batch import Batch
from kdnas.models.pooling import Pooling
from kdnas.models.start.linear import least_squares
from kdnas.models.teacher import TeacherHandle
from kdnas.records import fingerprint
from kdnas.store import MADE_OF, Store

KIND = "teacher-sentences"
FORMAT = 1
SEQUENCES, TOKENS = 2048, 64
"""Sequences that the map is fitted to, and tokens of each: a sentence is seldom longer."""
TOKEN_WEIGHT = 0.01
"""Weight of all tokens beside that of all sequences."""
_SENTENCES = 9  # tells this choice from other choices of sequences
_BATCH = 32
_FILE = "embeddings.npy"


class SentenceMaps:
    """Fits maps to the sequences of a corpus that a teacher has embedded.

    A loss over tokens leaves open what all tokens of a sequence have in common, which is all that
    a sentence embedding is; so the map is fitted to embeddings of sequences. Tokens, of which there
    are more, decide in directions in which sequences differ too little.

    Args:
        teacher: the teacher.
        pooling: how it embeds sentences, in one linear way.
        model: its encoder, on the device.
        corpus: where the sequences come from; drawn by the corpus alone.
        store: keeps the teacher's embeddings.
        device: where everything runs.
    """

    def __init__(
        self,
        teacher: TeacherHandle,
        pooling: Pooling,
        model: nn.Module,
        corpus: TokenizedCorpus,
        store: Store,
        device: str,
    ) -> None:
        self._pooling, self._corpus, self._device = pooling, corpus, device
        drawn = generator(_SENTENCES, corpus.seed).permutation(corpus.train_indices)[:SEQUENCES]
        self._chosen: Indices = drawn[corpus.lengths[drawn].argsort(kind="stable")]
        self._theirs = self._teacher_embeddings(teacher, model, store)

    def fit(self, student: nn.Module, own: Tensor, theirs: Tensor) -> Tensor:
        """Find the map of a student.

        Args:
            student: in eval mode.
            own: (N, d) states of its last layer at the calibration text's tokens.
            theirs: (N, D) the teacher's there.

        Returns:
            W (d, D) of least Σ|e^S·W − e^T|² / S + .01·Σ|h^S·W − h^T|² / N, in float32 on the CPU.
        """
        embedded = self._embeddings(student, Pooling(self._pooling.modes))
        weight = (TOKEN_WEIGHT * len(embedded) / len(own)) ** 0.5
        through = self._pooling.projection
        targets = theirs if through is None else theirs @ through.to(theirs)
        rows = torch.cat([embedded, weight * own])
        return least_squares(rows, torch.cat([self._theirs.to(own), weight * targets])).cpu()

    def _teacher_embeddings(self, teacher: TeacherHandle, model: nn.Module, store: Store) -> Tensor:
        """(S, D), from the store or computed now, for each way to run the teacher anew.

        One thread of a CPU takes too long for so many sequences, and another way has other bits.
        """
        name = fingerprint(
            {
                "format": FORMAT,
                "teacher": teacher.fingerprint,
                "layers": teacher.shape.layers,
                "pooling": [str(self._pooling), self._pooling.variant],
                "corpus": self._corpus.fingerprint,
                "sequences": SEQUENCES,
                "tokens": TOKENS,
                "device": self._device,
                "threads": torch.get_num_threads(),
            }
        )
        if not store.has(KIND, name):
            store.cache_dir.mkdir(parents=True, exist_ok=True)
            with FileLock(store.cache_dir / f".{KIND}-{name}.lock"):
                if not store.has(KIND, name):
                    with store.create(KIND) as draft:
                        found = self._embeddings(model, self._pooling)
                        save_array(draft.folder / _FILE, found.cpu().numpy())
                        made_of = [teacher.fingerprint, self._corpus.fingerprint]
                        draft.publish(name, {"teacher": teacher.ref, MADE_OF: made_of})
        return torch.from_numpy(np.load(store.fetch(KIND, name) / _FILE))

    def _embeddings(self, model: nn.Module, pooling: Pooling) -> Tensor:
        """(S, D) of a model in eval mode, in float32, on the device."""
        found = []
        with torch.no_grad():
            for batch in self._batches():
                states = model(
                    input_ids=batch.input_ids, attention_mask=batch.attention_mask
                ).last_hidden_state
                found.append(pooling(states.float(), batch.attention_mask))
        return torch.cat(found)

    def _batches(self) -> Iterator[Batch]:
        for i in range(0, len(self._chosen), _BATCH):
            padded = shortened(pad_batch(self._corpus, self._chosen[i : i + _BATCH]), TOKENS)
            yield Batch.of(padded.input_ids, padded.attention_mask, device=self._device)


def shortened(padded: PaddedBatch, tokens: int) -> PaddedBatch:
    """Cut the sequences of a batch to so many tokens at most; what ends a sequence stays."""
    lengths = padded.attention_mask.sum(1)
    input_ids = padded.input_ids[:, :tokens].copy()
    longer = np.flatnonzero(lengths > tokens)
    input_ids[longer, -1] = padded.input_ids[longer, lengths[longer] - 1]
    return PaddedBatch(input_ids, padded.attention_mask[:, :tokens])
