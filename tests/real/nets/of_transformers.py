"""transformers: models of small configurations. SIZES is what a configuration has smaller, wherever it has a field of that name."""
import operator

import torch
import transformers

from real.nets import named, row

SIZES = {"vocab_size": 99, "use_cache": False, "pad_token_id": 0, "max_position_embeddings": 64, "intermediate_size": 37, "image_size": 32, "patch_size": 8}
SIZES |= dict.fromkeys("hidden_size d_model n_embd dim embedding_size embed_dim embedding_dim word_embed_proj_dim".split(), 32)
SIZES |= dict.fromkeys("hidden_dim d_inner encoder_ffn_dim decoder_ffn_dim ffn_dim n_inner d_ff".split(), 37)
SIZES |= dict.fromkeys("num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers num_encoder_layers "
                       "num_blocks".split(), 2)
SIZES |= dict.fromkeys("num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts num_local_experts "
                       "n_routed_experts".split(), 4)
SIZES |= dict.fromkeys("num_key_value_heads num_experts_per_tok n_group topk_group n_shared_experts".split(), 2)
SIZES |= dict.fromkeys("head_dim d_kv qk_nope_head_dim v_head_dim qk_rope_head_dim state_size".split(), 8)
SIZES |= dict.fromkeys("moe_intermediate_size shared_expert_intermediate_size kv_lora_rank q_lora_rank time_step_rank".split(), 16)


def drawn_words(n, length):
    ids, mask = torch.randint(3, 90, (n, length)), torch.ones(n, length, dtype=torch.int64)
    mask[0, -2:] = 0
    return ids, mask


def words(*more, mask=True, length=7):
    """Token numbers and a mask with a row that ends early; more: names of inputs that have the token numbers too."""
    def make():
        draws = []
        for n, k in ((2, length), (3, length), (3, length - 2)):
            ids, ends = drawn_words(n, k)
            draws.append({"input_ids": ids} | ({"attention_mask": ends} if mask else {}) | {name: ids.clone() for name in more})
        return draws
    return make


def pixels(side, *other):
    return named("pixel_values", (2, 3, side, side), (3, 3, side, side), *([(1, 3, *other)] if other else []))


def smaller(kind, sizes):
    """The configuration, with every field of SIZES that it has, and these sizes."""
    fields = transformers.AutoConfig.for_model(kind).to_dict()
    few = {k: v for k, v in SIZES.items() if isinstance(fields.get(k), int)}
    return transformers.AutoConfig.for_model(kind, **{**few, **sizes})


def tiny(kind, inputs, of="", head="", label="", **sizes):
    """of: a part of the model. head: another class than AutoModel's."""
    def make():
        config = smaller(kind, sizes)
        net = getattr(transformers, head)(config) if head else transformers.AutoModel.from_config(config)
        if getattr(net, "set_experts_implementation", None):
            net.set_experts_implementation("batched_mm")    # the default is an operator of transformers' own
        return operator.attrgetter(of)(net) if of else net
    row(f"transformers.{kind}{label}", make, inputs)


# ---- words in, words out
for kind in ("bert roberta electra deberta deberta-v2 mpnet camembert xlm-roberta ernie layoutlm megatron-bert roformer convbert rembert "
             "splinter markuplm data2vec-text xlm-roberta-xl roberta-prelayernorm xmod bert-generation nystromformer "
             "albert distilbert flaubert xlm esm roc_bert visual_bert luke ibert canine tapas yoso mra lilt").split():
    tiny(kind, words(), **{"xmod": {"default_language": "en_XX"}, "esm": {"position_embedding_type": "rotary", "vocab_size": 99, "pad_token_id": 0},
                           "flaubert": {"n_words": 99, "emb_dim": 32}, "xlm": {"n_words": 99, "emb_dim": 32}, "luke": {"entity_vocab_size": 99},
                           "roc_bert": {"pronunciation_vocab_size": 99, "shape_vocab_size": 99}, "lilt": {"hidden_size": 48}}.get(kind, {}))
for kind in ("llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 stablelm olmo2 granite starcoder2 cohere smollm3 glm gpt2 gpt_neox opt bloom biogpt "
             "falcon mpt persimmon nemotron olmo helium glm4 arcee apertus exaone4 ernie4_5 cohere2 seed_oss hunyuan_v1_dense diffllama gpt_bigcode "
             "xglm ctrl openai-gpt modernbert nomic_bert eurobert mixtral qwen2_moe qwen3_moe olmoe phimoe granitemoe gpt_oss deepseek_v2 deepseek_v3 "
             "minimax bitnet vaultgemma youtu lfm2 nanochat").split():
    tiny(kind, words(), **({"num_key_value_heads": 4} if kind in ("deepseek_v2", "deepseek_v3", "youtu", "nemotron") else {"head_dim": 8}),
         **({"num_experts_per_tok": 2} if kind == "deepseek_v2" else {}), intermediate_size=48)
tiny("gemma3n_text", words(), head_dim=8, intermediate_size=48, laurel_rank=8, hidden_size_per_layer_input=16, vocab_size_per_layer_input=99,
     altup_num_inputs=2, num_kv_shared_layers=0, activation_sparsity_pattern=[0.95, 0.0], layer_types=["sliding_attention", "full_attention"])
tiny("squeezebert", words(), intermediate_size=32)
tiny("mobilebert", words(), intra_bottleneck_size=32, true_hidden_size=32)
tiny("gpt_neo", words(), attention_types=[[["global", "local"], 1]])
tiny("gptj", words(), rotary_dim=4)
tiny("codegen", words(), rotary_dim=4, n_ctx=64, n_positions=64)
tiny("xlnet", words())
tiny("fnet", words(mask=False))
tiny("funnel", words(), head="FunnelBaseModel", block_sizes=[1, 1], block_repeats=[1, 1], num_decoder_layers=1, d_head=8)
tiny("longformer", words(length=8), attention_window=[4, 4])
tiny("big_bird", words(), attention_type="original_full")
tiny("reformer", words(length=8), attn_layers=["local", "local"], axial_pos_embds=False, feed_forward_size=37, local_attn_chunk_length=4,
     attention_head_size=8)
for kind in "mamba falcon_mamba mamba2 rwkv".split():
    tiny(kind, words(mask=False), **({"num_heads": 8, "n_groups": 2, "chunk_size": 4} if kind == "mamba2" else {}), **({"intermediate_size": 64}
         if kind in ("mamba", "falcon_mamba") else {"attention_hidden_size": 32} if kind == "rwkv" else {}))
tiny("recurrent_gemma", words(), lru_width=32, attention_window_size=8, block_types=["recurrent", "attention"])
tiny("jamba", words(), mamba_d_state=8, mamba_dt_rank=4, use_mamba_kernels=False, num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2,
     intermediate_size=48)
tiny("xlstm", words(mask=False), num_heads=2, chunk_size=4)

# ---- words to words
tiny("t5", words(), "encoder")
BOTH = words("decoder_input_ids")
for kind in "t5 mt5 umt5 switch_transformers bart mbart pegasus m2m_100 marian blenderbot-small plbart led prophetnet longt5".split():
    tiny(kind, BOTH, label="-both" if kind == "t5" else "", **{"led": {"attention_window": [4, 4], "max_encoder_position_embeddings": 64},
                                                              "longt5": {"local_radius": 3}}.get(kind, {}))

# ---- sound
CONVS = {"conv_dim": [32] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
for kind in "wav2vec2 hubert unispeech unispeech-sat wavlm wav2vec2-conformer data2vec-audio".split():
    tiny(kind, named("input_values", (2, 2000), (3, 2000), (2, 1600)), **CONVS)
tiny("sew", named("input_values", (2, 2000), (3, 2000)), **{**CONVS, "conv_dim": [32] * 13}, squeeze_factor=2)
tiny("whisper", named("input_features", (2, 80, 60), (3, 80, 60)), "encoder", max_source_positions=30)
tiny("whisper", lambda: [{"input_features": torch.randn(n, 80, 60), "decoder_input_ids": torch.randint(3, 90, (n, k))} for n, k in ((2, 7), (3, 7), (3, 5))],
     label="-both", max_source_positions=30, decoder_start_token_id=1)
tiny("wav2vec2-bert", named("input_features", (2, 20, 160), (3, 20, 160), (2, 14, 160)))
tiny("speech_to_text", lambda: [{"input_features": torch.randn(n, 40, 80), "decoder_input_ids": torch.randint(3, 90, (n, k))} for n, k in ((2, 7), (3, 7))],
     max_source_positions=60)
tiny("audio-spectrogram-transformer", named("input_values", (2, 64, 32), (3, 64, 32)), max_length=64, num_mel_bins=32)
tiny("moonshine", lambda: [{"input_values": torch.randn(n, 3000), "decoder_input_ids": torch.randint(3, 90, (n, k))} for n, k in ((2, 7), (3, 7))])
tiny("parakeet_encoder", named("input_features", (2, 64, 80), (3, 64, 80)))
for kind in "encodec dac mimi".split():
    for part in "encoder decoder".split():
        tiny(kind, named(0, (1, 1, 1920), (2, 1, 1920), (1, 1, 3840)) if part == "encoder" else named(0, (1, 32, 10), (2, 32, 10), (1, 32, 14)),
             part, label=f"-{part}", **{"encodec": {"num_filters": 4, "codebook_dim": 32}, "mimi": {"num_filters": 4, "upsample_groups": 32},
                                        "dac": {"encoder_hidden_size": 4, "decoder_hidden_size": 64, "hidden_size": 32 if part == "decoder" else 64}}[kind])
tiny("univnet", lambda: [{"input_features": torch.randn(n, k, 16), "noise_sequence": torch.randn(n, k, 8)} for n, k in ((1, 6), (2, 6), (2, 9))],
     head="UnivNetModel", model_in_channels=8, model_hidden_channels=8, num_mel_bins=16, kernel_predictor_hidden_channels=8)
SEAMLESS = {f"{a}_{b}": v for a in ("speech_encoder", "t2u_encoder", "t2u_decoder", "encoder", "decoder")
            for b, v in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 37), ("intermediate_size", 37))}
for part, inputs in (("speech_encoder", named("input_features", (2, 20, 160), (3, 20, 160), (2, 28, 160))), ("text_encoder", words())):
    tiny("seamless_m4t_v2", inputs, part, label=f"-{part}", **SEAMLESS)
tiny("speecht5", named("input_values", (2, 2000), (3, 2000)), "speecht5.encoder", head="SpeechT5ForSpeechToText", label="-encoder", **CONVS)

# ---- images
for kind in "vit deit beit dinov2 dinov2_with_registers ijepa vit_msn data2vec-vision dinov3_vit".split():
    tiny(kind, pixels(32))
tiny("segformer", pixels(64, 96, 64), hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2])
for kind in "convnext convnextv2 dinov3_convnext resnet regnet bit poolformer pvt_v2".split():
    tiny(kind, pixels(64, 96, 64), depths=[1, 1, 1, 1], **{"poolformer": {"hidden_sizes": [8, 16, 32, 64], "patch_sizes": [7, 3, 3, 3]}, "resnet":
         {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64]}, "regnet": {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "groups_width": 8},
         "bit": {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "num_groups": 4}, "pvt_v2": {"hidden_sizes": [16, 16, 32, 32],
         "num_attention_heads": [1, 1, 2, 2]}}.get(kind, {"hidden_sizes": [8, 16, 32, 64]}))
tiny("mobilevit", pixels(64), hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 24, 32, 40, 64])
for kind in "mobilenet_v1 mobilenet_v2 efficientnet".split():
    tiny(kind, pixels(64, 96, 64), **({"hidden_dim": 1280, "width_coefficient": 1.0, "depth_coefficient": 1.0} if kind == "efficientnet" else {}))
for kind in "swin swinv2 maskformer-swin donut-swin".split():
    tiny(kind, pixels(32), embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4, patch_size=2)
tiny("swin2sr", pixels(32), embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4, patch_size=1)
tiny("focalnet", pixels(32), embed_dim=16, depths=[1, 1], hidden_sizes=[16, 32], focal_levels=[2, 2], focal_windows=[3, 3], patch_size=4)
tiny("cvt", pixels(64), depth=[1, 2, 10])
tiny("levit", pixels(64), image_size=64, patch_size=16)
tiny("hiera", pixels(64), image_size=[64, 64], embed_dim=16, depths=[1, 1], num_heads=[1, 2], num_query_pool=1, masked_unit_attention=[True, False])
tiny("vitdet", pixels(32))
tiny("dpt", pixels(32), head="DPTForDepthEstimation", neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16, num_hidden_layers=4,
     backbone_out_indices=[0, 1, 2, 3], is_hybrid=False)
tiny("videomae", named("pixel_values", (2, 4, 3, 32, 32), (3, 4, 3, 32, 32)), num_frames=4, tubelet_size=2)
tiny("timesformer", named("pixel_values", (2, 4, 3, 32, 32), (3, 4, 3, 32, 32)), num_frames=4)
tiny("vivit", named("pixel_values", (2, 4, 3, 32, 32), (3, 4, 3, 32, 32)), num_frames=4, tubelet_size=[2, 8, 8])
tiny("yolos", pixels(32), image_size=[32, 32], num_detection_tokens=5)
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "image_size": 32, "patch_size": 8}
SAM = {"output_channels": 16, "mlp_dim": 37, "window_size": 2, "global_attn_indexes": [1], "image_size": 64, "num_pos_feats": 16}
tiny("sam_vision_model", named("pixel_values", (1, 3, 64, 64), (2, 3, 64, 64)), **SAM)
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
for kind in "detr conditional_detr deformable_detr".split():
    tiny(kind, named("pixel_values", (1, 3, 128, 128), (2, 3, 128, 128)), use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
         backbone_config={**RESNET, **({"out_features": ["stage4"]} if kind != "deformable_detr" else {})}, num_queries=5)
for kind in "rt_detr rt_detr_v2 d_fine".split():
    tiny(kind, named("pixel_values", (1, 3, 64, 64), (2, 3, 64, 64)), backbone_config={**RESNET, "model_type": "rt_detr_resnet"}, encoder_hidden_dim=32,
         encoder_in_channels=[16, 32, 64], decoder_in_channels=[32, 32, 32], num_queries=5, encoder_ffn_dim=37, decoder_ffn_dim=37, hidden_expansion=0.5)

# ---- images and words
CLIP = {"text_config": {**VISION, "vocab_size": 99, "eos_token_id": 98, "max_position_embeddings": 64}, "vision_config": VISION, "projection_dim": 16}


def both():
    return [{"input_ids": torch.randint(3, 90, (n, 7)), "pixel_values": torch.randn(n, 3, 32, 32)} for n in (2, 3)]


for kind in "clip siglip altclip chinese_clip metaclip_2 owlvit".split():
    tiny(kind, both, **{**CLIP, **({"text_config": {**CLIP["text_config"], "project_dim": 32}} if kind == "altclip" else {})})
tiny("vilt", lambda: [{"input_ids": torch.randint(3, 90, (n, 7)), "attention_mask": torch.ones(n, 7, dtype=torch.int64),
                       "token_type_ids": torch.zeros(n, 7, dtype=torch.int64), "pixel_values": torch.randn(n, 3, 32, 32)} for n in (2, 3)])
tiny("layoutlmv3", lambda: [{"input_ids": torch.randint(3, 90, (n, 7)), "bbox": torch.randint(0, 60, (n, 7, 4)), "pixel_values": torch.randn(n, 3, 32, 32)}
                            for n in (2, 3)], coordinate_size=6, shape_size=4, max_2d_position_embeddings=64, input_size=32)

# ---- numbers in time
tiny("patchtst", named("past_values", (2, 32, 3), (3, 32, 3)), num_input_channels=3, patch_length=4, patch_stride=4)
tiny("patchtsmixer", named("past_values", (2, 32, 3), (3, 32, 3)), num_input_channels=3)
tiny("decision_transformer", lambda: [{"states": torch.randn(n, 5, 17), "actions": torch.randn(n, 5, 4), "rewards": torch.randn(n, 5, 1),
                                       "returns_to_go": torch.randn(n, 5, 1), "timesteps": torch.randint(0, 50, (n, 5)),
                                       "attention_mask": torch.ones(n, 5, dtype=torch.int64)} for n in (2, 3)])
