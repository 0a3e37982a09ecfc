"""A Bi-LSTM or a gated CNN with a task's head, and its folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from kdnas.errors import TeacherError
from kdnas.models.config_file import CONFIG_FILE
from kdnas.models.making import MAKING_MODELS
from kdnas.models.precise import PreciseLinear
from kdnas.models.sequence.config import SequenceConfig, read_config
from kdnas.models.sequence.encoders import ENCODERS
from kdnas.models.sequence.pooling import AttentionSum

WEIGHTS_FILE = "model.safetensors"


class SequenceClassifier(nn.Module):
    """Frozen word embeddings, layers, attention sum, and a linear head.

    ::

        x⁰ = E[ids]                              the teacher's table, which is not trained
        x¹ … x^M = layers(x⁰)                    BiLSTM or GatedCNN
        logits = W · attention_sum(x^M) + b

    Wu et al. 2021, §5.5, call these students feature-based and do not say whose features they are;
    of what a Transformer teacher has, we take its table of word embeddings as it is before
    positions, token types and layer norm are added: 768 wide of BERT-base, 384 of MiniLM. A pair of
    texts is read as one sequence (App. A.2), with the teacher's separators.

    Made by :meth:`from_teacher` or :meth:`from_pretrained`; the bare constructor leaves all weights
    at random and the embeddings at 0.

    Attributes:
        config: its sizes and classes.
        embeddings: the table (V, E), frozen.
        layers: of the encoder.
        pooling: of the last layer's states.
        head: H → K.
    """

    inputs = frozenset({"input_ids", "attention_mask"})
    """Names of the tensors that it takes."""

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        self.config = config
        table = torch.zeros(config.vocab_size, config.embedding_size)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, _weight=table)
        self.embeddings.requires_grad_(False)
        self.layers = ENCODERS[config.kind](config)
        self.dropout = nn.Dropout(config.dropout)
        self.pooling = AttentionSum(config.hidden)
        self.head = PreciseLinear(config.hidden, config.num_labels)

    @classmethod
    def from_teacher(
        cls, config: SequenceConfig, word_table: Tensor, seed: int, *, centre: float = 0.0
    ) -> SequenceClassifier:
        """Make a student with random layers over its teacher's word embeddings.

        Args:
            config: its sizes and classes.
            word_table: (V, E), which is copied; see ``Family.word_embeddings``. Its scale is that
                of the first layer's inputs: MiniLM's values have a deviation of 0.056, with which a
                fresh Bi-LSTM of 768 gives states of a deviation of 0.010 to 0.005. Divided by it,
                a Bi-LSTM learns from the first steps on and not from the second epoch (H 192, 2000
                sentences of SST-2, one seed: accuracy .74, .77, .77 by epoch, and .51, .70, .76).
            seed: of the weights, which it decides together with the configuration. The process's
                own random state stays as it was.
            centre: what the head of a regression says of everything at first: the mean of its
                numbers.

        Raises:
            ValueError: the table has other sizes than the configuration.
        """
        wanted = (config.vocab_size, config.embedding_size)
        if tuple(word_table.shape) != wanted:
            raise ValueError(
                f"the table of word embeddings is {tuple(word_table.shape)}, not {wanted}"
            )
        with MAKING_MODELS, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls(config)
        with torch.no_grad():
            model.embeddings.weight.copy_(word_table)
            nn.init.constant_(model.head.bias, centre)
        return model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> SequenceClassifierOutput:
        """Read token ids (B, T).

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 1 at real tokens and then 0 at padding, which comes last;
                without it there is no padding. What stands at padding changes nothing.

        Returns:
            ``logits`` (B, K), and ``hidden_states``, a tuple of M tensors (B, T, H): the states of
            layers 1 to M. Unlike those of transformers, it does not begin with the embeddings.
        """
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        real = real.bool()
        states = self.layers(self.embeddings(input_ids), real)
        pooled = self.pooling(self.dropout(states[-1]), real)  # (B, H)
        return SequenceClassifierOutput(logits=self.head(pooled), hidden_states=states)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write ``config.json`` and ``model.safetensors``, word embeddings included.

        The folder has to be there. Not all or nothing: whoever calls writes into a draft, and puts
        the tokenizer beside.

        Raises:
            OSError, SafetensorError: the disk is full or not writable.
        """
        place = Path(folder)
        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file(weights, place / WEIGHTS_FILE, metadata={"format": "pt"})
        text = json.dumps(self.config.to_json(), indent=2, ensure_ascii=False)
        (place / CONFIG_FILE).write_text(text + "\n", "utf-8")

    @classmethod
    def from_pretrained(cls, folder: Path | str, ref: str | None = None) -> SequenceClassifier:
        """Load what :meth:`save_pretrained` wrote: float32, on the CPU, in eval mode.

        Args:
            folder: that it wrote to.
            ref: how the user named it, for messages; None is the folder.

        Raises:
            TeacherError: the folder holds no such model, or not a whole one.
        """
        place = Path(folder)
        name = str(folder) if ref is None else ref
        config = read_config(place, name)
        if config is None:
            raise TeacherError(
                f"{name!r} holds neither a Bi-LSTM nor a gated CNN of kdnas; check the path"
            )
        try:
            with MAKING_MODELS, torch.device("meta"):
                model = cls(config)
            weights = {k: v.float() for k, v in load_file(place / WEIGHTS_FILE).items()}
            model.load_state_dict(weights, assign=True)
        except (OSError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:160]
            raise TeacherError(
                f"the weights of model {name!r} do not load ({reason}); copy the folder again"
            ) from None
        return model.eval()
