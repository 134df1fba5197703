"""Graph regression by message passing, without a graph library."""
import os
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset

BATCH = int(os.environ.get("BATCH_SIZE", 16))
HIDDEN = int(os.environ.get("HIDDEN", 64))
EPOCHS = int(os.environ.get("EPOCHS", 2))
NODES, EDGES, FEATURES = 24, 60, 11


@dataclass
class Graph:
    x: torch.Tensor
    edge_index: torch.Tensor
    edge_attr: torch.Tensor
    y: torch.Tensor
    batch: torch.Tensor = None

    def to(self, device):
        return Graph(*(None if t is None else t.to(device) for t in vars(self).values()))

    @property
    def num_graphs(self):
        return int(self.batch.max()) + 1


def random_graph():
    x = torch.randn(NODES, FEATURES)
    edges = torch.randint(0, NODES, (2, EDGES))
    return Graph(x, edges, torch.rand(EDGES, 4), x[:, 0].sum().view(1, 1))


def collate(graphs):
    offsets = torch.tensor([0] + [g.x.shape[0] for g in graphs]).cumsum(0)
    return Graph(
        torch.cat([g.x for g in graphs]),
        torch.cat([g.edge_index + offsets[i] for i, g in enumerate(graphs)], dim=1),
        torch.cat([g.edge_attr for g in graphs]),
        torch.cat([g.y for g in graphs]),
        torch.cat([torch.full((g.x.shape[0],), i) for i, g in enumerate(graphs)]),
    )


def scatter_mean(values, index, size):
    total = values.new_zeros(size, values.size(1)).index_add_(0, index, values)
    count = values.new_zeros(size).index_add_(0, index, torch.ones_like(index, dtype=values.dtype))
    return total / count.clamp(min=1)[:, None]


def scatter_softmax(scores, index, size):
    expanded = index[:, None].expand_as(scores)
    highest = scores.new_full((size, scores.size(1)), float("-inf"))
    highest = highest.scatter_reduce(0, expanded, scores.detach(), reduce="amax")
    weights = (scores - highest[index]).exp()
    return weights / scores.new_zeros(size, scores.size(1)).scatter_add(0, expanded, weights)[index]


class EdgeConv(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * dim + 4, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.score = nn.Linear(dim, heads)
        self.update = nn.GRUCell(dim, dim)
        self.norm = nn.BatchNorm1d(dim)
        self.heads = heads

    def forward(self, x, edge_index, edge_attr):
        source, target = edge_index
        m = self.message(torch.cat([x[source], x[target], edge_attr], dim=-1))
        alpha = scatter_softmax(F.leaky_relu(self.score(m)), target, x.size(0))
        m = (m.view(m.size(0), self.heads, -1) * alpha[:, :, None]).flatten(1)
        out = torch.zeros_like(x).index_add(0, target, m)
        return self.norm(self.update(out, x))


class Net(nn.Module):
    def __init__(self, dim, layers=3):
        super().__init__()
        self.embed = nn.Linear(FEATURES, dim)
        self.convs = nn.ModuleList([EdgeConv(dim) for _ in range(layers)])
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, g):
        x = self.embed(g.x)
        for conv in self.convs:
            x = F.dropout(conv(x, g.edge_index, g.edge_attr), 0.1, self.training)
        return self.head(scatter_mean(x, g.batch, g.num_graphs))


def run(loader, model, device, optimizer=None):
    model.train(optimizer is not None)
    total = 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for g in loader:
            g = g.to(device)
            loss = F.l1_loss(model(g), g.y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += float(loss) * g.num_graphs
    return total / len(loader.dataset)


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = [random_graph() for _ in range(256)]
train = DataLoader(Subset(dataset, range(224)), BATCH, shuffle=True, collate_fn=collate, drop_last=True)
test = DataLoader(Subset(dataset, range(224, 256)), BATCH, collate_fn=collate)
model = Net(HIDDEN).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20)
best = None
for epoch in range(EPOCHS):
    loss = run(train, model, device, optimizer)
    error = run(test, model, device)
    scheduler.step()
    if best is None or error <= best:
        best = error
        torch.save(model.state_dict(), "gnn.pt")
    print(f"Epoch {epoch:03d} loss {loss:.4f} test MAE {error:.4f}", file=sys.stderr)
