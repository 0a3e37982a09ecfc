"""A WordPiece tokenizer small enough to build within a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertTokenizerFast

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PUNCTUATION = ".,;:!?'\"()-"


def make_tiny_tokenizer(folder: Path, words: Iterable[str] = (), max_length: int = 512) -> Path:
    """Save a lower-casing BERT tokenizer that ``AutoTokenizer`` loads without network.

    The vocabulary is the five special tokens (``[PAD]`` is 0), ASCII letters and digits, each also
    as a continuation (``##a``), some punctuation, then the words in the order given.

    Args:
        folder: where to save it; made if missing.
        words: whole words to be one token each; anything else falls apart into letters.
        max_length: the ``model_max_length`` that the tokenizer announces.

    Returns:
        The folder.
    """
    pieces = [*SPECIAL_TOKENS, *PUNCTUATION, *CHARACTERS, *(f"##{c}" for c in CHARACTERS)]
    pieces += [word.lower() for word in words]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    folder.mkdir(parents=True, exist_ok=True)
    fast = BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length)
    fast.save_pretrained(folder)
    return folder
