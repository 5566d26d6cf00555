"""Small modules that record.py exports: MODULES of (maker, inputs at two sizes, which dims are dynamic)."""
import torch
from torch import nn
from torch._higher_order_ops import map as mapped, scan, while_loop
from torch.export import Dim


class Residual(nn.Module):
    """Convolutions, batch norms, writes in place, a residual, a pool, named results."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 5)
        self.head2 = nn.Linear(8, 5)
        self.head2.weight = self.head.weight    # tied
        for parameter in (self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias):
            parameter.data.uniform_(0.5, 1.5)

    def forward(self, image):
        x = self.relu(self.norm(self.first(image)))
        y = nn.functional.hardswish(self.depthwise(x), inplace=True)
        y += x
        y = nn.functional.max_pool2d(y, 2)
        pooled = nn.functional.dropout(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1), 0.2, self.training)
        return {"logits": self.head(pooled), "other": [self.head2(pooled).softmax(-1), pooled.shape[0] * pooled.mean(1)]}


class Encoder(nn.Module):
    """Embeddings, masks, a transposed weight, attention, a layer norm, dynamic dims."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(32, 16)
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)
        self.turned = nn.Parameter(torch.randn(16, 12).t())
        self.register_buffer("mask", torch.tril(torch.ones(32, 32, dtype=torch.bool)), persistent=False)

    def forward(self, ids, keep):
        n, length = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(length))
        q, k, v = (t.view(n, length, 4, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).split(16, dim=-1))
        mask = self.mask[:length, :length] & keep[:, None, None, :].bool()
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, 16))
        return x, nn.functional.gelu(x, approximate="tanh") @ self.turned.t()


class Filled(nn.Module):
    """Writes through views: slices, an index, a transposed view; what was read before stays."""

    def forward(self, x):
        canvas = torch.zeros(x.shape[0], 6, 4)
        canvas[:, 1:3] = x
        before = canvas + 0
        canvas[:, 4].add_(x[:, 0])
        canvas.transpose(1, 2)[:, 0].mul_(3)
        row = canvas[:, 2]
        canvas[:, 2, 1:3] = 7
        canvas[0, torch.tensor([0, 5])] = 1.5
        return before, canvas, row * 2


class Branching(nn.Module):
    """A branch inside of a branch, a loop that the data ends, both with weights."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, count):
        def rising(x):
            return torch.cond(x.sum() > 2, lambda x: x + 1, lambda x: self.up(x), (x,))

        y = torch.cond(x.mean() > 0, rising, lambda x: self.down(x).relu(), (x,))
        steps, z = while_loop(lambda k, z: (k < count) & (z.abs().max() < 50), lambda k, z: (k + 1, self.up(z) * 1.5),
                              (torch.zeros((), dtype=torch.int64), x))
        return y, steps, z


class Scanning(nn.Module):
    """A recurrence over a dynamic length, and a map over the same."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, start, rows):
        last, all_rows = scan(lambda state, row: ((next := torch.tanh(self.step(state) + row)), next * 2), start, rows)
        return last, all_rows, mapped(lambda row, start: row.softmax(-1) + start, rows, start)


class Casting(nn.Module):
    """Wrappers: gradients, which do not count; autocast: products in bfloat16, a softmax in float32, and a region without."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)

    def forward(self, x):
        with torch.enable_grad():
            x = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.first(x)
            with torch.autocast("cpu", enabled=False):
                z = y.float() @ y.float().t()
            z = z.softmax(-1) + (y @ y.t()).softmax(-1)
        return z


class Keeping(nn.Module):
    """State: a cache of which a run writes one row, a mean, a count; the mean is no zero at first and not in the weights."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 6, 4))
        self.register_buffer("mean", torch.full((4,), 0.5), persistent=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        self.cache[:, self.count.view(1)] = self.proj(x)[:, None]
        self.mean.mul_(0.75).add_(x.mean(0), alpha=0.25)
        self.count += 1
        return {"seen": self.cache.sum(1) * self.mean, "count": self.count * 2}


class Recurrent(nn.Module):
    """LSTM and GRU of two layers; a cell."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru, self.cell = nn.GRU(8, 5, num_layers=2), nn.LSTMCell(5, 4)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y.transpose(0, 1))
        return y, h * c, z, self.cell(last[-1])[0]


class Sized(nn.Module):
    """Pools, numbers, pieces and windows of dynamic sizes; statistics of the batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x):
        h, w = x.shape[2], x.shape[3]
        pooled = nn.functional.adaptive_avg_pool2d(x, (3, None)), nn.functional.adaptive_avg_pool2d(x, (w, 2))
        numbers = torch.arange(h, -w, -1.0), torch.arange(0.5, h, 0.75), torch.arange(0, w * 2, 2)
        pieces = torch.tensor_split(x, 2, dim=1) + torch.tensor_split(x, (1, -1), dim=1)
        grid = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        diagonal = x[0].diagonal(1, 1, 2), x.unfold(2, 3, 2).sum(-1), torch.nn.functional.unfold(x, 2, padding=1)
        return pooled, numbers, [p * 2 for p in pieces], grid[0] * grid[1], diagonal, self.norm(x)


class Spectral(nn.Module):
    """Complex numbers within: rotary embeddings from a complex buffer, transforms there and back, a spectrogram."""

    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(8.0), torch.tensor([1.0, 0.3, 0.1]))
        self.register_buffer("turns", torch.polar(torch.ones(8, 3), angles))
        self.gain = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x):
        z = torch.view_as_complex(x.reshape(x.shape[0], 8, 3, 2)) * self.turns[None]
        y = torch.view_as_real(z).flatten(2)
        mixed = torch.fft.irfft(torch.fft.rfft(y.sum(2)) * self.gain, n=8)
        frames = torch.stft(y.reshape(x.shape[0], 48), 16, window=torch.hann_window(16), return_complex=True)
        return y, mixed, frames.abs(), torch.fft.fftshift(torch.fft.fft2(y), dim=(1, 2)).angle().cos()


class Training(nn.Module):
    """Batch norm in training mode: it writes its running statistics."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        self.norm.train()
        return self.norm(x)


class Writing(nn.Module):
    """Writes to its inputs, to one through a view."""

    def forward(self, total, step):
        total += step
        step[:, 0] = 7
        return total * step


def numbers(*shape):
    return torch.rand(*shape) * 2 - 1


torch.manual_seed(1)
MODULES = {
    "residual": (Residual, [[numbers(2, 3, 12, 10)], [numbers(3, 3, 12, 10)]], {"image": {0: Dim("batch", max=8)}}),
    "encoder": (Encoder, [[torch.randint(20, (2, 7)), torch.ones(2, 7, dtype=torch.int64)],
                          [torch.randint(20, (3, 5)), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])]],
                {"ids": {0: Dim("batch", max=8), 1: Dim("length", max=31)}, "keep": {0: Dim("batch", max=8), 1: Dim("length", max=31)}}),
    "filled": (Filled, [[numbers(2, 2, 4)], [numbers(5, 2, 4)]], {"x": {0: Dim("batch", max=8)}}),
    "branching": (Branching, [[numbers(3, 4), torch.tensor(4)], [numbers(3, 4) + 1, torch.tensor(0)], [numbers(3, 4) + 0.1, torch.tensor(60)]],
                  None),
    "scanning": (Scanning, [[numbers(4), numbers(5, 4)], [numbers(4), numbers(2, 4)]], {"start": None, "rows": {0: Dim("n", max=64)}}),
    "keeping": (Keeping, [[numbers(2, 4)] for _ in range(5)], None),
    "writing": (Writing, [[numbers(2, 3), numbers(2, 3)], [numbers(4, 3), numbers(4, 3)]],
                {"total": {0: Dim("n", max=8)}, "step": {0: Dim("n", max=8)}}),
    "recurrent": (Recurrent, [[numbers(2, 3, 3)], [numbers(5, 3, 3)]], {"x": {0: Dim("batch", max=8)}}),
    "sized": (Sized, [[numbers(1, 3, 5, 4)], [numbers(1, 3, 6, 7)]], {"x": {2: Dim("h", min=5, max=64), 3: Dim("w", min=4, max=64)}}),
    "spectral": (Spectral, [[numbers(2, 8, 6)], [numbers(3, 8, 6)]], {"x": {0: Dim("batch", max=8)}}),
    "training": (Training, [[numbers(4, 3)], [numbers(4, 3)]], None),
    "casting": (Casting, [[numbers(3, 8)], [numbers(3, 8) * 3]], None),
}
