"""Networks for pt2.py: NETS of {name: (maker, inputs)}. inputs() gives up to three sets of inputs: the first is exported, the second has
another size of batch, the third other sizes too; {argument or position: tensor}.
"""
import timm
import torch
import torchvision
import transformers

NETS = {}


def row(name, make, inputs):
    NETS[name] = make, inputs


def floats(*shapes):
    return lambda: [{0: torch.randn(shape)} for shape in shapes]


def image(side, *other, channels=3):
    """other: height and width of the third set."""
    return floats((2, channels, side, side), (3, channels, side, side), *([(1, channels, *other)] if other else []))


# ---- torchvision
def vision(names, inputs, **more):
    for name in names.split():
        row(f"torchvision.{name}", lambda name=name: torchvision.models.get_model(name, weights=None, **more), inputs)


class Backbone(torch.nn.Module):
    """What torch.export takes of a detector: features, and the heads' logits and boxes, before anchors and suppression."""

    def __init__(self, net):
        super().__init__()
        self.backbone, self.head = net.backbone, getattr(net, "head", None) or net.rpn.head

    def forward(self, x):
        features = list(self.backbone(x).values())
        return features, self.head(features)


def detector(names, inputs):
    for name in names.split():
        row(f"torchvision.{name}", lambda name=name: Backbone(torchvision.models.get_model(name, weights=None, weights_backbone=None)), inputs)


class Flow(torch.nn.Module):
    """Three steps of optical flow."""

    def __init__(self):
        super().__init__()
        self.net = torchvision.models.optical_flow.raft_small(weights=None)

    def forward(self, first, second):
        return self.net(first, second, num_flow_updates=3)


vision("alexnet vgg11 vgg11_bn resnet18 resnext50_32x4d wide_resnet50_2 densenet121 googlenet shufflenet_v2_x0_5 mobilenet_v2 mobilenet_v3_small "
       "mobilenet_v3_large mnasnet0_5 squeezenet1_0 squeezenet1_1 efficientnet_b0 efficientnet_v2_s regnet_x_400mf regnet_y_400mf convnext_tiny",
       image(96, 128, 64))
vision("swin_t swin_v2_t", image(96))    # of other sizes torch.export takes a quarter of an hour
vision("inception_v3", image(96, 128, 96))
vision("vit_b_16", image(64), image_size=64)
vision("maxvit_t", image(224))
vision("lraspp_mobilenet_v3_large deeplabv3_mobilenet_v3_large fcn_resnet50 deeplabv3_resnet50", image(96, 128, 64), weights_backbone=None)
vision("r3d_18 mc3_18 r2plus1d_18", floats((2, 3, 4, 32, 32), (3, 3, 4, 32, 32), (1, 3, 6, 48, 32)))
vision("s3d mvit_v2_s", floats((1, 3, 16, 224, 224)))
vision("swin3d_t", floats((1, 3, 4, 64, 64), (2, 3, 4, 64, 64)))
detector("fasterrcnn_mobilenet_v3_large_320_fpn ssdlite320_mobilenet_v3_large retinanet_resnet50_fpn fcos_resnet50_fpn", image(128, 192, 128))
row("torchvision.raft_small", Flow, lambda: [{n: torch.randn(k, 3, 128, 128) for n in (0, 1)} for k in (1, 2)])


# ---- timm
def pytorch_image_models(names, inputs, **more):
    for name in names.split():
        row(f"timm.{name}", lambda name=name: timm.create_model(name, pretrained=False, **more), inputs)


pytorch_image_models(
    "resnet10t resnet26t seresnet18 ecaresnet26t cspresnet50 res2net50_14w_8s skresnet18 dla34 hrnet_w18_small selecsls42 darknet17 vovnet39a "
    "efficientnet_lite0 mixnet_s tf_efficientnet_b0 ghostnet_100 ghostnetv2_100 lcnet_035 tinynet_e mobilenetv4_conv_small mobileone_s0 repvgg_a0 "
    "fastvit_t8 repghostnet_050 hardcorenas_a fbnetc_100 rexnet_100 nfnet_f0 gernet_s lambda_resnet26t edgenext_xx_small "
    "convnextv2_atto convmixer_768_32 poolformer_s12 regnetz_005 inception_next_atto starnet_s1 efficientvit_b0 nf_resnet26 xception41", image(128))
pytorch_image_models(
    "vit_tiny_patch16_224 deit_tiny_patch16_224 cait_xxs24_224 crossvit_tiny_240 levit_128s pit_ti_224 mixer_s16_224 resmlp_12_224 gmlp_ti16_224 "
    "xcit_nano_12_p16_224 twins_svt_small visformer_tiny coat_tiny mobilevit_xxs mobilevitv2_050 efficientformer_l1 swin_s3_tiny_224 "
    "swinv2_cr_tiny_ns_224 coatnet_nano_rw_224 volo_d1_224 beit_base_patch16_224 eva02_tiny_patch14_224 "
    "tiny_vit_5m_224 sequencer2d_s pvt_v2_b0 davit_tiny focalnet_tiny_srf mvitv2_tiny hiera_tiny_224 nest_tiny gcvit_xxtiny convit_tiny "
    "repvit_m1 efficientvit_m0 tnt_s_patch16_224 nextvit_small tresnet_m", image(224))
pytorch_image_models("botnet26t_256 halonet26t maxvit_rmlp_pico_rw_256", image(256))


# ---- transformers
def words(*more):
    """Token numbers and a mask with a row that ends early; more: names of inputs that have the token numbers too."""
    def make():
        draws = []
        for n, length in ((2, 7), (3, 7), (3, 5)):
            ids, mask = torch.randint(3, 90, (n, length)), torch.ones(n, length, dtype=torch.int64)
            mask[0, -2:] = 0
            draws.append({"input_ids": ids, "attention_mask": mask} | {name: ids.clone() for name in more})
        return draws
    return make


def named(name, *shapes):
    return lambda: [{name: torch.randn(shape)} for shape in shapes]


def part(net, name):
    return getattr(net, name) if name else net


def tiny(kind, inputs, of="", **sizes):
    """A model of the kind's configuration with these sizes; of: a part of it."""
    def make():
        config = transformers.AutoConfig.for_model(kind, **{"vocab_size": 99, "use_cache": False, **sizes})
        return part(transformers.AutoModel.from_config(config), of)
    row(f"transformers.{kind}", make, inputs)


BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "max_position_embeddings": 64}
LLAMA = {**BERT, "num_key_value_heads": 2}
for kind in "bert roberta electra deberta deberta-v2 mpnet camembert xlm-roberta ernie layoutlm megatron-bert roformer convbert".split():
    tiny(kind, words(), **BERT)
tiny("squeezebert", words(), **BERT, embedding_size=32)
for kind in "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 stablelm olmo2 granite starcoder2 cohere smollm3 glm".split():
    tiny(kind, words(), **LLAMA, pad_token_id=0, **({"head_dim": 8} if kind in ("qwen3", "gemma", "gemma2", "gemma3_text", "glm") else {}))
tiny("albert", words(), **BERT, embedding_size=16)
tiny("mobilebert", words(), **BERT, embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32)
tiny("distilbert", words(), dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=64)
tiny("gpt2", words(), n_embd=32, n_layer=2, n_head=4, n_positions=64)
tiny("gpt_neo", words(), hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], max_position_embeddings=64)
tiny("gpt_neox", words(), **BERT)
tiny("gptj", words(), n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
tiny("opt", words(), **BERT, ffn_dim=37, word_embed_proj_dim=32)
tiny("bloom", words(), hidden_size=32, n_layer=2, n_head=4)
tiny("xlnet", words(), d_model=32, n_layer=2, n_head=4, d_inner=37)
tiny("t5", words(), "encoder", d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=37)
tiny("bart", words(), "encoder", d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=37, max_position_embeddings=64)
tiny("whisper", named("input_features", (2, 80, 60), (3, 80, 60)), "encoder", d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=37,
     max_source_positions=30, decoder_attention_heads=4, pad_token_id=0)
tiny("wav2vec2", named("input_values", (2, 2000), (3, 2000), (2, 1600)), **BERT, conv_dim=[32] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
tiny("hubert", named("input_values", (2, 2000), (3, 2000)), **BERT, conv_dim=[32] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
for kind in "vit deit beit dinov2".split():
    tiny(kind, named("pixel_values", (2, 3, 32, 32), (3, 3, 32, 32)), **BERT, image_size=32, patch_size=8)
tiny("segformer", named("pixel_values", (2, 3, 64, 64), (3, 3, 64, 64), (1, 3, 96, 64)), hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1],
     num_attention_heads=[1, 1, 2, 2])
tiny("convnext", named("pixel_values", (2, 3, 64, 64), (3, 3, 64, 64), (1, 3, 96, 64)), hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1])
tiny("mobilevit", named("pixel_values", (2, 3, 64, 64), (3, 3, 64, 64)), hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 24, 32, 40, 64])
CLIP = {"text_config": {**BERT, "vocab_size": 99, "eos_token_id": 98}, "vision_config": {**BERT, "image_size": 32, "patch_size": 8}, "projection_dim": 16}
row("transformers.clip", lambda: transformers.CLIPModel(transformers.CLIPConfig(**CLIP)),
    lambda: [{"input_ids": torch.randint(3, 90, (n, 7)), "pixel_values": torch.randn(n, 3, 32, 32)} for n in (2, 3)])
