"""diffusers: networks of small configurations."""
import diffusers
import torch

from real.nets import row

CONDITION = {"sample_size": 8, "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "block_out_channels": (16, 32), "norm_num_groups": 4,
             "cross_attention_dim": 16, "attention_head_dim": 8, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
             "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
CODER = {"block_out_channels": (8, 16), "norm_num_groups": 4, "latent_channels": 4, "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1}


class Way(torch.nn.Module):
    """A method of a network, and the tensor or tuple that it returns."""

    def __init__(self, net, way, more):
        super().__init__()
        self.net, self.way, self.more = net, way, more

    def forward(self, **inputs):
        out = getattr(self.net, self.way)(**inputs, **self.more, return_dict=False)[0]
        return getattr(out, "parameters", out)


def small(name, config, draws, way="forward", label="", **more):
    """draws: {input: shape, with the batch and one size open as n and s, or a tensor's maker}."""
    def inputs():
        return [{k: f(n, s) for k, f in draws.items()} for n, s in ((2, 8), (3, 8), (1, 12))]
    row(f"diffusers.{name}{label}", lambda: Way(getattr(diffusers, name)(**config), way, more), inputs)


def times(n, _):
    return torch.full((n,), 7)


def picture(channels, factor=1):
    return lambda n, s: torch.randn(n, channels, s * factor, 8 * factor)


def words(width, length=5):
    return lambda n, _: torch.randn(n, length, width)


small("UNet2DModel", {"sample_size": 8, "layers_per_block": 1, "block_out_channels": (16, 32), "norm_num_groups": 4, "attention_head_dim": 8,
                      "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
      {"sample": picture(3), "timestep": times})
small("UNet2DConditionModel", CONDITION, {"sample": picture(4), "timestep": times, "encoder_hidden_states": words(16)})
small("UNet2DConditionModel", {**CONDITION, "use_linear_projection": True, "class_embed_type": "timestep",
                               "resnet_time_scale_shift": "scale_shift"},
      {"sample": picture(4), "timestep": times, "encoder_hidden_states": words(16), "class_labels": times}, label="-classes")
small("ControlNetModel", {k: v for k, v in CONDITION.items() if k in ("in_channels", "layers_per_block", "block_out_channels", "norm_num_groups",
      "cross_attention_dim", "attention_head_dim", "down_block_types")} | {"conditioning_embedding_out_channels": (8, 16)},
      {"sample": picture(4), "timestep": times, "encoder_hidden_states": words(16), "controlnet_cond": picture(3, 2)})
small("UNet1DModel", {"sample_size": 16, "block_out_channels": (8, 16), "down_block_types": ("DownResnetBlock1D",) * 2, "up_block_types":
      ("UpResnetBlock1D",), "in_channels": 4, "out_channels": 4, "layers_per_block": 1, "norm_num_groups": 4, "use_timestep_embedding": True,
      "time_embedding_type": "positional", "out_block_type": "OutConv1DBlock", "act_fn": "mish", "mid_block_type": "MidResTemporalBlock1D"},
      {"sample": lambda n, s: torch.randn(n, 4, 2 * s), "timestep": times})
small("AutoencoderKL", CODER, {"x": picture(3, 2)}, "encode", "-encode")
small("AutoencoderKL", CODER, {"z": picture(4)}, "decode", "-decode")
small("VQModel", {**CODER, "num_vq_embeddings": 16, "vq_embed_dim": 4}, {"sample": picture(3, 2)})
small("AutoencoderTiny", {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8), "num_encoder_blocks": (1, 1), "num_decoder_blocks":
      (1, 1)}, {"sample": picture(3, 2)})
small("AutoencoderKLCogVideoX", {"block_out_channels": (8, 8), "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 2, "down_block_types":
      ("CogVideoXDownBlock3D",) * 2, "up_block_types": ("CogVideoXUpBlock3D",) * 2, "temporal_compression_ratio": 1},
      {"z": lambda n, s: torch.randn(n, 4, 1, s, 8)}, "decode", "-decode")
small("DiTTransformer2DModel", {**HEADS, "sample_size": 8, "in_channels": 4, "out_channels": 8, "num_embeds_ada_norm": 10},
      {"hidden_states": lambda n, s: torch.randn(n, 4, 8, 8), "timestep": times, "class_labels": times})
small("PixArtTransformer2DModel", {**HEADS, "sample_size": 8, "in_channels": 4, "out_channels": 8, "cross_attention_dim": 16, "caption_channels": 12,
                                   "use_additional_conditions": False},
      {"hidden_states": lambda n, s: torch.randn(n, 4, 8, 8), "encoder_hidden_states": words(12), "timestep": times},
      added_cond_kwargs={"resolution": None, "aspect_ratio": None})
small("SD3Transformer2DModel", {**HEADS, "sample_size": 8, "in_channels": 4, "joint_attention_dim": 16, "caption_projection_dim": 16, "pooled_projection_dim":
      12, "out_channels": 4}, {"hidden_states": lambda n, s: torch.randn(n, 4, 8, 8), "encoder_hidden_states": words(16), "pooled_projections":
      lambda n, _: torch.randn(n, 12), "timestep": times})
small("FluxTransformer2DModel", {**HEADS, "num_single_layers": 1, "in_channels": 8, "joint_attention_dim": 16, "pooled_projection_dim": 12,
      "attention_head_dim": 16, "axes_dims_rope": [4, 4, 8]},
      {"hidden_states": lambda n, s: torch.randn(n, s, 8), "encoder_hidden_states": words(16), "pooled_projections":
      lambda n, _: torch.randn(n, 12), "timestep": lambda n, _: torch.rand(n), "img_ids": lambda n, s: torch.zeros(s, 3), "txt_ids":
      lambda n, s: torch.zeros(5, 3)})
small("AuraFlowTransformer2DModel", {"sample_size": 8, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 8, "num_attention_heads": 2,
      "joint_attention_dim": 16, "caption_projection_dim": 16, "pos_embed_max_size": 16}, {"hidden_states": lambda n, s: torch.randn(n, 4, 8, 8),
      "encoder_hidden_states": words(16), "timestep": lambda n, _: torch.rand(n)})
small("LTXVideoTransformer3DModel", {**HEADS, "in_channels": 8, "out_channels": 8, "cross_attention_dim": 16, "caption_channels": 12},
      {"hidden_states": lambda n, s: torch.randn(n, 8, 8), "encoder_hidden_states": words(12), "timestep": times,
       "encoder_attention_mask": lambda n, _: torch.ones(n, 5)}, num_frames=1, height=2, width=4)
small("PriorTransformer", {**HEADS, "embedding_dim": 12, "num_embeddings": 5, "additional_embeddings": 4},
      {"hidden_states": lambda n, _: torch.randn(n, 12), "timestep": times, "proj_embedding": lambda n, _: torch.randn(n, 12),
       "encoder_hidden_states": words(12)})
small("AutoencoderDC", {"latent_channels": 4, "attention_head_dim": 4, "encoder_block_types": ("ResBlock", "EfficientViTBlock"), "decoder_block_types":
      ("ResBlock", "EfficientViTBlock"), "encoder_block_out_channels": (8, 16), "decoder_block_out_channels": (8, 16), "encoder_qkv_multiscales": ((), (5,)),
      "decoder_qkv_multiscales": ((), (5,)), "encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1)}, {"sample": picture(3, 2)})
