"""vit-pytorch and x-transformers: variants of attention, small."""
import torch
from vit_pytorch import cait, cct, crossformer, deepvit, levit, max_vit, mobile_vit, nest, parallel_vit, pit, rvt, scalable_vit, simple_vit
from vit_pytorch import simple_vit_1d, simple_vit_3d, t2t, twins_svt, vit, vit_for_small_dataset, vit_with_patch_merger, xcit
from x_transformers import Decoder, Encoder, TransformerWrapper

from real.nets import floats, row

VIT = {"image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 48}


def small(name, make, shape=(3, 64, 64)):
    row(f"vit_pytorch.{name}", make, floats((2, *shape), (3, *shape)))


for module, name, change in (
        (vit, "ViT", {}), (deepvit, "DeepViT", {}), (simple_vit, "SimpleViT", {}), (parallel_vit, "ViT", {"num_parallel_branches": 2}), (rvt, "RvT", {}),
        (vit_for_small_dataset, "ViT", {}), (vit_with_patch_merger, "ViT", {"patch_merge_num_tokens": 4}),
        (cait, "CaiT", {"cls_depth": 1}), (xcit, "XCiT", {"cls_depth": 1}), (pit, "PiT", {"depth": (1, 1), "dim": 16})):
    small(f"{module.__name__.rsplit('.', 1)[1]}", lambda module=module, name=name, change=change: getattr(module, name)(**{**VIT, **change}))

small("simple_vit_1d", lambda: simple_vit_1d.SimpleViT(seq_len=32, patch_size=4, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=48), (3, 32))
small("simple_vit_3d", lambda: simple_vit_3d.SimpleViT(image_size=32, image_patch_size=16, frames=4, frame_patch_size=2, num_classes=10, dim=36, depth=2,
                                                       heads=2, mlp_dim=48), (3, 4, 32, 32))
small("t2t", lambda: t2t.T2TViT(image_size=64, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=48, t2t_layers=((7, 4), (3, 2))))
small("cct", lambda: cct.CCT(img_size=64, embedding_dim=32, n_conv_layers=2, num_layers=2, num_heads=2, num_classes=10))
small("crossformer", lambda: crossformer.CrossFormer(dim=(32, 32, 32, 32), depth=(1, 1, 1, 1), global_window_size=(4, 2, 2, 1), local_window_size=2,
                                                              num_classes=10))
small("levit", lambda: levit.LeViT(image_size=64, num_classes=10, stages=2, dim=(16, 32), depth=1, heads=(2, 2), mlp_mult=2))
small("max_vit", lambda: max_vit.MaxViT(num_classes=10, dim_conv_stem=8, dim=8, dim_head=8, depth=(1, 1), window_size=4, mbconv_expansion_rate=2))
small("mobile_vit", lambda: mobile_vit.MobileViT(image_size=(64, 64), dims=[16, 24, 32], channels=[8, 8, 8, 8, 16, 16, 24, 24, 32, 32, 32], num_classes=10))
small("nest", lambda: nest.NesT(image_size=64, patch_size=4, dim=16, heads=2, num_hierarchies=3, block_repeats=(1, 1, 1), num_classes=10))
small("scalable_vit", lambda: scalable_vit.ScalableViT(num_classes=10, dim=16, heads=(2, 2), depth=(1, 1), ssa_dim_key=(8, 8), reduction_factor=(2, 1),
                                                       window_size=(8, 4)))
small("twins_svt", lambda: twins_svt.TwinsSVT(num_classes=10, **{f"s{i}_{k}": v for i, width in enumerate((8, 16, 16, 16), 1) for k, v in
                                              (("emb_dim", width), ("patch_size", 2), ("local_patch_size", 2), ("global_k", 2), ("depth", 1))}))


# ---- x-transformers
def tokens(name, **layers):
    row(f"x_transformers.{name}", lambda: TransformerWrapper(num_tokens=40, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=2, attn_dim_head=16,
        **layers)), lambda: [{0: torch.randint(0, 40, shape)} for shape in ((2, 8), (3, 8), (2, 11))])


tokens("decoder")
tokens("rotary", rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True, ff_swish=True)
tokens("alibi", alibi_pos_bias=True, alibi_num_heads=1)
tokens("t5_bias", rel_pos_bias=True)
tokens("dynamic_bias", dynamic_pos_bias=True, dynamic_pos_bias_log_distance=False)
tokens("one_kv", attn_one_kv_head=True, use_scalenorm=True)
tokens("talking_heads", attn_pre_talking_heads=True, attn_qk_norm=True, sandwich_norm=True)
tokens("sparse", attn_sparse_topk=4)
tokens("shifted", shift_tokens=1, macaron=True, rotary_xpos=True)
tokens("gated", gate_residual=True, attn_gate_values=True, residual_attn=True)
tokens("memory", attn_num_mem_kv=4, ff_relu_squared=True)
row("x_transformers.encoder", lambda: Encoder(dim=32, depth=2, heads=2, attn_dim_head=16), floats((2, 8, 32), (3, 8, 32), (2, 11, 32)))
