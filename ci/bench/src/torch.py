"""PyTorch's side of the benchmark: reads a workload's name a line, runs it once, answers its seconds."""
import sys
import time

import torch
import torch.nn.functional as F

torch.manual_seed(1)


def matmul(n):
    a, b = torch.randn(n, n), torch.randn(n, n)
    return lambda: a @ b


def conv(batch):
    x, w = torch.randn(batch, 64, 56, 56), torch.randn(64, 64, 3, 3)

    def run():
        with torch.no_grad():
            return F.conv2d(x, w, padding=1)

    return run


def mnist(batch):
    x, classes = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    w = [torch.randn(*s).mul_(0.1).requires_grad_() for s in [(16, 1, 3, 3), (32, 16, 3, 3), (10, 32 * 25)]]

    def run():
        h = F.max_pool2d(F.relu(F.conv2d(x, w[0])), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, w[1])), 2)
        loss = F.cross_entropy(h.reshape(batch, -1) @ w[2].t(), classes)
        loss.backward()
        with torch.no_grad():
            for p in w:
                p -= 0.01 * p.grad
                p.grad = None
        return loss.item()

    return run


def example(batch):
    x, classes = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    layers = [
        torch.nn.Conv2d(1, 8, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(5 * 5 * 32, 10),
    ]
    network = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, foreach=True)

    def run():
        loss = F.cross_entropy(network(x), classes)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


made = {}
kinds = {"matmul": matmul, "conv": conv, "mnist": mnist, "example": example}
print(torch.__version__, flush=True)
for line in sys.stdin:
    threads, kind, size = line.split()
    if torch.get_num_threads() != int(threads):
        torch.set_num_threads(int(threads))
    key = kind, size
    if key not in made:
        made[key] = kinds[kind](int(size))
    # As on the other side: one thread by its processor time.
    clock = time.thread_time if threads == "1" else time.perf_counter
    start = clock()
    made[key]()
    print(clock() - start, flush=True)
