"""A convolutional network with batch norm and dropout off and on."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, bias=False)
        self.pool = nn.MaxPool2d(2, 2)
        self.dropout = nn.Dropout(0.5)
        self.fc1 = nn.Linear(8, 4)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = F.relu(self.conv2(x))
        x = F.adaptive_avg_pool2d(x, 1)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc1(self.dropout(x)), dim=1)


net = Net()
print(net)
x = torch.randn(4, 3, 12, 12)
y = torch.tensor([0, 1, 2, 3])
net.eval()
out = net(x)
print(out, F.nll_loss(out, y).item())
net.train()
net.dropout.p = 0.0
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
for _ in range(4):
    optimizer.zero_grad()
    loss = F.nll_loss(net(x), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
print(net.bn1.running_mean, net.bn1.num_batches_tracked, net.conv1.weight.grad.norm())
net.dropout.p = 0.5
kept = net.dropout(torch.ones(2000))
print(sorted(set(kept.tolist())), 0.4 < kept.mean().item() / 2 < 0.6)
