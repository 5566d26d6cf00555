"""Networks in plain PyTorch: sound, recommendation, graphs, states, spikes, splines, images, series."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from real.nets import floats, row


def plain(group, inputs):
    """Decorates a class: the network GROUP.CLASS, made without arguments."""
    def add(cls):
        row(f"torch.{group}-{cls.__name__.lower()}", cls, inputs)
        return cls
    return add


def ids(high, *shapes):
    return lambda: [{0: torch.randint(0, high, shape)} for shape in shapes]


def mlp(*widths):
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


# ---- sound
WAVE = floats((2, 1, 1024), (3, 1, 1024), (1, 1, 1536))
MEL = floats((2, 40, 32), (3, 40, 32), (1, 40, 48))


@plain("sound", WAVE)
class ConvTasNet(nn.Module):
    def __init__(self, c=16, h=24):
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, c, 16, 8, 4), nn.ConvTranspose1d(c, 1, 16, 8, 4)
        self.norm, self.masks = nn.GroupNorm(1, c), nn.Conv1d(c, 2 * c, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv1d(c, h, 1), nn.PReLU(), nn.GroupNorm(1, h), nn.Conv1d(h, h, 3, 1, d, d, h), nn.PReLU(),
                                                  nn.GroupNorm(1, h), nn.Conv1d(h, c, 1)) for d in (1, 2, 4))

    def forward(self, x):
        e = self.encoder(x)
        y = self.norm(e)
        for block in self.blocks:
            y = y + block(y)
        masks = self.masks(y).sigmoid().unflatten(1, (2, -1))
        return torch.stack([self.decoder(masks[:, k] * e) for k in range(2)], 1)


@plain("sound", WAVE)
class Demucs(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (1, 8, 16, 32)
        self.down = nn.ModuleList(nn.Sequential(nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(nn.Sequential(nn.Conv1d(b, 2 * b, 3, 1, 1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4, 2))
                                for a, b in reversed(list(zip(widths, widths[1:]))))
        self.lstm, self.join = nn.LSTM(32, 32, 2, bidirectional=True), nn.Linear(64, 32)

    def forward(self, x):
        scale = x.std(-1, keepdim=True) + 1e-3
        x, skips = x / scale, []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.join(self.lstm(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for layer in self.up:
            skip = skips.pop()
            x = layer(x[..., :skip.shape[-1]] + skip)
        return x * scale


@plain("sound", MEL)
class DeepSpeech(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(1, 8, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
        self.gru, self.out = nn.GRU(160, 32, 2, batch_first=True, bidirectional=True), nn.Linear(64, 29)

    def forward(self, x):
        x = self.convs(x.unsqueeze(1)).flatten(1, 2).transpose(1, 2)
        return self.out(self.gru(x)[0]).log_softmax(-1)


@plain("sound", MEL)
class Wav2Letter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(40, 32, 9, 2, 4), nn.ReLU(), nn.Conv1d(32, 32, 7, padding="same"), nn.ReLU(), nn.Conv1d(32, 29, 1), nn.LogSoftmax(1))

    def forward(self, x):
        return self.net(x)


@plain("sound", floats((2, 32, 40), (3, 32, 40), (1, 48, 40)))
class Conformer(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.first, self.last = (nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)) for _ in range(2))
        self.norm, self.attention, self.end = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, batch_first=True), nn.LayerNorm(d)
        self.conv = nn.Sequential(nn.Conv1d(d, 2 * d, 1), nn.GLU(1), nn.Conv1d(d, d, 15, 1, 7, 1, d), nn.BatchNorm1d(d), nn.SiLU(), nn.Conv1d(d, d, 1))

    def forward(self, x):
        x = x + self.first(x) / 2
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.end(x + self.last(x) / 2)


@plain("sound", MEL)
class HiFiGan(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.first, self.last = norm(nn.Conv1d(40, 32, 7, 1, 3)), norm(nn.Conv1d(8, 1, 7, 1, 3))
        self.ups = nn.ModuleList(norm(nn.ConvTranspose1d(32 >> i, 16 >> i, 8, 4, 2)) for i in range(2))
        self.blocks = nn.ModuleList(nn.ModuleList(norm(nn.Conv1d(16 >> i, 16 >> i, k, 1, (k - 1) * d // 2, d)) for k, d in ((3, 1), (7, 3))) for i in range(2))

    def forward(self, x):
        x = self.first(x)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(x + conv(F.leaky_relu(x, 0.1)) for conv in blocks) / 2
        return self.last(F.leaky_relu(x)).tanh()


@plain("sound", lambda: [{0: torch.randn(n, k, 24), 1: torch.randint(0, 29, (n, u))} for n, k, u in ((2, 9, 5), (3, 9, 5), (1, 12, 4))])
class Transducer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.embed, self.predictor, self.joint = nn.LSTM(24, 32, batch_first=True), nn.Embedding(29, 16), nn.LSTM(16, 32, batch_first=True), \
            nn.Linear(32, 29)

    def forward(self, x, y):
        e, p = self.encoder(x)[0], self.predictor(self.embed(y))[0]
        return self.joint((e[:, :, None] + p[:, None]).tanh()).log_softmax(-1)


@plain("sound", WAVE)
class MelSpectrogram(nn.Module):
    """The transform as a convolution."""

    def __init__(self, n=64):
        super().__init__()
        angle = 2 * math.pi / n * torch.arange(n) * torch.arange(n // 2 + 1)[:, None]
        self.register_buffer("basis", (torch.cat([angle.cos(), angle.sin()]) * torch.hann_window(n))[:, None])
        self.register_buffer("mel", torch.rand(n // 2 + 1, 20))

    def forward(self, x):
        re, im = F.conv1d(F.pad(x, (32, 32), mode="reflect"), self.basis, stride=16).chunk(2, 1)
        power = (re.square() + im.square()).transpose(1, 2) @ self.mel
        return (10 * power.clamp(min=1e-10).log10()).transpose(1, 2)


# ---- recommendation
@plain("recommend", lambda: [{0: torch.randn(n, 13), 1: torch.randint(0, 50, (n, 4, 3))} for n in (2, 5)])
class DLRM(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.dense, self.tables, self.top = mlp(13, 16, d), nn.ModuleList(nn.EmbeddingBag(50, d, mode="sum") for _ in range(4)), mlp(d + 10, 16, 1)

    def forward(self, x, i):
        rows = [self.dense(x)] + [table(i[:, k]) for k, table in enumerate(self.tables)]
        stack = torch.stack(rows, 1)
        a, b = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([rows[0], torch.bmm(stack, stack.mT)[:, a, b]], 1)).sigmoid()


@plain("recommend", ids(30, (2, 6), (5, 6)))
class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.embed, self.deep = nn.Embedding(180, 1), nn.Embedding(180, 8), mlp(48, 16, 1)
        self.register_buffer("offsets", torch.arange(6) * 30)

    def forward(self, i):
        i = i + self.offsets
        v = self.embed(i)
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(1, keepdim=True) / 2
        return (self.linear(i).sum(1) + pairs + self.deep(v.flatten(1))).sigmoid()


@plain("recommend", floats((2, 24), (5, 24)))
class DeepCross(nn.Module):
    def __init__(self):
        super().__init__()
        self.cross, self.deep, self.out = nn.ModuleList(nn.Linear(24, 24) for _ in range(3)), mlp(24, 16, 8), nn.Linear(32, 1)

    def forward(self, x):
        y = x
        for layer in self.cross:
            y = x * layer(y) + y
        return self.out(torch.cat([y, self.deep(x)], 1)).sigmoid()


@plain("recommend", ids(40, (2, 8), (3, 8), (3, 6)))
class SASRec(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.items, self.places = nn.Embedding(40, d, padding_idx=0), nn.Embedding(16, d)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 32, batch_first=True, norm_first=True) for _ in range(2))

    def forward(self, i):
        n = i.shape[1]
        x = self.items(i) * 4 + self.places(torch.arange(n))
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return x[:, -1] @ self.items.weight.T


@plain("recommend", lambda: [{0: torch.randint(0, 40, (n, k)), 1: torch.randint(0, 40, (n,))} for n, k in ((2, 8), (5, 8), (5, 6))])
class InterestNetwork(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.items, self.score, self.out = nn.Embedding(40, d), mlp(4 * d, 16, 1), mlp(2 * d, 16, 1)

    def forward(self, history, target):
        h, t = self.items(history), self.items(target)
        wide = t[:, None].expand_as(h)
        w = self.score(torch.cat([h, wide, h - wide, h * wide], -1)).masked_fill((history == 0)[..., None], -1e9).softmax(1)
        return self.out(torch.cat([(w * h).sum(1), t], 1)).sigmoid()


@plain("recommend", lambda: [{0: torch.randint(0, 40, (n,)), 1: torch.randint(0, 60, (n,))} for n in (2, 5)])
class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = (nn.Sequential(nn.Embedding(k, 16), mlp(16, 16, 8)) for k in (40, 60))

    def forward(self, u, i):
        return F.cosine_similarity(self.user(u), self.item(i)), F.normalize(self.user(u)) @ F.normalize(self.item(i)).T


# ---- graphs: features of nodes, and edges as pairs of numbers
def graph():
    return [{0: torch.randn(n, 8), 1: torch.randint(0, n, (2, e))} for n, e in ((10, 24), (10, 24), (12, 30))]


@plain("graph", graph)
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])

    def forward(self, x, edges):
        a, b = edges
        n = x.shape[0]
        degree = torch.ones(n).index_add(0, b, torch.ones(b.shape[0])).rsqrt()
        for i, layer in enumerate(self.layers):
            h = layer(x) * degree[:, None]
            x = (h + torch.zeros_like(h).index_add(0, b, h[a])) * degree[:, None]
            x = x.relu() if i == 0 else x
        return x.log_softmax(1)


@plain("graph", graph)
class GAT(nn.Module):
    def __init__(self, heads=2, d=8):
        super().__init__()
        self.heads, self.d, self.linear = heads, d, nn.Linear(8, heads * d, bias=False)
        self.target, self.source = nn.Parameter(torch.randn(heads, d)), nn.Parameter(torch.randn(heads, d))

    def forward(self, x, edges):
        a, b = edges
        h = self.linear(x).view(-1, self.heads, self.d)
        e = F.leaky_relu((h * self.source).sum(-1)[a] + (h * self.target).sum(-1)[b], 0.2)
        most = torch.full((x.shape[0], self.heads), -1e30).scatter_reduce(0, b[:, None].expand_as(e), e, "amax")
        w = (e - most[b]).exp()
        total = torch.zeros(x.shape[0], self.heads).index_add(0, b, w)
        out = torch.zeros_like(h).index_add(0, b, (w / (total[b] + 1e-9))[..., None] * h[a])
        return F.elu(out.flatten(1))


@plain("graph", graph)
class GIN(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps, self.mlps = nn.Parameter(torch.zeros(2)), nn.ModuleList([mlp(8, 16, 16), mlp(16, 16, 16)])

    def forward(self, x, edges):
        a, b = edges
        for eps, layer in zip(self.eps, self.mlps):
            x = layer((1 + eps) * x + torch.zeros_like(x).scatter_add(0, b[:, None].expand(-1, x.shape[1]), x[a]))
        return x.sum(0), x.mean(0), x.amax(0)


@plain("graph", graph)
class GraphSage(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.others = nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, x, edges):
        a, b = edges
        mean = torch.zeros_like(x).scatter_reduce(0, b[:, None].expand(-1, 8), x[a], "mean", include_self=False)
        return F.normalize((self.own(x) + self.others(mean)).relu())


@plain("graph", lambda: [{0: torch.randint(0, 10, (n,)), 1: torch.randn(n, 3)} for n in (6, 6, 8)])
class SchNet(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed, self.filter, self.dense, self.out = nn.Embedding(10, d), mlp(8, d, d), nn.Linear(d, d), mlp(d, 8, 1)
        self.register_buffer("centres", torch.linspace(0, 4, 8))

    def forward(self, z, place):
        x, r = self.embed(z), torch.cdist(place, place)
        w = self.filter((-2 * (r[..., None] - self.centres).square()).exp()) * (r < 3)[..., None]
        for _ in range(2):
            x = x + F.softplus(self.dense((w * x[None]).sum(1))) - math.log(2)
        return self.out(x).sum()


# ---- states: recurrences, scans, spikes
WORDS = ids(40, (2, 6), (3, 6), (2, 9))


@plain("state", floats((2, 8, 16), (3, 8, 16)))
class Mamba(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.enter, self.conv, self.leave = nn.Linear(d, 4 * d), nn.Conv1d(2 * d, 2 * d, 4, padding=3, groups=2 * d), nn.Linear(2 * d, d)
        self.select, self.step, self.rates, self.skip = nn.Linear(2 * d, 2 * n + 2), nn.Linear(2, 2 * d), nn.Parameter(torch.randn(2 * d, n)), \
            nn.Parameter(torch.ones(2 * d))
        self.n = n

    def forward(self, x):
        u, gate = self.enter(x).chunk(2, -1)
        u = F.silu(self.conv(u.mT)[..., :x.shape[1]].mT)
        b, c, dt = self.select(u).split([self.n, self.n, 2], -1)
        dt, state, ys = F.softplus(self.step(dt)), 0, []
        for t in range(x.shape[1]):
            decay = (dt[:, t, :, None] * -self.rates.exp()).exp()
            state = decay * state + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
            ys.append((state * c[:, t, None]).sum(-1))
        return self.leave((torch.stack(ys, 1) + u * self.skip) * F.silu(gate))


@plain("state", WORDS)
class RWKV(nn.Module):
    """Time mixing as one product over all pairs of times."""

    def __init__(self, d=16):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(40, d), nn.LayerNorm(d), nn.Linear(d, 40)
        self.r, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.mix, self.decay, self.first = (nn.Parameter(torch.rand(d)) for _ in range(3))

    def forward(self, i):
        x = self.norm(self.embed(i))
        past = F.pad(x, (0, 0, 1, -1))
        y = x * self.mix + past * (1 - self.mix)
        n = torch.arange(x.shape[1])
        gap = (n[:, None] - n - 1).clamp(min=0)[..., None]
        w = torch.where((n[:, None] == n)[..., None], self.first, -self.decay.exp() * gap)
        w = w.masked_fill((n > n[:, None])[..., None], -1e9)
        weight = (w + self.k(y)[:, None]).softmax(2)
        return self.out(x + self.o(self.r(y).sigmoid() * (weight * self.v(y)[:, None]).sum(2)))


@plain("state", floats((2, 6, 16), (3, 6, 16)))
class RetNet(nn.Module):
    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads, self.q, self.k, self.v, self.g, self.o = heads, *(nn.Linear(d, d) for _ in range(5))
        self.norm = nn.GroupNorm(heads, d)
        self.register_buffer("decay", 1 - 2 ** (-5 - torch.arange(heads, dtype=torch.float)))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        n = torch.arange(x.shape[1])
        gap = (n[:, None] - n).to(x.dtype)
        mask = torch.where(gap >= 0, self.decay[:, None, None] ** gap, 0)
        y = (q @ k.mT * mask) @ v
        y = self.norm(y.transpose(1, 2).flatten(2).flatten(0, 1)).view_as(x)
        return self.o(F.silu(self.g(x)) * y)


@plain("state", floats((2, 8, 12), (3, 8, 12)))
class MinGRU(nn.Module):
    """A recurrence as a scan in logarithms."""

    def __init__(self, d=12):
        super().__init__()
        self.both = nn.Linear(d, 2 * d)

    def forward(self, x):
        h, gate = self.both(x).chunk(2, -1)
        keep, value = -F.softplus(gate), -F.softplus(-gate) + torch.where(h >= 0, (F.relu(h) + 0.5).log(), -F.softplus(-h))
        total = keep.cumsum(1)
        return (total + (value - total).logcumsumexp(1)).exp()


@plain("state", WORDS)
class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(40, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, 40)

    def forward(self, i):
        y, (h, c) = self.lstm(self.embed(i))
        return self.out(y), h, c


@plain("state", lambda: [{0: torch.randint(0, 40, (n, k)), 1: torch.randint(0, 40, (n, 4))} for n, k in ((2, 6), (3, 6), (2, 9))])
class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.encoder, self.cell, self.out = nn.Embedding(40, 16), nn.GRU(16, 24, batch_first=True), nn.GRUCell(40, 24), nn.Linear(48, 40)

    def forward(self, source, target):
        memory, h = self.encoder(self.embed(source))
        h, ys, context = h[0], [], memory.mean(1)
        for t in range(target.shape[1]):
            h = self.cell(torch.cat([self.embed(target[:, t]), context], 1), h)
            w = (memory @ h[..., None]).softmax(1)
            context = (w * memory).sum(1)
            ys.append(self.out(torch.cat([h, context], 1)))
        return torch.stack(ys, 1)


@plain("state", floats((2, 1, 16, 16), (3, 1, 16, 16)))
class Spikes(nn.Module):
    """Leaky integrate and fire, four steps."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 8, 3, 2, 1), nn.Linear(512, 10)

    def forward(self, x):
        first = second = 0
        total = 0
        current = self.conv(x)
        for _ in range(4):
            first = 0.9 * first + current
            spike = (first > 1).to(x.dtype)
            first = first - spike
            second = 0.9 * second + self.out(spike.flatten(1))
            fire = (second > 1).to(x.dtype)
            second = second * (1 - fire)
            total = total + second
        return total


@plain("state", floats((2, 3, 2, 16, 16), (3, 3, 2, 16, 16)))
class ConvLSTM(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.d, self.gates = d, nn.Conv2d(2 + d, 4 * d, 3, padding=1)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.d, *x.shape[3:])
        for t in range(x.shape[1]):
            i, f, o, g = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h, c


# ---- images
IMAGE = floats((2, 3, 32, 32), (3, 3, 32, 32), (1, 3, 48, 32))


@plain("image", IMAGE)
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        def double(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU(True), nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU(True))
        self.downs = nn.ModuleList([double(3, 8), double(8, 16), double(16, 32)])
        self.ups, self.joins, self.out = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)]), \
            nn.ModuleList([double(32, 16), double(16, 8)]), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        skips = []
        for i, down in enumerate(self.downs):
            x = down(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for up, join, skip in zip(self.ups, self.joins, skips[-2::-1]):
            x = up(x)
            x = F.pad(x, [0, skip.shape[3] - x.shape[3], 0, skip.shape[2] - x.shape[2]])
            x = join(torch.cat([skip, x], 1))
        return self.out(x)


@plain("image", IMAGE)
class Yolo(nn.Module):
    """Boxes of a grid, decoded."""

    def __init__(self, anchors=3, classes=4):
        super().__init__()
        self.anchors, self.classes = anchors, classes
        self.body = nn.Sequential(*(layer for a, b in ((3, 8), (8, 16), (16, 32)) for layer in (nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.SiLU())))
        self.fine, self.head = nn.Conv2d(48, 16, 1), nn.ModuleList([nn.Conv2d(32, anchors * (5 + classes), 1), nn.Conv2d(16, anchors * (5 + classes), 1)])
        self.pool = nn.MaxPool2d(5, 1, 2)

    def decode(self, x, stride):
        b, _, h, w = x.shape
        x = x.view(b, self.anchors, 5 + self.classes, h, w).permute(0, 1, 3, 4, 2)
        y, x0 = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([x0, y], -1).to(x.dtype)
        centre, size, rest = x.sigmoid().split([2, 2, 1 + self.classes], -1)
        return torch.cat([(centre * 2 - 0.5 + grid) * stride, (size * 2) ** 2 * stride, rest], -1).reshape(b, -1, 5 + self.classes)

    def forward(self, x):
        mid = self.body[:6](x)
        low = self.body[6:](mid)
        low = low + self.pool(low)
        fine = self.fine(torch.cat([F.interpolate(low, scale_factor=2.0, mode="nearest"), mid], 1))
        out = torch.cat([self.decode(self.head[0](low), 8), self.decode(self.head[1](fine), 4)], 1)
        score, best = (out[..., 4:5] * out[..., 5:]).amax(-1).topk(5, 1)
        return out, score, best


@plain("image", floats((2, 16, 1, 1), (3, 16, 1, 1)))
class DCGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.ConvTranspose2d(16, 32, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16),
                                 nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z)


@plain("image", IMAGE)
class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2, padding_mode="reflect"), nn.PReLU(16), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        return self.net(x) + F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False)


@plain("image", IMAGE)
class StyleTransfer(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.mid, self.up = nn.Conv2d(3, 8, 9, 2, 4), nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 3, 9, 1, 4)
        self.norms = nn.ModuleList(nn.InstanceNorm2d(8, affine=True) for _ in range(2))

    def forward(self, x):
        y = self.norms[0](self.down(x)).relu()
        y = y + self.norms[1](self.mid(y)).relu()
        return self.up(F.interpolate(y, scale_factor=2.0, mode="bilinear")).sigmoid()


@plain("image", floats((2, 1, 28, 28), (3, 1, 28, 28)))
class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(1, 4, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(484, 6))

    def forward(self, x):
        theta = self.where(x).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


@plain("image", floats((2, 1, 20, 20), (3, 1, 20, 20)))
class Capsules(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.w = nn.Conv2d(1, 16, 9, 2), nn.Parameter(torch.randn(1, 144, 10, 8, 4) * 0.1)

    @staticmethod
    def squash(x):
        n = x.square().sum(-1, keepdim=True)
        return n / (1 + n) * x / (n.sqrt() + 1e-8)

    def forward(self, x):
        u = self.squash(self.conv(x).reshape(x.shape[0], 144, 1, 1, 4))
        u = (self.w @ u.transpose(-1, -2)).squeeze(-1)
        b = torch.zeros_like(u[..., 0])
        for _ in range(3):
            v = self.squash((b.softmax(2)[..., None] * u).sum(1, keepdim=True))
            b = b + (u * v).sum(-1)
        return v.squeeze(1).norm(dim=-1)


@plain("image", lambda: [{0: torch.randn(n, 3, k)} for n, k in ((2, 20), (3, 20), (2, 30))])
class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.points, self.out = nn.Linear(16, 9), nn.Conv1d(3, 16, 1), mlp(16, 16, 10)
        self.first = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())

    def forward(self, x):
        t = self.turn(self.first(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        return self.out(self.points(torch.bmm(x.transpose(2, 1), t).transpose(2, 1)).relu().max(2).values).log_softmax(1)


# ---- others
@plain("other", floats((2, 6), (5, 6)))
class KAN(nn.Module):
    """B-splines of degree 3 on each edge, as efficient-kan has them."""

    def __init__(self, sizes=(6, 8, 3), grid=5, order=3):
        super().__init__()
        self.order = order
        self.base = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in zip(sizes, sizes[1:]))
        self.splines = nn.ParameterList(torch.randn(b, a, grid + order) * 0.1 for a, b in zip(sizes, sizes[1:]))
        self.register_buffer("knots", torch.arange(-order, grid + order + 1) * (2.0 / grid) - 1)

    def basis(self, x):
        x, g = x[..., None], self.knots
        b = ((x >= g[:-1]) & (x < g[1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            b = (x - g[:-k - 1]) / (g[k:-1] - g[:-k - 1]) * b[..., :-1] + (g[k + 1:] - x) / (g[k + 1:] - g[1:-k]) * b[..., 1:]
        return b

    def forward(self, x):
        for base, spline in zip(self.base, self.splines):
            x = base(F.silu(x)) + F.linear(self.basis(x).flatten(1), spline.flatten(1))
        return x


@plain("other", lambda: [{0: torch.rand(n, 6, 16), 1: torch.rand(n, 4, 16)} for n in (2, 3)])
class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source, target):
        return self.net(source, target, tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]), tgt_is_causal=True)


@plain("other", floats((4, 3), (9, 3)))
class NeRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = mlp(39, 32, 32), mlp(32 + 39, 32, 4)
        self.register_buffer("bands", 2.0 ** torch.arange(6))

    def forward(self, x):
        angles = (x[..., None] * self.bands).flatten(1)
        e = torch.cat([x, angles.sin(), angles.cos()], -1)
        rgb, sigma = self.second(torch.cat([self.first(e).relu(), e], -1)).split([3, 1], -1)
        alpha = 1 - (-sigma.relu() * 0.1).exp()
        weight = alpha * torch.cumprod(torch.cat([torch.ones(1, 1), 1 - alpha[:-1]]), 0)
        return (weight * rgb.sigmoid()).sum(0)


@plain("other", floats((2, 4), (5, 4)))
class Flow(nn.Module):
    """Affine couplings and the log-determinant."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(mlp(2, 16, 4) for _ in range(4))

    def forward(self, x):
        log = 0
        for net in self.nets:
            a, b = x.chunk(2, 1)
            s, t = net(a).chunk(2, 1)
            s = s.tanh()
            x, log = torch.cat([b * s.exp() + t, a], 1), log + s.sum(1)
        return x, log - 0.5 * x.square().sum(1) - 2 * math.log(2 * math.pi)


@plain("other", floats((2, 1, 24), (3, 1, 24), (2, 1, 32)))
class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs, self.skips = nn.ModuleList(nn.Conv1d(a, 8, 3, dilation=d) for a, d in ((1, 1), (8, 2), (8, 4))), nn.Conv1d(1, 8, 1)

    def forward(self, x):
        y = x
        for conv in self.convs:
            y = conv(F.pad(y, (2 * conv.dilation[0], 0))).relu()
        return y + self.skips(x)


@plain("other", floats((2, 16), (5, 16)))
class NBeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(mlp(16, 24, 20) for _ in range(3))

    def forward(self, x):
        total = 0
        for block in self.blocks:
            back, ahead = block(x).split([16, 4], 1)
            x, total = x - back, total + ahead
        return total


@plain("other", floats((2, 6, 12), (3, 6, 12), (2, 9, 12)))
class Experts(nn.Module):
    """The two best of four experts, by weights of all."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(12, 4), nn.Parameter(torch.randn(4, 12, 24) * 0.2), nn.Parameter(torch.randn(4, 24, 12) * 0.2)

    def forward(self, x):
        weight, best = self.gate(x).topk(2, -1)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, best, weight.softmax(-1))
        h = torch.einsum("btd,edh->bteh", x, self.up)
        return torch.einsum("bteh,ehd,bte->btd", F.gelu(h, approximate="tanh"), self.down, weights)


@plain("other", floats((2, 5, 8), (3, 5, 8), (2, 7, 8)))
class SetTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.seeds, self.points = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(3, 8))
        self.attend = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(3))

    def forward(self, x):
        h = self.attend[0](self.points.expand(x.shape[0], -1, -1), x, x)[0]
        x = x + self.attend[1](x, h, h)[0]
        y, w = self.attend[2](self.seeds.expand(x.shape[0], -1, -1), x, x)
        return y, w


@plain("other", floats((2, 3), (5, 3)))
class NeuralODE(nn.Module):
    """Four steps of Runge-Kutta."""

    def __init__(self):
        super().__init__()
        self.f = mlp(3, 16, 3)

    def forward(self, x):
        path, h = [x], 0.25
        for _ in range(4):
            a = self.f(x)
            b = self.f(x + h / 2 * a)
            c = self.f(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + self.f(x + h * c))
            path.append(x)
        return torch.stack(path, 1)


@plain("other", floats((2, 1, 16, 16), (3, 1, 16, 16)))
class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 4, 2, 1)), nn.Sequential(
            nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))
        self.codes = nn.Embedding(12, 4)

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1)
        i = torch.cdist(z.flatten(0, 2), self.codes.weight).argmin(1).view(z.shape[:-1])
        q = self.codes(i)
        return self.decoder(q.permute(0, 3, 1, 2)), i, (q - z).square().mean()
