"""Hugging Face transformers: `Trainer` fine-tunes a small Llama, evaluates, checkpoints, resumes; the result writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

import torch_neuronx
from ecosystem.native import natively
from ecosystem.text import VOCABULARY, Pieces, corpus, tokenizer

STEPS, HALF, LENGTH = 20, 10, 64
PROMPT = "The following example"


def small_llama() -> LlamaForCausalLM:
    set_seed(1)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            bos_token_id=None,
            eos_token_id=0,
            pad_token_id=0,
        )
    )


@dataclass
class Run:
    """What one fine-tuning did."""

    device: str
    folder: Path
    model: LlamaForCausalLM
    losses: list[float]
    train_loss: float
    eval_losses: list[float]
    linear_types: set[torch.dtype]

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}


def fine_tune(folder: Path, device: str, bf16: bool, resume: Path | None = None) -> Run:
    text = corpus()
    model = small_llama()
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=3e-3,
        warmup_steps=2,
        weight_decay=0.01,
        seed=3,
        bf16=bf16,
        use_cpu=device == "cpu",
        eval_strategy="steps",
        eval_steps=HALF,
        save_steps=HALF,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Pieces(text[:60_000], LENGTH),
        eval_dataset=Pieces(text[-10_000:], LENGTH),
        processing_class=tokenizer(),
    )
    types: set[torch.dtype] = set()
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda _module, _inputs, out: types.add(out.dtype))
    with natively():
        result = trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    log = trainer.state.log_history
    return Run(
        device=str(trainer.args.device),
        folder=folder,
        model=model,
        losses=[entry["loss"] for entry in log if "loss" in entry],
        train_loss=result.training_loss,
        eval_losses=[entry["eval_loss"] for entry in log if "eval_loss" in entry],
        linear_types=types,
    )


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp(request.param)
    return {device: fine_tune(folder / device, device, request.param == "bf16") for device in ("cpu", "neuron")}


def test_trains_and_evaluates_as_on_the_cpu(runs: dict[str, Run], request: pytest.FixtureRequest) -> None:
    cpu, neuron = runs["cpu"], runs["neuron"]
    bf16 = torch.bfloat16 in neuron.linear_types
    assert (cpu.device, neuron.device) == ("cpu", "neuron:0")
    assert cpu.linear_types == neuron.linear_types == {torch.bfloat16 if bf16 else torch.float32}
    assert all(parameter.device.type == "neuron" for parameter in neuron.model.parameters())
    assert len(neuron.losses) == STEPS and len(neuron.eval_losses) == 2
    # In bfloat16 each product is rounded to 1 part in 256, at other places than on the CPU; a loss is a mean over
    # 504 tokens, and 1 part in 1000 is a quarter of one rounding.
    close = 1e-3 if bf16 else 1e-5
    assert neuron.train_loss == pytest.approx(cpu.train_loss, rel=close)
    assert neuron.losses == pytest.approx(cpu.losses, rel=close)
    assert neuron.eval_losses == pytest.approx(cpu.eval_losses, rel=close)
    # It learns: below what knowing nothing costs, and still falling at the second evaluation.
    assert neuron.eval_losses[1] < neuron.eval_losses[0] < math.log(VOCABULARY)


def test_resumed_run_ends_where_the_uninterrupted_one_does(runs: dict[str, Run], tmp_path: Path) -> None:
    whole = runs["neuron"]
    bf16 = torch.bfloat16 in whole.linear_types
    resumed = fine_tune(tmp_path, "neuron", bf16, resume=whole.folder / f"checkpoint-{HALF}")
    assert resumed.losses == whole.losses
    assert resumed.eval_losses == whole.eval_losses
    for name, weight in whole.weights().items():
        assert torch.equal(resumed.weights()[name], weight), name


def test_resuming_is_not_starting_over(runs: dict[str, Run]) -> None:
    """The checkpoints differ from each other, and the last one is the model that the run ended with."""
    whole = runs["neuron"]
    half, end = (LlamaForCausalLM.from_pretrained(whole.folder / f"checkpoint-{step}") for step in (HALF, STEPS))
    assert not torch.equal(half.model.norm.weight, end.model.norm.weight)
    for name, weight in end.state_dict().items():
        assert torch.equal(weight, whole.weights()[name]), name


@pytest.mark.parametrize("beams", [1, 3])
def test_generates_the_text_of_the_cpu(runs: dict[str, Run], beams: int) -> None:
    checkpoint = runs["neuron"].folder / f"checkpoint-{STEPS}"
    prompt = tokenizer()(PROMPT, return_tensors="pt")
    texts = []
    for device in ("cpu", "neuron"):
        model = LlamaForCausalLM.from_pretrained(checkpoint, device_map=device)
        with natively():
            out = model.generate(**prompt.to(device), max_new_tokens=40, num_beams=beams, do_sample=False)
        assert out.device.type == device
        texts.append(tokenizer().decode(out[0]))
    assert texts[0] == texts[1]
    assert texts[1].startswith(PROMPT) and len(texts[1]) > len(PROMPT)


def test_samples_from_the_device_generator(runs: dict[str, Run]) -> None:
    model = runs["neuron"].model
    prompt = tokenizer()(PROMPT, return_tensors="pt").to("neuron")
    samples = []
    for seed in (1, 1, 2):
        torch.neuron.manual_seed(seed)
        with natively():
            samples.append(model.generate(**prompt, max_new_tokens=20, do_sample=True, top_k=50).tolist())
    assert samples[0] == samples[1] != samples[2]


def test_half_precision_is_refused_by_name(tmp_path: Path) -> None:
    """accelerate names the devices that train in float16; this one is not among them."""
    arguments = TrainingArguments(output_dir=str(tmp_path), fp16=True, report_to=[])
    with pytest.raises(ValueError, match="fp16 mixed precision"):
        Trainer(model=small_llama(), args=arguments)


def test_compiled_training_has_the_losses_of_eager_training(tmp_path: Path) -> None:
    def losses(compiled: bool) -> list[float]:
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, logging_steps=1, save_strategy="no", seed=3, report_to=[],
            disable_tqdm=True, torch_compile=compiled,
        )  # fmt: skip
        trainer = Trainer(model=small_llama(), args=arguments, train_dataset=Pieces(corpus()[:20_000], LENGTH))
        with natively():
            trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    torch._dynamo.reset()
    torch_neuronx.reset_dynamo_metrics()
    assert losses(compiled=True) == losses(compiled=False)
    assert [(row.kind, row.calls) for row in torch_neuronx.get_dynamo_metrics()] == [("forward", 3), ("backward", 3)]


def test_generates_the_same_with_a_static_cache_and_a_compiled_step(runs: dict[str, Run]) -> None:
    model = LlamaForCausalLM.from_pretrained(runs["neuron"].folder / f"checkpoint-{STEPS}", device_map="neuron")
    prompt = tokenizer()(PROMPT, return_tensors="pt").to("neuron")
    expected = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    torch._dynamo.reset()
    torch_neuronx.reset_dynamo_metrics()
    with natively():
        out = model.generate(**prompt, max_new_tokens=20, do_sample=False, cache_implementation="static")
    assert torch.equal(out, expected)
    assert sum(row.calls for row in torch_neuronx.get_dynamo_metrics()) == 19  # the prompt itself runs eagerly
