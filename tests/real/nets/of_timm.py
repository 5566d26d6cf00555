"""timm: one or two networks of each family."""
import timm

from real.nets import image, row


def pytorch_image_models(names, inputs, **more):
    for name in names.split():
        row(f"timm.{name}", lambda name=name: timm.create_model(name, pretrained=False, **more), inputs)


pytorch_image_models(
    "resnet10t resnet26t seresnet18 ecaresnet26t cspresnet50 res2net50_14w_8s skresnet18 dla34 hrnet_w18_small selecsls42 darknet17 vovnet39a "
    "efficientnet_lite0 mixnet_s tf_efficientnet_b0 ghostnet_100 ghostnetv2_100 lcnet_035 tinynet_e mobilenetv4_conv_small mobileone_s0 repvgg_a0 "
    "fastvit_t8 repghostnet_050 hardcorenas_a fbnetc_100 rexnet_100 nfnet_f0 gernet_s lambda_resnet26t edgenext_xx_small "
    "convnextv2_atto convmixer_768_32 poolformer_s12 regnetz_005 inception_next_atto starnet_s1 efficientvit_b0 nf_resnet26 xception41 "
    # further families
    "cpubone_t0 cspnext_s densenetblur121d dpn48b ese_vovnet19b_dw efficientvim_m1 fasternet_t0 ghostnetv3_050 hgnetv2_b0 iformer_t lcnetv2_small "
    "legacy_seresnet18 legacy_xception lowformer_b0 mambaout_femto mobilenetv5_300m rdnet_tiny resnest14d resnetv2_18 resnetv2_50x1_bit shvit_s1 "
    "swiftformer_xs mobilenetv4_hybrid_medium fbnetv3_b semnasnet_050 spnasnet_100 mobilenetv3_small_050 efficientnet_es cs3darknet_s regnety_002 "
    "test_byobnet test_efficientnet test_efficientnet_gn test_efficientnet_ln test_efficientnet_evos test_nfnet test_resnet test_convnext test_convnext2 "
    "test_mambaout test_convnext3 eca_resnet33ts convnext_atto_ols convnext_zepto_rms caformer_s18 convformer_s18 poolformerv2_s12 efficientnet_cc_b0_4e "
    "tf_mobilenetv3_small_minimal_100 mobilenetv1_100 dla46x_c regnetx_002 regnetv_040 pnasnet5large nasnetalarge", image(128))
pytorch_image_models("inception_v4 inception_resnet_v2 resnet50_gn resnetblur50 resnetaa34d resnetrs50", image(160))
pytorch_image_models(
    "vit_tiny_patch16_224 deit_tiny_patch16_224 cait_xxs24_224 crossvit_tiny_240 levit_128s pit_ti_224 mixer_s16_224 resmlp_12_224 gmlp_ti16_224 "
    "xcit_nano_12_p16_224 twins_svt_small visformer_tiny coat_tiny mobilevit_xxs mobilevitv2_050 efficientformer_l1 swin_s3_tiny_224 "
    "swinv2_cr_tiny_ns_224 coatnet_nano_rw_224 volo_d1_224 beit_base_patch16_224 eva02_tiny_patch14_224 "
    "tiny_vit_5m_224 sequencer2d_s pvt_v2_b0 davit_tiny focalnet_tiny_srf mvitv2_tiny hiera_tiny_224 nest_tiny gcvit_xxtiny convit_tiny "
    "repvit_m1 efficientvit_m0 tnt_s_patch16_224 nextvit_small tresnet_m "
    # further families
    "deit3_small_patch16_224 efficientformerv2_s0 vit_relpos_small_patch16_224 vit_srelpos_small_patch16_224 vitamin_small_224 vit_tiny_r_s16_p8_224 "
    "crossvit_9_dagger_240 gmixer_12_224 levit_conv_128s twins_pcpvt_small coat_lite_mini pit_s_distilled_224 swin_tiny_patch4_window7_224 "
    "vit_small_patch16_rope_224 vit_xsmall_patch16_clip_224 samvit_base_patch16_224 aimv2_large_patch14_224 "
    "naflexvit_base_patch16_gap hiera_small_abswin_256", image(224))
pytorch_image_models("test_vit test_vit2 test_vit3 test_vit4 test_vit_relpos test_coatnet test_maxvit", image(160))
pytorch_image_models("botnet26t_256 halonet26t bat_resnext26ts maxvit_rmlp_pico_rw_256 swinv2_tiny_window8_256 vit_small_patch16_dinov3 "
                     "vit_wee_patch16_reg1_gap_256", image(256))
pytorch_image_models("hieradet_small", image(256))
