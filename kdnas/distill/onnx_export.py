"""A model as ONNX: exported, compared with PyTorch, made int8 if asked for, and timed.

The graph takes what the model's tokenizer makes, ``input_ids``, ``attention_mask`` and, where the
model tells two texts apart by them, ``token_type_ids``, all int64 (B, T). In float32 it gives what
the model is for: an encoder its ``last_hidden_state`` (B, T, D); with a head its ``logits``,
(B, K) of texts or (B, T, K) of words, or ``start_logits`` and ``end_logits`` (B, T) of answers. B
and T are free.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas import __version__
from kdnas.distill.export import copy_tokenizer, refuse_used_folder
from kdnas.distill.numerics import num_threads
from kdnas.distill.onnx_card import export_card
from kdnas.distill.onnx_graph import INPUTS, Traced, quantise, traced_inputs, write_graph
from kdnas.distill.onnx_session import FLOAT_FILE, INT8_FILE, OnnxGraph, require_packages
from kdnas.errors import RequestError, StoreError
from kdnas.models.heads import kind_of_head
from kdnas.models.opening import (
    ModelHandle,
    load_model,
    load_served_model,
    load_tokenizer,
    prepare_model,
)
from kdnas.models.sentence import MODULES_FILE, copy_sentence_files
from kdnas.models.sequence.saved import SequenceHandle
from kdnas.models.teacher import TeacherHandle
from kdnas.records import LatencyProfile

FIGURES_FILE = "export.json"
OUTPUTS: Mapping[str | None, tuple[str, ...]] = {
    None: ("last_hidden_state",),
    "classification": ("logits",),
    "multilabel": ("logits",),
    "regression": ("logits",),
    "tagging": ("logits",),
    "span": ("start_logits", "end_logits"),
}
"""What a graph gives, by its name in PyTorch's output, for each kind of head; None has none."""
OF_TOKENS = frozenset({None, "tagging", "span"})
"""Kinds that say something of every token."""
TOLERANCE = 1e-4
"""Of float32, as a share of the largest value (or of 1): a hundred times what is seen."""
INT8_COSINE = 0.98
"""A mean cosine below this is warned of; minilm has 0.99."""
LONGEST_CHECKED = 512

Runs = Mapping[str, Callable[[], object]]
Timer = Callable[[Runs, int, int], tuple[LatencyProfile, Mapping[str, float]]]
"""Times single inferences, given the threads and the tokens: conditions, and ms of each run."""

_TEXT = (
    "Rain fell all night on the old roof, and by morning the river had risen above its banks. "
    "She wrote 14 letters to the council; nobody answered. Why does a small model answer sooner "
    "than a large one, and what does it lose? Invoices over 2,500 euros need a second signature. "
    "The committee met on Tuesday to discuss the bridge, the school, and a leaking pipe. "
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near a graph comes to PyTorch, over real tokens only, or over texts.

    Attributes:
        max_difference: largest difference of a value.
        largest_value: largest value of PyTorch's output.
        mean_cosine: of states the mean cosine between the two vectors of a token; of logits, of
            which there may be one a text, that between all of them.
        compared: real tokens, or texts.
        of: ``tokens`` or ``texts``.
    """

    max_difference: float
    largest_value: float
    mean_cosine: float
    compared: int
    of: str

    def within(self, tolerance: float) -> bool:
        """Whether no value differs by more than this share of the largest (or of 1)."""
        return self.max_difference <= self.allowed(tolerance)

    def allowed(self, tolerance: float) -> float:
        """Largest difference that is within a tolerance."""
        return tolerance * max(1.0, self.largest_value)


@dataclass(frozen=True, slots=True)
class Form:
    """What a graph takes and gives.

    Attributes:
        kind: what is predicted; None of an encoder.
        inputs: some of ``INPUTS``.
        outputs: names.
    """

    kind: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def form_of(model: ModelHandle, head: bool = True) -> Form:
    """Say what the graph of a model takes and gives.

    Args:
        model: the model.
        head: whether a head that it has is part of the graph.
    """
    is_sequence = isinstance(model, SequenceHandle)
    kind = kind_of_head(model.config) if head or is_sequence else None
    tells_apart = isinstance(model, TeacherHandle) and model.shape.type_vocab_size > 1
    made = load_tokenizer(model)("a", "b")
    inputs = [name for name in INPUTS if name in made and (tells_apart or name != INPUTS[2])]
    return Form(kind, tuple(inputs), OUTPUTS[kind])


@dataclass(frozen=True, slots=True)
class OnnxExport:
    """What was written, and its figures (``export.json``)."""

    folder: Path
    figures: Mapping[str, Any]


def export_onnx(
    reference: str,
    output: Path,
    timer: Timer | None = None,
    *,
    int8: bool = False,
    head: bool = True,
    length: int = 32,
    threads: int = 1,
    tolerance: float = TOLERANCE,
    on_step: Callable[[str], None] = lambda _: None,
) -> OnnxExport:
    """Write a model as ONNX, with its configuration and tokenizer; all of it or nothing.

    A fine-tuned model has its head, any other is an encoder without pooler. Where the model says
    how it embeds sentences, so does the folder; the graph ends before that.

    The int8 graph has weights of 8 bits with a scale for each output channel; activations are
    quantised as they come (onnxruntime's dynamic quantisation).

    Args:
        reference: a model folder, an alias or a hub id.
        output: an empty or new folder.
        timer: times PyTorch and the graphs side by side; None leaves latency out.
        int8: write an int8 graph too.
        head: whether the head of a fine-tuned Transformer is part of the graph.
        length: tokens of the sequence that is timed.
        threads: intra-op threads while timing.
        tolerance: largest difference between ONNX and PyTorch, as a share of the largest value.
        on_step: is told what is being done.

    Raises:
        RequestError: the model is not supported, the extra ``onnx`` is not installed, the output
            folder is not empty, or the sequence is longer than the model takes.
        StoreError: the graph differs from PyTorch, or cannot be made or written.
    """
    require_packages()
    refuse_used_folder(output)
    model = prepare_model(reference)
    if length > model.longest_sequence:
        raise RequestError(
            f"a sequence of {length} tokens is longer than the {model.longest_sequence} that "
            f"{reference} takes; give a smaller --sequence-length"
        )
    draft = output.parent / f".{output.name}.draft-{os.getpid()}"
    try:
        _remove_abandoned_drafts(output)
        draft.mkdir(parents=True)
        shutil.copyfile(model.folder / "config.json", draft / "config.json")
        copy_tokenizer(model, draft)
        copy_sentence_files(model.folder, draft)
        with num_threads(threads):
            figures = _write_graphs(
                model, head, draft, timer, int8, length, threads, tolerance, on_step
            )
        (draft / FIGURES_FILE).write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
        (draft / "README.md").write_text(export_card(figures), "utf-8")
        if output.is_dir():
            output.rmdir()
        draft.rename(output)
    except OSError as error:
        raise StoreError(
            f"the ONNX model could not be written to {output} ({error.strerror or error}); free "
            "space there or name another folder with --output"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return OnnxExport(output, figures)


def _remove_abandoned_drafts(output: Path) -> None:
    """Remove what exports to the same folder left that were killed."""
    for draft in output.parent.glob(f".{glob.escape(output.name)}.draft-*"):
        pid = draft.name.rpartition("-")[2]
        if pid == str(os.getpid()) or (pid.isdecimal() and not psutil.pid_exists(int(pid))):
            shutil.rmtree(draft, ignore_errors=True)


def _write_graphs(
    model: ModelHandle,
    head: bool,
    draft: Path,
    timer: Timer | None,
    int8: bool,
    length: int,
    threads: int,
    tolerance: float,
    on_step: Callable[[str], None],
) -> dict[str, Any]:
    import onnxruntime

    form = form_of(model, head)
    loaded = load_served_model(model) if head else load_model(model)
    traced = Traced(loaded, form.outputs).eval()
    example = traced_inputs(form.inputs, min(8, model.longest_sequence))
    on_step("exporting to ONNX")
    opset = write_graph(traced, example, form.outputs, draft / FLOAT_FILE, model.ref)
    graphs = {"onnx": OnnxGraph(draft / FLOAT_FILE, threads)}
    on_step("comparing with PyTorch")
    batches = check_batches(model, form.inputs)
    agreement = compare(traced, graphs["onnx"], batches, form.kind)
    if not agreement.within(tolerance):
        raise StoreError(
            f"the ONNX model of {model.ref} differs from PyTorch by "
            f"{agreement.max_difference:.2g}, more than {agreement.allowed(tolerance):.2g}, and "
            "was not kept; report the model's family and the versions of torch and onnxscript"
        )
    figures: dict[str, Any] = {
        "model": model.ref,
        "fingerprint": model.fingerprint,
        "family": model.shape.model_type,
        "layers": model.shape.layers,
        "hidden": model.shape.hidden,
        "kind": form.kind or "encoder",
        "inputs": form.inputs,
        "outputs": form.outputs,
        "known_family": isinstance(model, TeacherHandle),
        "sentences": (draft / MODULES_FILE).is_file(),
        "longest_sequence": model.longest_sequence,
        "parameters": sum(p.numel() for p in traced.parameters()),
        "opset": opset,
        "agreement": asdict(agreement) | {"allowed": agreement.allowed(tolerance)},
    }
    if int8:
        on_step("quantising to int8")
        quantise(draft)
        graphs["int8"] = OnnxGraph(draft / INT8_FILE, threads)
        of_int8 = compare(traced, graphs["int8"], batches, form.kind)
        figures["int8"] = asdict(of_int8) | {"doubtful": of_int8.mean_cosine < INT8_COSINE}
    if timer is not None:
        on_step("timing")
        figures["latency"] = _latency(traced, graphs, model, form, timer, length, threads)
    names = (FLOAT_FILE, f"{FLOAT_FILE}.data", INT8_FILE, f"{INT8_FILE}.data")
    figures["bytes"] = {n: (draft / n).stat().st_size for n in names if (draft / n).is_file()}
    figures["versions"] = {
        "kdnas": __version__,
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    return figures


def check_batches(model: ModelHandle, inputs: Sequence[str]) -> list[dict[str, Tensor]]:
    """Make batches of English texts and pairs of them, in uneven lengths up to the longest.

    Args:
        model: whose tokenizer makes them.
        inputs: what of that the graph takes.
    """
    tokenizer = load_tokenizer(model)
    longest = min(model.longest_sequence, LONGEST_CHECKED)
    lengths: Sequence[Sequence[int]] = (
        (3,),
        (17, 4, 30, 9),
        (longest,),
        (longest // 2, longest, longest // 3),
    )
    pairs: Sequence[Sequence[tuple[int, int]]] = (((4, 3),), ((2, 9), (7, 7), (12, 1)))

    def cut(words: int) -> str:
        return " ".join((_TEXT * 16).split()[:words])

    def batch(rows: Sequence[Mapping[str, list[int]]]) -> dict[str, Tensor]:
        fills = {"input_ids": int(model.config.pad_token_id or 0)}
        return {
            name: nn.utils.rnn.pad_sequence(
                [torch.tensor(row[name]) for row in rows],
                batch_first=True,
                padding_value=fills.get(name, 0),
            )
            for name in inputs
        }

    texts = [
        [tokenizer(_TEXT * 16, truncation=True, max_length=min(n, longest)) for n in wanted]
        for wanted in lengths
    ]
    both = [
        [
            tokenizer(cut(one), cut(other), truncation=True, max_length=longest)
            for one, other in wanted
        ]
        for wanted in pairs
    ]
    return [batch(rows) for rows in (*texts, *both)]


def compare(
    model: Callable[..., tuple[Tensor, ...]],
    graph: OnnxGraph,
    batches: Sequence[Mapping[str, Tensor]],
    kind: str | None,
) -> Agreement:
    """Compare a graph with PyTorch; of what is said of tokens, at real ones: padding means nothing.

    Args:
        model: the same in PyTorch.
        graph: whose outputs are in the same order.
        batches: to run both on.
        kind: what is predicted; None of an encoder.
    """
    of_tokens = kind in OF_TOKENS
    theirs: list[Tensor] = []
    ours: list[Tensor] = []
    for batch in batches:
        with torch.inference_mode():
            said = model(**batch)
        arrays = graph.run({name: values.numpy() for name, values in batch.items()})
        for kept, outputs in ((theirs, said), (ours, [torch.from_numpy(a) for a in arrays])):
            values = outputs[0] if len(outputs) == 1 else torch.stack(list(outputs), -1)
            kept.append(values[batch["attention_mask"].bool()] if of_tokens else values)
    expected, found = torch.cat(theirs), torch.cat(ours)  # (C, D)
    vectors = (found, expected) if kind is None else (found.flatten(), expected.flatten())
    cosine = F.cosine_similarity(vectors[0].double(), vectors[1].double(), dim=-1)
    return Agreement(
        float((found - expected).abs().max()),
        float(expected.abs().max()),
        float(cosine.mean()),
        len(expected),
        "tokens" if of_tokens else "texts",
    )


def _latency(
    traced: nn.Module,
    graphs: Mapping[str, OnnxGraph],
    model: ModelHandle,
    form: Form,
    timer: Timer,
    length: int,
    threads: int,
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.shape.vocab_size
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (1, length), generator=generator)
    values = dict(zip(INPUTS, (ids, torch.ones_like(ids), torch.zeros_like(ids)), strict=True))
    inputs = {name: values[name] for name in form.inputs}
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}

    def of_graph(graph: OnnxGraph) -> Callable[[], object]:
        return lambda: graph(arrays)

    runs: dict[str, Callable[[], object]] = {"pytorch": lambda: traced(**inputs)}
    runs |= {name: of_graph(graph) for name, graph in graphs.items()}
    profile, medians = timer(runs, threads, length)
    return {
        "device": profile.device,
        "batch_size": 1,
        "tokens": length,
        "threads": threads,
        **{f"{name}_ms": ms for name, ms in medians.items()},
    }
