#!/usr/bin/env python3
"""Writes a checkpoint of full size that takes almost no disk space.

usage: make_sparse_checkpoint.py CONFIG OUT

CONFIG is a config.json, OUT a directory that is created. Every shard gets a header and its full length, but the
tensor bytes are holes that read as zeros. With the released config this gives the released shard map: 48 files,
96,085 tensors, 510,286,023,000 tensor bytes. The shapes are written down here independently of the C++ shape table, so
that each checks the other.

Exit status 3: the file system cannot hold sparse files of this size.
"""
import errno
import json
import os
import shutil
import struct
import sys

ITEM_BYTES = {"I8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "BF16": 2, "F32": 4}


def fp8(name, rows, cols):
    return [(name + ".weight", "F8_E4M3", [rows, cols]), (name + ".scale", "F8_E8M0", [-(-rows // 32), -(-cols // 32)])]


def fp4(name, rows, cols):
    return [(name + ".weight", "I8", [rows, cols // 2]), (name + ".scale", "F8_E8M0", [rows, cols // 32])]


def block(c, p, experts):
    """The tensors that backbone layers and draft stages have in common."""
    d, heads, inner, streams = c["hidden_size"], c["num_attention_heads"], c["moe_intermediate_size"], c["hc_mult"]
    out_rank = c["o_groups"] * c["o_lora_rank"]
    t = fp8(p + "attn.wq_a", c["q_lora_rank"], d)
    t += [(p + "attn.q_norm.weight", "BF16", [c["q_lora_rank"]])]
    t += fp8(p + "attn.wq_b", heads * c["head_dim"], c["q_lora_rank"])
    t += fp8(p + "attn.wkv", c["head_dim"], d)
    t += [(p + "attn.kv_norm.weight", "BF16", [c["head_dim"]]), (p + "attn.attn_sink", "F32", [heads])]
    t += fp8(p + "attn.wo_a", out_rank, heads // c["o_groups"] * c["head_dim"])
    t += fp8(p + "attn.wo_b", d, out_rank)
    for part in ("attn", "ffn"):
        t += [(f"{p}{part}_norm.weight", "BF16", [d]),
              (f"{p}hc_{part}_fn", "F32", [streams * streams + 2 * streams, streams * d]),
              (f"{p}hc_{part}_base", "F32", [streams * streams + 2 * streams]), (f"{p}hc_{part}_scale", "F32", [3])]
    t += [(p + "ffn.gate.weight", "BF16", [experts, d]), (p + "ffn.gate.bias", "F32", [experts]),
          (p + "ffn.gate.bias_vl", "F32", [experts])]
    for expert, kind in [(f"experts.{e}", fp4) for e in range(experts)] + [("shared_experts", fp8)]:
        for w, shape in (("w1", (inner, d)), ("w2", (d, inner)), ("w3", (inner, d))):
            t += kind(f"{p}ffn.{expert}.{w}", *shape)
    return t


def layer(c, number):
    p = f"layers.{number}."
    d, dim, index_dim = c["hidden_size"], c["head_dim"], c["index_head_dim"]
    t = block(c, p, c["n_routed_experts"])
    if number in c["kv_source_layer_ids"]:
        t += [(p + "attn.compressor.wkv.weight", "BF16", [dim, d]), (p + "attn.compressor.norm.weight", "BF16", [dim]),
              (p + "attn.indexer.wk.weight", "BF16", [index_dim, dim]),
              (p + "attn.indexer.k_norm.weight", "BF16", [index_dim])]
        if c["compress_ratios"][number] == 2:
            t += [(p + "attn.compressor.wgate.weight", "BF16", [dim, d])]
    if number in c["index_source_layer_ids"]:
        t += fp8(p + "attn.indexer.wq_b", c["index_n_heads"] * index_dim, c["q_lora_rank"])
        t += [(p + "attn.indexer.weights_proj.weight", "BF16", [c["index_n_heads"], d])]
    return t


def engram(c, number, rows):
    p = f"layers.{number}.engram."
    d, dim, streams = c["hidden_size"], c["engram_head_dim"], c["hc_mult"]
    columns = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"]
    return [(p + "embed.weight", "F8_E4M3", [rows, dim]), (p + "embed.scale", "F8_E8M0", [rows, dim // 32]),
            (p + "q_weight", "BF16", [streams, d]), (p + "k_weight", "BF16", [streams, d]),
            *fp8(p + "wkv", (streams + 1) * d, columns * dim)]


def draft_stage(c, number):
    p = f"mtp.{number}."
    d, vocab, rank = c["hidden_size"], c["vocab_size"], c["dspark_markov_rank"]
    t = block(c, p, c["dspark_n_routed_experts"])
    if number == 0:
        t += fp8(p + "main_proj", d, d * len(c["dspark_target_layer_ids"])) + [(p + "main_norm.weight", "BF16", [d])]
    if number == c["num_nextn_predict_layers"] - 1:
        t += [(p + "norm.weight", "BF16", [d]), (p + "markov_head.embed.weight", "BF16", [vocab, rank]),
              (p + "markov_head.head.weight", "BF16", [vocab, rank]),
              (p + "confidence_head.proj.weight", "BF16", [1, d + rank])]
    return t


def vision(c, v):
    d = c["hidden_size"]
    t = [(name, "BF16", [d]) for name in ("image_start", "image_end", "image_newline")]
    if not v["num_hidden_layers"]:
        return t
    w, mlp = v["hidden_size"], v["intermediate_size"]
    biased = [("vision.patch_embed.proj", w, 3 * v["patch_size"] ** 2),
              ("aligner.w1", d, w * v["downsample_ratio"] ** 2), ("aligner.w2", d, d)]
    for i in range(v["num_hidden_layers"]):
        p = f"vision.blocks.{i}."
        biased += [(p + "attn.wqkv", 3 * w, w), (p + "attn.wo", w, w)]
        t += [(p + "mlp.w1.weight", "BF16", [2 * mlp, w]), (p + "mlp.w2.weight", "BF16", [w, mlp]),
              (p + "norm1.weight", "BF16", [w]), (p + "norm2.weight", "BF16", [w])]
    for name, rows, cols in biased:
        t += [(name + ".weight", "BF16", [rows, cols]), (name + ".bias", "BF16", [rows])]
    return t + [("vision.norm.weight", "BF16", [w])]


def shard_map(config):
    """Lists of tensors, one per shard: vision, embedding, layers, head, draft stages, Engram tables."""
    c = config["text_config"]
    d, vocab = c["hidden_size"], c["vocab_size"]
    shards = [vision(c, config["vision_config"]), [("embed.weight", "BF16", [vocab, d])]]
    shards += [layer(c, i) for i in range(c["num_hidden_layers"])]
    shards += [[("head.weight", "BF16", [vocab, d]), ("norm.weight", "BF16", [d])]]
    shards += [draft_stage(c, i) for i in range(c["num_nextn_predict_layers"])]
    shards += [engram(c, i, rows) for i, rows in zip(c["engram_layer_ids"], c["engram_num_embeddings"])]
    return shards


def write_shard(path, tensors):
    """Header and length; the data stay a hole. Returns the tensor bytes."""
    header, offset = {}, 0
    for name, dtype, shape in tensors:
        size = ITEM_BYTES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + offset)
    taken = os.stat(path).st_blocks * 512
    if taken > len(text) + (1 << 20):
        raise OSError(errno.ENOTSUP, f"the holes take {taken} bytes of disk")
    return offset


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    config_path, out = sys.argv[1:]
    with open(config_path, encoding="utf-8") as f:
        shards = shard_map(json.load(f))
    os.makedirs(out)
    total, weight_map = 0, {}
    try:
        for number, tensors in enumerate(shards, 1):
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            total += write_shard(os.path.join(out, name), tensors)
            weight_map.update((tensor[0], name) for tensor in tensors)
        with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=2, sort_keys=True)
        shutil.copy(config_path, os.path.join(out, "config.json"))
    except OSError as e:
        shutil.rmtree(out)
        if e.errno not in (errno.EFBIG, errno.ENOSPC, errno.EINVAL, errno.ENOTSUP):
            raise
        print(f"{out}: the file system cannot hold sparse files of this size: {e.strerror}", file=sys.stderr)
        sys.exit(3)
    print(f"{out}: {len(shards)} shards, {len(weight_map):,} tensors, {total:,} bytes")


if __name__ == "__main__":
    main()
