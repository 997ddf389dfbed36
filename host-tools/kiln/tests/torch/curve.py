"""Trains the network of tests/all/curve.rs with PyTorch and prints the loss of each step.

    python3 curve.py START.safetensors > curve.txt

START.safetensors has the initial weights in Kiln's layout, and the images and classes.
"""

import json
import struct
import sys

import torch
import torch.nn.functional as F

DTYPES = {"F32": torch.float32, "I32": torch.int32}


def read(path):
    """The tensors of a safetensors file by name."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def main():
    torch.set_num_threads(1)
    tensors = read(sys.argv[1])
    images = tensors["images"].permute(0, 3, 1, 2).contiguous()
    classes = tensors["classes"].long()
    p = {name: t.clone() for name, t in tensors.items() if name.startswith("net.")}
    for name in p:
        if name.startswith("net.conv") and name.endswith("weight"):
            p[name] = p[name].permute(0, 3, 1, 2).contiguous()
        if "running" not in name:
            p[name].requires_grad_()
    mean, var = p["net.norm.running_mean"], p["net.norm.running_var"]
    optimizer = torch.optim.SGD([t for t in p.values() if t.requires_grad], lr=0.02, momentum=0.9)
    for step in range(200):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (1 - step / 400)
        begin = step * 32 % len(images)
        x = F.conv2d(images[begin : begin + 32], p["net.conv1.weight"], p["net.conv1.bias"], padding=1)
        x = F.batch_norm(x, mean, var, p["net.norm.weight"], p["net.norm.bias"], training=True)
        x = F.max_pool2d(F.relu(x), 2)
        x = F.relu(F.conv2d(x, p["net.conv2.weight"], p["net.conv2.bias"], stride=2))
        # Kiln's features are in the order height, width, channel.
        x = x.permute(0, 2, 3, 1).flatten(1)
        loss = F.cross_entropy(F.linear(x, p["net.linear.weight"], p["net.linear.bias"]), classes[begin : begin + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
    print("running", *mean.tolist(), *var.tolist())


main()
