"""Small models of public architectures with random weights, each as `(model, args)` for `torchneuron check`.

`torchneuron check tests/ecosystem/architectures.py:bert` checks one.
"""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers
from torch import nn

Case = tuple[nn.Module, Any] | tuple[nn.Module, Any, dict[str, Any]]

TOKENS = {"vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NARROW = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def text(batch: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(3, 96, (batch, length), generator=torch.Generator().manual_seed(0))


def of(name: str, config: str, inputs: dict[str, Any], **settings: Any) -> Case:
    """A transformers model in evaluation mode, from its configuration."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**settings))
    return model.eval(), (), inputs


NO_CACHE = {"use_cache": False}  # a cache of keys and values is no tensor, and torch.export refuses it as a result


def bert() -> Case:
    return of("BertModel", "BertConfig", {"input_ids": text()}, **TOKENS, **NARROW)


def gpt2() -> Case:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return of("GPT2LMHeadModel", "GPT2Config", {"input_ids": text(), "labels": text(), **NO_CACHE}, **TOKENS, **sizes)


def llama() -> Case:
    inputs = {"input_ids": text(), "labels": text(), **NO_CACHE}
    return of("LlamaForCausalLM", "LlamaConfig", inputs, **TOKENS, **NARROW, num_key_value_heads=2)


def t5() -> Case:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    inputs = {"input_ids": text(), "labels": text(length=6), **NO_CACHE}
    return of("T5ForConditionalGeneration", "T5Config", inputs, vocab_size=96, **sizes)


def vit() -> Case:
    sizes = {"image_size": 16, "patch_size": 4}
    return of("ViTModel", "ViTConfig", {"pixel_values": torch.randn(2, 3, 16, 16)}, **NARROW, **sizes)


def resnet() -> Case:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return of("ResNetModel", "ResNetConfig", {"pixel_values": torch.randn(2, 3, 32, 32)}, **sizes)


def whisper() -> Case:
    sizes = {
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "num_mel_bins": 8,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 20,
        "max_target_positions": 16, "decoder_start_token_id": 1,
    }  # fmt: skip
    inputs = {"input_features": torch.randn(2, 8, 40), "decoder_input_ids": text(length=6), **NO_CACHE}
    return of("WhisperModel", "WhisperConfig", inputs, **TOKENS, **sizes)


def mamba() -> Case:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
    return of("MambaForCausalLM", "MambaConfig", {"input_ids": text()}, **TOKENS, **sizes, use_cache=False)


def clip() -> Case:
    part = {**NARROW, "projection_dim": 16}
    inputs = {"input_ids": text(), "pixel_values": torch.randn(2, 3, 16, 16)}
    return of(
        "CLIPModel", "CLIPConfig", inputs, text_config={**part, **TOKENS, "max_position_embeddings": 16},
        vision_config={**part, "image_size": 16, "patch_size": 4}, projection_dim=16,
    )  # fmt: skip


def mixtral() -> Case:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}
    inputs = {"input_ids": text(), **NO_CACHE}
    case = of("MixtralForCausalLM", "MixtralConfig", inputs, **TOKENS, **NARROW, **experts)
    case[0].set_experts_implementation("eager")  # the loop over experts as the model's authors wrote it
    return case


def switch() -> Case:
    sizes = {
        "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
        "num_experts": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "decoder_start_token_id": 0,
    }  # fmt: skip
    inputs = {"input_ids": text(), "labels": text(length=6), **NO_CACHE}
    return of("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", inputs, vocab_size=96, **sizes)


def fnet() -> Case:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "max_position_embeddings": 32}
    return of("FNetModel", "FNetConfig", {"input_ids": text()}, **TOKENS, **sizes, tpu_short_seq_length=12)


def vits() -> Case:
    sizes = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 32, "flow_size": 16,
        "spectrogram_bins": 9, "duration_predictor_filter_channels": 16, "prior_encoder_num_flows": 1,
        "posterior_encoder_num_wavenet_layers": 2, "prior_encoder_num_wavenet_layers": 2,
        "upsample_initial_channel": 16, "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8],
        "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]], "vocab_size": 96,
        "duration_predictor_num_flows": 2, "depth_separable_num_layers": 2, "speaker_embedding_size": 0,
    }  # fmt: skip
    return of("VitsModel", "VitsConfig", {"input_ids": text(1, 6)}, **sizes)


def longformer() -> Case:
    sizes = {"attention_window": 4, "max_position_embeddings": 40, "sep_token_id": 2}
    mask = torch.zeros(2, 12, dtype=torch.long)
    mask[:, 0] = 1
    inputs = {"input_ids": text(), "global_attention_mask": mask}
    return of("LongformerModel", "LongformerConfig", inputs, **TOKENS, **NARROW, **sizes)


def unet() -> Case:
    torch.manual_seed(0)
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    return model.eval(), (torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 16))


def vae() -> Case:
    torch.manual_seed(0)
    model = diffusers.AutoencoderKL(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2, norm_num_groups=4,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, sample_size=16,
    )  # fmt: skip
    return model.eval(), (torch.randn(1, 3, 16, 16),)


def dit() -> Case:
    torch.manual_seed(0)
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=10, out_channels=8,
    )  # fmt: skip
    return (
        model.eval(),
        (torch.randn(2, 4, 8, 8),),
        {"timestep": torch.tensor([3, 7]), "class_labels": torch.tensor([1, 2])},
    )


def flux() -> Case:
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
    )  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 6, 32),
        "pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([1.0]), "img_ids": torch.randn(16, 3),
        "txt_ids": torch.randn(6, 3),
    }  # fmt: skip
    return model.eval(), (), inputs


def deepseek() -> Case:
    sizes = {
        "num_key_value_heads": 4,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "first_k_dense_replace": 2,
        "n_routed_experts": 4,
        "moe_intermediate_size": 16,
    }
    return of(
        "DeepseekV2ForCausalLM", "DeepseekV2Config", {"input_ids": text(), **NO_CACHE}, **TOKENS, **NARROW, **sizes
    )


def rt_detr(pixels: int = 64) -> Case:
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    sizes = {
        "backbone_config": backbone,
        "encoder_in_channels": [16, 16, 16],
        "encoder_hidden_dim": 16,
        "d_model": 16,
        "num_queries": 6,
        "num_denoising": 0,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "decoder_in_channels": [16, 16, 16],
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "anchor_image_size": None,
        "use_pretrained_backbone": False,
    }
    return of("RTDetrForObjectDetection", "RTDetrConfig", {"pixel_values": torch.randn(1, 3, pixels, pixels)}, **sizes)
