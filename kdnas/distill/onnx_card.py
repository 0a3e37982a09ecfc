"""What a person reads of an ONNX export: the lines on the screen, and the card in the folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {
    "encoder": ("An encoder", "feature-extraction", "FeatureExtraction"),
    "classification": ("A classifier", "text-classification", "SequenceClassification"),
    "multilabel": (
        "A classifier of texts with several labels",
        "text-classification",
        "SequenceClassification",
    ),
    "regression": ("A regression", "text-classification", "SequenceClassification"),
    "tagging": ("A tagger", "token-classification", "TokenClassification"),
    "span": ("A model that finds answers", "question-answering", "QuestionAnswering"),
}
"""What a graph is, what the hub calls its purpose, and how Optimum's class for it ends."""
_RUNTIMES = {"pytorch": "PyTorch", "onnx": "ONNX", "int8": "ONNX int8"}


def agreement_text(agreement: Mapping[str, Any]) -> str:
    """Say how near float32 comes to PyTorch."""
    return (
        f"largest difference {agreement['max_difference']:.1e} from PyTorch (allowed "
        f"{agreement['allowed']:.1e}; values up to {agreement['largest_value']:.1f}; "
        f"{agreement['compared']} {agreement['of']}, single ones and pairs)"
    )


def int8_text(int8: Mapping[str, Any]) -> str:
    """Say how near int8 comes to PyTorch."""
    return (
        f"largest difference {int8['max_difference']:.2g} from PyTorch, mean cosine "
        f"{int8['mean_cosine']:.4f}"
    )


def doubt_text(int8: Mapping[str, Any]) -> str | None:
    """Warn of an int8 graph that is far from PyTorch, or None."""
    if not int8["doubtful"]:
        return None
    return (
        f"the int8 model is far from the original (mean cosine {int8['mean_cosine']:.4f}); "
        "measure it on your task before you serve it, or serve model.onnx"
    )


def conditions_text(latency: Mapping[str, Any]) -> str:
    """Say under which conditions latency was measured."""
    threads = latency["threads"]
    return (
        f"batch {latency['batch_size']}, {latency['tokens']} tokens, {threads} "
        f"thread{'' if threads == 1 else 's'}, {latency['device'].partition(':')[2]}"
    )


def latency_rows(latency: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return runtime, milliseconds, and the share of PyTorch's for each that was timed."""
    own = latency["pytorch_ms"]
    return [
        (title, latency[f"{name}_ms"], latency[f"{name}_ms"] / own)
        for name, title in _RUNTIMES.items()
        if f"{name}_ms" in latency
    ]


def slow_text(latency: Mapping[str, Any] | None) -> str | None:
    """Warn of an int8 graph that took longer than the float32 one, or None.

    One of convolutions may: what dynamic quantisation makes faster are products of matrices.
    """
    if latency is None or latency.get("int8_ms", 0.0) <= latency["onnx_ms"]:
        return None
    return (
        f"the int8 model takes {latency['int8_ms'] / latency['onnx_ms']:.2f} times as long as "
        "model.onnx here; serve it only where its size counts"
    )


def export_card(figures: Mapping[str, Any]) -> str:
    """Write the README of an exported folder, with the hub's metadata block."""
    int8 = ""
    what, purpose, ending = _KINDS[figures["kind"]]
    if "int8" in figures:
        slow = slow_text(figures.get("latency"))
        words = [int8_text(figures["int8"]), *([slow] if slow else [])]
        int8 = f"\n\n`model.int8.onnx`, on the same texts: {'; '.join(words)}."
    results = ", ".join(figures["outputs"]) + ("," if len(figures["outputs"]) == 1 else "")
    return f"""---
library_name: onnx
tags:
- onnx
- kdnas
pipeline_tag: {purpose}
---

# {figures["model"]} as ONNX

{what} of the family `{figures["family"]}`, {figures["layers"]} layers of {figures["hidden"]},
for sequences of up to {figures["longest_sequence"]} tokens. Exported by kdnas
{figures["versions"]["kdnas"]} (opset {figures["opset"]}, model fingerprint
`{figures["fingerprint"]}`).

`model.onnx`: {agreement_text(figures["agreement"])}.{int8}

{_latency_table(figures.get("latency"))}

## Use

```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
session = onnxruntime.InferenceSession("path/to/this/folder/model.onnx")
encoded = tokenizer(["a sentence", "another one"], padding=True, return_tensors="np")
inputs = {{name: encoded[name] for name in {list(figures["inputs"])}}}
{results} = session.run(None, inputs)
```
{_meaning(figures["kind"])}{_elsewhere(figures, ending)}"""


def _elsewhere(figures: Mapping[str, Any], ending: str) -> str:
    """Say what else opens the folder: nothing where transformers does not know the family."""
    if not figures["known_family"]:
        return ""
    lines = [f"model = optimum.onnxruntime.ORTModelFor{ending}.from_pretrained(folder)"]
    if figures["sentences"]:
        lines.append('model = sentence_transformers.SentenceTransformer(folder, backend="onnx")')
    listed = "\n".join(lines)
    return f"\nOr, with `folder` the path to this folder:\n\n```python\n{listed}\n```\n"


def _meaning(kind: str) -> str:
    """Say how outputs are read."""
    if kind in ("classification", "tagging"):
        of = "text" if kind == "classification" else "token"
        return (
            f"\nThe largest of a {of}'s logits is its class, by `id2label` of `config.json`; their "
            "softmax are\nprobabilities.\n"
        )
    if kind == "multilabel":
        return (
            "\nEach logit is of a label, by `id2label` of `config.json`, which a text has where "
            "it is above 0;\nits sigmoid is the probability.\n"
        )
    if kind == "regression":
        return "\nThe logit of a text is the number.\n"
    if kind == "span":
        return (
            "\nAn answer reaches from a token with a large start logit to one with a large end.\n"
        )
    return ""


def _latency_table(latency: Mapping[str, Any] | None) -> str:
    if latency is None:
        return "Latency was not measured."
    rows = "\n".join(
        f"| {title} | {ms:.2f} ms | {share:.2f} |" for title, ms, share in latency_rows(latency)
    )
    return f"""Median latency ({conditions_text(latency)}):

| runtime | latency | of PyTorch's |
|---|---|---|
{rows}"""
