"""A model as ONNX: exported, compared with PyTorch, made int8 if asked for, and timed.

The graph has the inputs ``input_ids`` and ``attention_mask``, both int64 (B, T), and one output in
float32: an encoder's ``last_hidden_state`` (B, T, D), or the ``logits`` (B, K) of a student that is
no Transformer. B and T are free.
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
from kdnas.distill.onnx_graph import quantise, write_graph
from kdnas.distill.onnx_session import FLOAT_FILE, INT8_FILE, OnnxGraph, require_packages
from kdnas.errors import RequestError, StoreError
from kdnas.models.opening import ModelHandle, load_model, load_tokenizer, prepare_model
from kdnas.models.sentence import copy_sentence_files
from kdnas.models.sequence.saved import SequenceHandle
from kdnas.records import LatencyProfile

FIGURES_FILE = "export.json"
STATES, LOGITS = "last_hidden_state", "logits"
"""What a graph gives, by its name in PyTorch's output."""
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
        mean_cosine: mean cosine between the two vectors of a token, or of a text.
        tokens: real tokens compared; of logits, texts.
    """

    max_difference: float
    largest_value: float
    mean_cosine: float
    tokens: int

    def within(self, tolerance: float) -> bool:
        """Whether no value differs by more than this share of the largest (or of 1)."""
        return self.max_difference <= self.allowed(tolerance)

    def allowed(self, tolerance: float) -> float:
        """Largest difference that is within a tolerance."""
        return tolerance * max(1.0, self.largest_value)


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
    length: int = 32,
    threads: int = 1,
    tolerance: float = TOLERANCE,
    on_step: Callable[[str], None] = lambda _: None,
) -> OnnxExport:
    """Write a model as ONNX, with its configuration and tokenizer; all of it or nothing.

    Of a Transformer that is the encoder, without pooler and head; a student that is none has its
    head. Where the model says how it embeds sentences, so does the folder; the graph ends before
    that.

    The int8 graph has weights of 8 bits with a scale for each output channel; activations are
    quantised as they come (onnxruntime's dynamic quantisation).

    Args:
        reference: a model folder, an alias or a hub id.
        output: an empty or new folder.
        timer: times PyTorch and the graphs side by side; None leaves latency out.
        int8: write an int8 graph too.
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
            figures = _write_graphs(model, draft, timer, int8, length, threads, tolerance, on_step)
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
    draft: Path,
    timer: Timer | None,
    int8: bool,
    length: int,
    threads: int,
    tolerance: float,
    on_step: Callable[[str], None],
) -> dict[str, Any]:
    import onnxruntime

    output = LOGITS if isinstance(model, SequenceHandle) else STATES
    encoder = Traced(load_model(model), output).eval()
    on_step("exporting to ONNX")
    opset = write_graph(encoder, traced_inputs(model), [output], draft / FLOAT_FILE, model.ref)
    graphs = {"onnx": OnnxGraph(draft / FLOAT_FILE, threads)}
    on_step("comparing with PyTorch")
    batches = check_batches(model)
    agreement = compare(encoder, graphs["onnx"], batches)
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
        "output": output,
        "longest_sequence": model.longest_sequence,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "opset": opset,
        "agreement": asdict(agreement) | {"allowed": agreement.allowed(tolerance)},
    }
    if int8:
        on_step("quantising to int8")
        quantise(draft)
        graphs["int8"] = OnnxGraph(draft / INT8_FILE, threads)
        of_int8 = compare(encoder, graphs["int8"], batches)
        figures["int8"] = asdict(of_int8) | {"doubtful": of_int8.mean_cosine < INT8_COSINE}
    if timer is not None:
        on_step("timing")
        figures["latency"] = _latency(encoder, graphs, model, timer, length, threads)
    names = (FLOAT_FILE, f"{FLOAT_FILE}.data", INT8_FILE, f"{INT8_FILE}.data")
    figures["bytes"] = {n: (draft / n).stat().st_size for n in names if (draft / n).is_file()}
    figures["versions"] = {
        "kdnas": __version__,
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    return figures


class Traced(nn.Module):
    """A model as a function of two tensors that gives one of its outputs."""

    def __init__(self, model: nn.Module, output: str = STATES) -> None:
        super().__init__()
        self.model, self.output = model, output

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the last hidden state, (B, T, D), or the logits, (B, K)."""
        found: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask)[self.output]
        return found


def traced_inputs(model: ModelHandle) -> dict[str, Tensor]:
    """Make a small batch, (2, T) ids and mask, to trace a model with; padding is in it."""
    ids = torch.full((2, min(8, model.longest_sequence)), 5)
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def check_batches(model: ModelHandle) -> list[dict[str, Tensor]]:
    """Make batches of English text in uneven lengths, up to the model's longest (or 512)."""
    tokenizer = load_tokenizer(model)
    longest = min(model.longest_sequence, LONGEST_CHECKED)
    lengths: Sequence[Sequence[int]] = (
        (3,),
        (17, 4, 30, 9),
        (longest,),
        (longest // 2, longest, longest // 3),
    )
    pad = int(model.config.pad_token_id or 0)
    batches = []
    for wanted in lengths:
        rows = [
            torch.tensor(
                tokenizer(_TEXT * 16, truncation=True, max_length=min(n, longest))["input_ids"]
            )
            for n in wanted
        ]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        ends = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(ids.shape[1])[None] < ends[:, None]).long()
        batches.append({"input_ids": ids, "attention_mask": mask})
    return batches


def compare(
    encoder: nn.Module, graph: Callable[[Mapping[str, Any]], Any], batches: list[dict[str, Tensor]]
) -> Agreement:
    """Compare a graph with PyTorch, at real tokens; what stands at padding means nothing.

    Where both give (B, K), all of it is compared.
    """
    differences, values, cosines = [], [], []
    for batch in batches:
        with torch.inference_mode():
            expected = encoder(**batch)
        found = torch.from_numpy(graph({k: v.numpy() for k, v in batch.items()}))
        if expected.ndim == 3:
            real = batch["attention_mask"].bool()
            expected, found = expected[real], found[real]
        differences.append((found - expected).abs().max())
        values.append(expected.abs().max())
        cosines.append(F.cosine_similarity(found.double(), expected.double(), dim=-1))
    cosine = torch.cat(cosines)
    return Agreement(
        float(torch.stack(differences).max()),
        float(torch.stack(values).max()),
        float(cosine.mean()),
        len(cosine),
    )


def _latency(
    encoder: nn.Module,
    graphs: Mapping[str, OnnxGraph],
    model: ModelHandle,
    timer: Timer,
    length: int,
    threads: int,
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.shape.vocab_size
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (1, length), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}

    def of_graph(graph: OnnxGraph) -> Callable[[], object]:
        return lambda: graph(arrays)

    runs: dict[str, Callable[[], object]] = {"pytorch": lambda: encoder(**inputs)}
    runs |= {name: of_graph(graph) for name, graph in graphs.items()}
    profile, medians = timer(runs, threads, length)
    return {
        "device": profile.device,
        "batch_size": 1,
        "tokens": length,
        "threads": threads,
        **{f"{name}_ms": ms for name, ms in medians.items()},
    }
