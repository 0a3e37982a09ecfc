"""Students that exist only to be timed: right sizes, no meaningful weights, built in no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.latency.measure import DTYPES
from kdnas.models.families import family_of
from kdnas.models.making import MAKING_MODELS
from kdnas.models.student import build_student, student_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

TIMED_VOCABULARY = 1024
"""Word embeddings of a timed student: looking up 32 of 1024 rows takes as long as of 30 522 (the
difference is below the repeats' noise), and the large table need not be there."""

_ALIGNMENT = 64
"""Parameters start at multiples of this many elements, as torch's own allocations are aligned."""


class StudentFactory:
    """Builds students of one teacher's family for timing, about 5 ms each.

    Allocating and initialising weights takes longer than timing them, so all students lie in one
    block of memory filled once with N(0, 0.02²): the parameters of a student are apart from each
    other as usual, but two students share memory. Each is warmed up before it is timed, so this
    does not show. The process's random state is not touched.

    Args:
        teacher: configuration of the teacher.
        device: where the students live.
        dtype: ``float32`` or ``bfloat16``.
    """

    def __init__(self, teacher: PretrainedConfig, device: torch.device, dtype: str) -> None:
        self._teacher = teacher
        self._device = device
        self._dtype = DTYPES[dtype]
        self._memory = torch.empty(0, device=device, dtype=self._dtype)
        self._family = family_of(teacher.model_type)
        self._buffers_of: dict[int, dict[str, Tensor]] = {}

    def build(self, architecture: Architecture) -> nn.Module:
        """Return a headless encoder in eval mode with :data:`TIMED_VOCABULARY` words."""
        from transformers import AutoModel

        config = student_config(self._teacher, architecture)
        config.vocab_size = TIMED_VOCABULARY
        config.pad_token_id = min(config.pad_token_id or 0, TIMED_VOCABULARY - 1)
        with MAKING_MODELS, torch.device("meta"):
            model: nn.Module = AutoModel.from_config(config, **self._family.model_options())
        model.load_state_dict(self._place(model), strict=False, assign=True)
        buffers = self._buffers(architecture)
        for name, _ in list(model.named_buffers()):
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, buffers[name])
        return model.eval().requires_grad_(False)

    def _buffers(self, architecture: Architecture) -> dict[str, Tensor]:
        """Take position ids and the like from a tiny sibling.

        They depend on the family alone, or for rotary positions on the width of a head. The sibling
        is as deep as the teacher, so that it has every kind of layer.
        """
        width = architecture.head_size if self._family.positions is None else 12
        if width not in self._buffers_of:
            depth = int(getattr(self._teacher, self._family.config_keys["layers"]))
            sibling = Architecture(depth, 1, width, 1)
            tiny = build_student(self._teacher, sibling, vocab_size=TIMED_VOCABULARY)
            self._buffers_of[width] = {n: b.to(self._device) for n, b in tiny.named_buffers()}
        return self._buffers_of[width]

    def _place(self, model: nn.Module) -> dict[str, Tensor]:
        offsets, end = {}, 0
        for name, parameter in model.named_parameters():
            offsets[name] = end
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        if end > self._memory.numel():
            generator = torch.Generator().manual_seed(0)
            values = torch.randn(end, generator=generator).mul_(0.02)
            self._memory = values.to(self._device, self._dtype)
        return {
            name: self._memory[offsets[name] :][: parameter.numel()].view(parameter.shape)
            for name, parameter in model.named_parameters()
        }
