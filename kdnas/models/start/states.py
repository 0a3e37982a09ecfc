"""What a teacher makes of some text: all that a student's start has to know of the teacher's work.

Shapes: N tokens of S sequences, one after the other without padding; D width, f neurons of the
teacher, L^T layers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kdnas.artefact import save_array
from kdnas.errors import StoreError, TeacherError
from kdnas.models.batch import Batch
from kdnas.models.families import Family
from kdnas.models.start.basis import principal_components
from kdnas.models.start.repeated import repeated
from kdnas.models.taps import Projection, Tap, TapPoints, TokenStates

FORMAT = 5
META = "states.json"
_MEASURED: Final = {"activity": "neurons give", "read": "heads read"}


class TeacherStates:
    """States of a teacher at the tokens of its calibration text, memory-mapped.

    Attributes:
        folder: where the files lie.
        input_ids: (N,) token ids.
        lengths: (S,) tokens of each sequence.
        num_layers: L^T.
    """

    def __init__(self, folder: Path) -> None:
        try:
            meta: dict[str, Any] = json.loads((folder / META).read_bytes())
            if meta["format"] != FORMAT:
                raise StoreError(
                    f"the teacher's states in {folder} have format {meta['format']}, this program "
                    f"reads {FORMAT}; remove the folder, they are collected again"
                )
            self.num_layers = int(meta["layers"])
            self.input_ids = torch.from_numpy(np.load(folder / "input_ids.npy"))
            self.lengths: list[int] = [int(n) for n in np.load(folder / "lengths.npy")]
            self._hidden = [_mapped(folder, "hidden", i) for i in range(self.num_layers + 1)]
            self._attended = [_mapped(folder, "attended", i + 1) for i in range(self.num_layers)]
            self._output = _mapped(folder, "output", 0) if meta["output"] else self._hidden[-1]
            self._covariances: NDArray[np.float32] = np.load(folder / "covariances.npy")
            self._variances: list[float] = np.load(folder / "variances.npy").tolist()
            self._activity: NDArray[np.float32] = np.load(folder / "activity.npy")
            self._read: NDArray[np.float32] = np.load(folder / "read.npy")
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise StoreError(
                f"{folder} does not hold a teacher's states: {error}; remove it, they are "
                "collected again"
            ) from None
        self.folder = folder
        self._components = lru_cache(maxsize=None)(self._components_of)

    def hidden(self, layer: int) -> Tensor:
        """The residual stream behind a layer, 0 for the embeddings': (N, D)."""
        return torch.from_numpy(self._hidden[layer])

    def attended(self, layer: int) -> Tensor:
        """The residual stream between attention and feed-forward of a layer: (N, D)."""
        return torch.from_numpy(self._attended[layer - 1])

    def output(self, layer: int) -> Tensor:
        """What objectives call a layer's hidden states: of the last layer the encoder's output."""
        return torch.from_numpy(self._output) if layer == self.num_layers else self.hidden(layer)

    def activity(self, layer: int) -> Tensor:
        """Deviation of each neuron of a layer over all tokens: (f,)."""
        return torch.from_numpy(self._activity[layer - 1])

    def read(self, layer: int) -> Tensor:
        """Second moments of what each head of a layer reads over all tokens: (A, d_h, d_h).

        Also of the text said twice. About the mean, or, where the products behind heads have no
        biases, about 0.
        """
        return torch.from_numpy(self._read[layer - 1])

    def variance(self, layer: int) -> float:
        """Of the residual stream behind a layer, summed over channels."""
        return self._variances[layer]

    def components(self, layers: Iterable[int]) -> Tensor:
        """Principal components of the embeddings and some layers together: (D, D), made once."""
        return self._components(tuple(sorted({0, *layers})))

    def _components_of(self, layers: tuple[int, ...]) -> Tensor:
        return principal_components(torch.from_numpy(self._covariances[list(layers)]))

    def token_states(self, model: nn.Module, family: Family, points: TapPoints) -> TokenStates:
        """What objectives learn from, at the calibration tokens.

        Args:
            model: the teacher whose states these are.
            family: of the teacher.
            points: what is learned from.
        """
        layers = family.transformer_layers(model)
        projections: dict[int, dict[Projection, Tensor]] = {}
        with torch.no_grad():
            for number in points.projections:
                layer = layers[number - 1]
                device = family.word_embeddings(model).device
                coming = self.hidden(number - 1).to(device)
                if family.normalises_first:
                    coming = layer.get_submodule(family.norms[0])(coming)
                projections[number] = {
                    name: _part(module(coming), part)
                    for name, module, part in family.projections(layer)
                }
        hidden = {layer: self.output(layer) for layer in points.hidden}
        return TokenStates(hidden, projections, family.word_embeddings(model))

    def batches(self, pad_id: int, device: str) -> Iterator[Batch]:
        """The calibration text as batches, in the order of the states."""
        for rows, real in Layout(self.lengths).blocks():
            ids = torch.full(real.shape, pad_id)
            ids[real] = self.input_ids[rows]
            yield Batch.of(ids, real.long(), device=device)

    @property
    def num_tokens(self) -> int:
        """N."""
        return len(self.input_ids)


def collect_states(
    model: nn.Module,
    family: Family,
    batches: Iterable[Batch],
    folder: Path,
    name: str,
    *,
    longest: int,
) -> None:
    """Run a teacher over some text and write what it makes of it into a folder.

    Sums are float64, states float32. What heads read is watched on each text as it is and said
    twice (:mod:`kdnas.models.start.repeated`).

    Args:
        model: the whole teacher, frozen, in eval mode.
        family: of the teacher.
        batches: of the text; sequences keep their order.
        folder: for the files.
        name: how the user knows the teacher, for messages.
        longest: tokens that the teacher has positions for.

    Raises:
        TeacherError: states are not finite, or a layer's are the same for all tokens.
    """
    layers = family.transformer_layers(model)
    count = len(layers)
    ids: list[Tensor] = []
    lengths: list[int] = []
    hidden: list[list[Tensor]] = [[] for _ in range(count + 1)]
    attended: list[list[Tensor]] = [[] for _ in range(count)]
    outputs: list[Tensor] = []
    neurons = [_Deviations() for _ in range(count)]
    heads = int(getattr(model.config, family.config_keys["heads"]))
    # Without a bias to take it, a head's constant is part of what it does.
    attention_ends = [layer.get_submodule(family.silent[0]) for layer in layers]
    reads = [_Moments(heads, getattr(end, "bias", None) is not None) for end in attention_ends]
    pad_id = int(getattr(model.config, "pad_token_id", None) or 0)
    embeddings = family.embedding_output(model)
    entries = [layer.get_submodule(family.feed_forward_entry) for layer in layers]
    ends = [layer.get_submodule(family.silent[1]) for layer in layers]
    with torch.no_grad(), Tap(model, family, TapPoints(hidden=frozenset({count}))) as tap:
        for batch in batches:
            rows = batch.real_rows
            with ExitStack() as watching:
                for i, source in enumerate([embeddings, *layers]):
                    watching.enter_context(_outputs(source, rows, hidden[i].append))
                for i in range(count):
                    watching.enter_context(_inputs(entries[i], rows, attended[i].append))
                    watching.enter_context(_inputs(attention_ends[i], rows, reads[i].add))
                    watching.enter_context(_inputs(ends[i], rows, neurons[i].add))
                model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            ids.append(batch.input_ids.flatten().index_select(0, rows).cpu())
            lengths += batch.attention_mask.sum(1).tolist()
            if family.normalises_first:
                outputs.append(tap.take(batch).rows(count).cpu())
            again = repeated(batch, longest, pad_id)
            with ExitStack() as watching:
                for end, moments in zip(attention_ends, reads, strict=True):
                    watching.enter_context(_inputs(end, again.real_rows, moments.add))
                model(input_ids=again.input_ids, attention_mask=again.attention_mask)
    covariances, variances = [], []
    for i, parts in enumerate(hidden):
        states = torch.cat(parts)
        covariance, variance = _covariance(states, f"layer {i}" if i else "the embeddings", name)
        covariances.append(covariance)
        variances.append(variance)
        save_array(folder / f"hidden_{i:02}.npy", states.numpy())
    for i, parts in enumerate(attended, 1):
        save_array(folder / f"attended_{i:02}.npy", torch.cat(parts).numpy())
    if outputs:
        states = torch.cat(outputs)
        _covariance(states, "the last norm", name)
        save_array(folder / "output_00.npy", states.numpy())
    for kind, each in (("activity", neurons), ("read", reads)):
        values = torch.stack([moments.values() for moments in each])
        if not torch.isfinite(values).all():
            raise TeacherError(
                f"teacher {name!r} is broken: what its {_MEASURED[kind]} is not finite on the "
                "corpus; check its weights"
            )
        save_array(folder / f"{kind}.npy", values.numpy())
    save_array(folder / "covariances.npy", torch.stack(covariances).numpy())
    save_array(folder / "variances.npy", np.array(variances))
    save_array(folder / "input_ids.npy", torch.cat(ids).numpy())
    save_array(folder / "lengths.npy", np.array(lengths, np.int64))
    meta = {"format": FORMAT, "layers": count, "output": bool(outputs)}
    (folder / META).write_text(json.dumps(meta))


def _inputs(module: nn.Module, rows: Tensor, keep: Callable[[Tensor], None]) -> RemovableHandle:
    """Keep what comes into a module at the real tokens, until the handle is left: (N, …)."""
    return module.register_forward_pre_hook(lambda _, inputs: keep(_real(inputs[0], rows)))


def _outputs(module: nn.Module, rows: Tensor, keep: Callable[[Tensor], None]) -> RemovableHandle:
    """Keep what a module gives at the real tokens, until the handle is left: (N, …)."""
    return module.register_forward_hook(
        lambda _, __, output: keep(_real(output[0] if isinstance(output, tuple) else output, rows))
    )


def _real(states: Tensor, rows: Tensor) -> Tensor:
    return states.flatten(0, 1).index_select(0, rows).float().cpu()


def _covariance(states: Tensor, where: str, name: str) -> tuple[Tensor, float]:
    """Covariance of (N, D) states divided by its trace, and the trace.

    Raises:
        TeacherError: states are not finite, or the same for all tokens; ``where`` they are.
    """
    if not torch.isfinite(states).all():
        raise TeacherError(
            f"teacher {name!r} is broken: the states of {where} are not finite on the corpus; "
            "check its weights"
        )
    centred = (states - states.mean(0)).double()
    covariance = centred.T @ centred / len(centred)
    trace = covariance.trace()
    if trace <= 1e-12 * states.double().square().sum(1).mean().clamp_min(1e-30):
        raise TeacherError(
            f"teacher {name!r} is broken: the states of {where} are the same for every token of "
            "the corpus; check its weights"
        )
    return (covariance / trace).float(), float(trace)


def _part(output: Tensor, part: int | None) -> Tensor:
    return output if part is None else output.chunk(3, dim=-1)[part]


class _Deviations:
    """Mean and deviation of each neuron, batch by batch."""

    def __init__(self) -> None:
        self._first: Tensor | float = 0.0
        self._second: Tensor | float = 0.0
        self._count = 0

    def add(self, rows: Tensor) -> None:
        values = rows.double()
        self._first = self._first + values.sum(0)
        self._second = self._second + values.square().sum(0)
        self._count += len(rows)

    def values(self) -> Tensor:
        mean = torch.as_tensor(self._first) / self._count
        return (torch.as_tensor(self._second) / self._count - mean**2).clamp_min(0).sqrt().float()


class _Moments:
    """Second moments of what each head reads, about the mean or about 0, batch by batch."""

    def __init__(self, heads: int, centred: bool) -> None:
        self._heads, self._centred = heads, centred
        self._first: Tensor | float = 0.0
        self._second: Tensor | float = 0.0
        self._count = 0

    def add(self, rows: Tensor) -> None:
        values = torch.unflatten(rows, 1, (self._heads, -1)).transpose(0, 1)  # (A, N, d_h)
        self._first = self._first + values.double().sum(1)
        self._second = self._second + (values.mT @ values).double()
        self._count += len(rows)

    def values(self) -> Tensor:
        second = torch.as_tensor(self._second) / self._count
        if not self._centred:
            return second.float()
        mean = torch.as_tensor(self._first) / self._count
        return (second - mean[:, :, None] * mean[:, None]).float()


def _mapped(folder: Path, kind: str, number: int) -> NDArray[np.float32]:
    # Copy on write: torch wants arrays that it could write to.
    array: NDArray[np.float32] = np.load(folder / f"{kind}_{number:02}.npy", mmap_mode="c")
    return array


class Layout:
    """Where the tokens of each sequence stand among N rows, in blocks of padded sequences.

    Args:
        lengths: tokens of each sequence, sorted or nearly so.
        block: sequences of a block.
    """

    def __init__(self, lengths: list[int], block: int = 32) -> None:
        self.places = torch.cat([torch.arange(n) for n in lengths])  # (N,) within the sequence
        self._blocks: list[tuple[slice, Tensor]] = []
        start = 0
        for first in range(0, len(lengths), block):
            part = torch.tensor(lengths[first : first + block])
            real = torch.arange(int(part.max()))[None] < part[:, None]  # (B, T)
            self._blocks.append((slice(start, start + int(part.sum())), real))
            start += int(part.sum())

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Each block's rows, and which places of its (B, T) grid are theirs."""
        yield from self._blocks
