"""torchvision: classifiers, segmentation, videos, optical flow, and detectors before anchors and suppression."""
import torch
import torchvision

from real.nets import floats, image, row


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


class Region(torch.nn.Module):
    """What a detector does with regions: RoI align and a head."""

    def __init__(self, net, head):
        super().__init__()
        self.head = torch.nn.Sequential(*(getattr(net.roi_heads, f"{head}_{part}") for part in ("head", "predictor")))

    def forward(self, x):
        return self.head(x)


def detector(names, inputs):
    for name in names.split():
        row(f"torchvision.{name}", lambda name=name: Backbone(torchvision.models.get_model(name, weights=None, weights_backbone=None)), inputs)


def regions(name, head, side):
    row(f"torchvision.{name}-{head}", lambda: Region(torchvision.models.get_model(name, weights=None, weights_backbone=None), head),
        floats((2, 256, side, side), (5, 256, side, side)))


class Flow(torch.nn.Module):
    """Two steps of optical flow."""

    def __init__(self, name):
        super().__init__()
        self.net = torchvision.models.get_model(name, weights=None)

    def forward(self, first, second):
        return self.net(first, second, num_flow_updates=2)


vision("alexnet vgg11 vgg11_bn vgg19_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 densenet161 googlenet shufflenet_v2_x0_5 "
       "shufflenet_v2_x2_0 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet0_5 mnasnet1_3 squeezenet1_0 squeezenet1_1 efficientnet_b0 "
       "efficientnet_b4 efficientnet_v2_s efficientnet_v2_m regnet_x_400mf regnet_y_400mf regnet_x_3_2gf regnet_y_3_2gf convnext_tiny convnext_base",
       image(64, 128, 96))
vision("swin_t swin_s swin_v2_t swin_v2_b", image(96))    # of other sizes torch.export takes a quarter of an hour
vision("inception_v3", image(96, 128, 96))
vision("vit_b_16 vit_b_32", image(64), image_size=64)
vision("maxvit_t", image(224))
vision("lraspp_mobilenet_v3_large deeplabv3_mobilenet_v3_large fcn_resnet50 deeplabv3_resnet50", image(96, 128, 64), weights_backbone=None)
vision("r3d_18 mc3_18 r2plus1d_18", floats((2, 3, 4, 32, 32), (3, 3, 4, 32, 32), (1, 3, 6, 48, 32)))
vision("s3d mvit_v1_b mvit_v2_s", floats((1, 3, 16, 224, 224)))
vision("swin3d_t swin3d_b", floats((1, 3, 4, 64, 64), (2, 3, 4, 64, 64)))
detector("fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_resnet50_fpn_v2 maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn ssdlite320_mobilenet_v3_large "
         "retinanet_resnet50_fpn retinanet_resnet50_fpn_v2 fcos_resnet50_fpn", image(128, 192, 128))
detector("ssd300_vgg16", image(300))
regions("fasterrcnn_resnet50_fpn", "box", 7)
regions("maskrcnn_resnet50_fpn", "mask", 14)
for flow in "raft_small raft_large".split():
    row(f"torchvision.{flow}", lambda flow=flow: Flow(flow), lambda: [{n: torch.randn(k, 3, 128, 128) for n in (0, 1)} for k in (1, 2)])
