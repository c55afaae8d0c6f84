"""torch_geometric: graphs, batches, convolutions of graphs, training, loaders."""

from __future__ import annotations

import torch
import torch_geometric.transforms as T
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATv2Conv,
    GCNConv,
    GINConv,
    HeteroConv,
    MessagePassing,
    SAGEConv,
    Sequential,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.utils import add_self_loops, degree, scatter, softmax, subgraph, to_dense_adj, to_undirected


def _graph(n=8, features=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    edges = to_undirected(torch.randint(n, (2, 12), generator=g))
    return Data(x=torch.randn(n, features, generator=g), edge_index=edges, y=torch.arange(n) % 3)


def classifying_nodes(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(4, 8), GCNConv(8, 3)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    data, net = _graph().to(device), Net().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=5e-4)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(data.x, data.edge_index), data.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "y": net(data.x, data.edge_index)}


def convolutions(device):
    data = _graph().to(device)
    found = {}
    mlp = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5))
    for conv in (
        SAGEConv(4, 5, aggr="max"),
        GATv2Conv(4, 5, heads=2, concat=False),
        GINConv(mlp, train_eps=True),
        TransformerConv(4, 5, heads=2),
    ):
        conv = conv.to(device)
        y = conv(data.x, data.edge_index)
        y.square().sum().backward()
        name = type(conv).__name__
        found[name] = y
        found[name + " grad"] = torch.cat([p.grad.flatten() for p in conv.parameters() if p.grad is not None])
    return found


def classifying_graphs(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = Sequential("x, edge_index", [(GCNConv(4, 8), "x, edge_index -> x"), nn.ReLU()])
            self.head = nn.Linear(16, 2)

        def forward(self, data):
            h = self.convs(data.x, data.edge_index)
            pooled = [global_mean_pool(h, data.batch), global_add_pool(h, data.batch)]
            return self.head(torch.cat(pooled, -1))

    graphs = [_graph(5 + i, seed=i) for i in range(6)]
    for i, graph in enumerate(graphs):
        graph.y = torch.tensor([i % 2])
    net = Net().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for batch in DataLoader(graphs, batch_size=3, shuffle=True):
        batch = batch.to(device)
        loss = nn.functional.cross_entropy(net(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append([loss.item(), batch.num_nodes, batch.num_graphs])
    return {"losses": losses}


def utilities(device):
    data = _graph().to(device)
    row, col = data.edge_index
    loops, _ = add_self_loops(data.edge_index, num_nodes=8)
    score = torch.randn(row.numel()).to(device)
    return {
        "degree": degree(row, 8),
        "dense": to_dense_adj(data.edge_index)[0],
        "loops": loops,
        "softmax": softmax(score, col, num_nodes=8),
        "sum": scatter(data.x[row], col, dim=0, dim_size=8, reduce="sum"),
        "max": scatter(data.x[row], col, dim=0, dim_size=8, reduce="max"),
        "sub": subgraph([0, 1, 2, 3], data.edge_index, relabel_nodes=True)[0],
        "isolated": data.has_isolated_nodes(),
    }


def message_passing(device):
    class Edge(MessagePassing):
        def __init__(self):
            super().__init__(aggr="mean")
            self.mlp = nn.Linear(8, 5)

        def forward(self, x, edge_index, weight):
            return self.propagate(edge_index, x=x, weight=weight)

        def message(self, x_i, x_j, weight):
            return weight.view(-1, 1) * self.mlp(torch.cat([x_i, x_j - x_i], -1))

    data, conv = _graph().to(device), Edge().to(device)
    weight = torch.rand(data.num_edges).to(device).requires_grad_()
    y = conv(data.x, data.edge_index, weight)
    y.square().sum().backward()
    return {"y": y, "weight": weight.grad, "grad": conv.mlp.weight.grad}


def several_kinds_of_nodes(device):
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(4, 3), torch.randn(5, 6)
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1, 2, 3, 3], [0, 1, 2, 3, 4]])
    data = T.ToUndirected()(data).to(device)
    conv = HeteroConv({kind: SAGEConv((-1, -1), 4) for kind in data.edge_types}).to(device)
    out = conv(data.x_dict, data.edge_index_dict)
    return {"user": out["user"].shape, "item": out["item"].shape, "edges": data["item", "rev_buys", "user"].edge_index}


def transforms_and_batches(device):
    data = T.Compose([T.NormalizeFeatures(), T.AddSelfLoops(), T.Constant()])(_graph())
    batch = Batch.from_data_list([data, _graph(5, 5, seed=2)]).to(device)
    split = T.RandomLinkSplit(num_val=0.2, num_test=0.2, is_undirected=True)(_graph())
    return {
        "x": data.x,
        "batch": batch.batch,
        "ptr": batch.ptr,
        "second": batch[1].edge_index,
        "split": [part.edge_label_index.shape for part in split],
    }
