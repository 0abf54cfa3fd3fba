"""Real text that comes with Python, and a tokenizer that is trained on it."""

from __future__ import annotations

import functools
from pydoc_data.topics import topics
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

VOCABULARY = 512


def corpus() -> str:
    """Python's reference manual: about 700 000 characters."""
    return "\n".join(topics[name] for name in sorted(topics))


@functools.cache
def tokenizer() -> PreTrainedTokenizerFast:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        [corpus()[:200_000]], vocab_size=VOCABULARY, special_tokens=["<end>"], show_progress=False
    )
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="<end>", pad_token="<end>")


class Pieces(Dataset[dict[str, Any]]):
    """The text in pieces of `length` tokens, as a causal language model takes them."""

    def __init__(self, text: str, length: int) -> None:
        ids = torch.tensor(tokenizer()(text)["input_ids"])
        self._rows = ids[: len(ids) // length * length].view(-1, length)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}
