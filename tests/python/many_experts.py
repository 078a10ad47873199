"""A checkpoint with more routed experts, made of one with few: `python many_experts.py FROM TO EXPERTS`.

The new ones hold the bytes of the old ones, turned; their rows of the router are old ones, shuffled.
"""
import json
import random
import re
import shutil
import struct
import sys
from pathlib import Path


def read_shard(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    base = 8 + length
    return {name: (t["dtype"], t["shape"], data[base + t["data_offsets"][0]:base + t["data_offsets"][1]])
            for name, t in header.items()}


def write_shard(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def expand(tensors, experts, draw):
    grown = {}
    for name, (dtype, shape, data) in tensors.items():
        expert = re.match(r"(layers\.\d+\.ffn\.experts\.)(\d+)(\..*)", name)
        if expert:
            for to in range(int(expert[2]), experts[1], experts[0]):
                turn = 0 if name.endswith("scale") else 37 * (to // experts[0]) % len(data)
                grown[f"{expert[1]}{to}{expert[3]}"] = (dtype, shape, data[turn:] + data[:turn])
        elif re.match(r"layers\.\d+\.ffn\.gate\.", name):
            size = len(data) // shape[0]
            rows = [data[r * size:(r + 1) * size] for r in range(shape[0])]
            item = 2 if dtype == "BF16" else 4
            for to in range(experts[0], experts[1]):
                items = [rows[to % experts[0]][i:i + item] for i in range(0, size, item)]
                draw.shuffle(items)
                rows.append(b"".join(items))
            grown[name] = (dtype, [experts[1], *shape[1:]], b"".join(rows))
        else:
            grown[name] = (dtype, shape, data)
    return grown


def main(source, target, n_experts):
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    text = config["text_config"]
    experts = (text["n_routed_experts"], n_experts)
    text["n_routed_experts"] = n_experts
    (target / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target)
    draw, shards, total = random.Random(1), {}, 0
    for path in sorted(source.glob("*.safetensors")):
        tensors = expand(read_shard(path), experts, draw)
        write_shard(target / path.name, tensors)
        shards.update({name: path.name for name in tensors})
        total += sum(len(data) for _, _, data in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": shards}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
