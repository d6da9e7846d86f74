#!/usr/bin/env python3
"""LoRA of Qwen3-VL with 8B's dimensions and random weights: rows of 4,096 tokens of which half are of two pictures (1024 x 1024 pixels,
1,024 tokens each); the tower is frozen and sees them in every step. Tokens a second of warm steps through the product's own verb.

usage: vl.py BINARY OUT [--rows 8] [--steps 6] [--fp8] [--tiny] [--device h100]
Prints one JSON object."""
import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import zlib

p = argparse.ArgumentParser()
p.add_argument("binary")
p.add_argument("out", type=pathlib.Path)
p.add_argument("--rows", type=int, default=8)
p.add_argument("--steps", type=int, default=6)
p.add_argument("--device", default="h100")
p.add_argument("--fp8", action="store_true")
p.add_argument("--tiny", action="store_true")
a = p.parse_args()
a.out.mkdir(parents=True, exist_ok=True)
SIDE, SEQ, IMAGE, START, END = (64, 64, 250, 251, 252) if a.tiny else (1024, 4096, 151655, 151652, 151653)
PLACES = (SIDE // 32) ** 2
TEXT = dict(model_type="qwen3_vl_text", vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}) if a.tiny else dict(model_type="qwen3_vl_text", vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [24, 20, 20], "mrope_interleaved": True})
TEXT |= dict(max_position_embeddings=262144 if not a.tiny else 256, rms_norm_eps=1e-6, tie_word_embeddings=False, hidden_act="silu", attention_bias=False)
VISION = dict(model_type="qwen3_vl", depth=2, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64, deepstack_visual_indexes=[0]) if a.tiny else dict(model_type="qwen3_vl", depth=27, hidden_size=1152, intermediate_size=4304, num_heads=16, out_hidden_size=4096, deepstack_visual_indexes=[8, 16, 24])
VISION |= dict(patch_size=16, spatial_merge_size=2, temporal_patch_size=2, in_channels=3, num_position_embeddings=2304, hidden_act="gelu_pytorch_tanh")
CONFIG = dict(model_type="qwen3_vl", architectures=["Qwen3VLForConditionalGeneration"], image_token_id=IMAGE, video_token_id=IMAGE + 1, vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=False, text_config=TEXT, vision_config=VISION)


def png(path, seed):
    """A picture of slow waves."""
    rows = b"".join(b"\0" + bytes((x * (seed % 7 + 1) // 8 + y * c) % 256 for x in range(SIDE) for c in (1, 2, 3)) for y in range(SIDE))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


rng = random.Random(0)
for i in range(4):
    png(a.out / f"{i}.png", i)
with (a.out / "rows.jsonl").open("w") as f:
    for _ in range(2 * a.rows):
        ids = []
        for _ in range(2):
            ids += [rng.randrange(200) for _ in range((SEQ - 2 * PLACES) // 2 - 2)] + [START] + [IMAGE] * PLACES + [END]
        labels = [-100 if i in (IMAGE, START, END) else i for i in ids]
        f.write(json.dumps({"input_ids": ids, "labels": labels, "images": [str(a.out / f"{rng.randrange(4)}.png") for _ in range(2)]}) + "\n")
(a.out / "recipe.yaml").write_text(f"""meta: {{project: bench, run_name: vl, seed: 2048}}
hardware: {{name: {a.device}}}
autotune: {{enabled: false}}
model: {{name: random, init: random, config: {json.dumps(CONFIG)}}}
data: {{source: local, path: "{a.out}/rows.jsonl", seq_len: {SEQ}, packing: false, shuffle: false, pictures: {{min_pixels: {SIDE * SIDE}, max_pixels: {SIDE * SIDE}}}}}
train:
  method: {{kind: lora, r: 16, alpha: 32}}
  batch: {{per_device: {a.rows}, grad_accum: 1}}
  schedule: {{max_steps: {a.steps}}}
  precision: bfloat16
{'  base_precision: fp8_e4m3' if a.fp8 else ''}
""")
ran = subprocess.run([a.binary, "train", a.out / "recipe.yaml", "--out", a.out / "run"], capture_output=True, text=True)
if ran.returncode != 0:
    sys.exit(f"exit {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")
steps = [json.loads(line) for line in (a.out / "run/metrics.jsonl").read_text().splitlines()]
warm = [s["tok_s"] for s in steps[2:]]
print(json.dumps({"what": f"LoRA of Qwen3-VL-8B's dimensions{', FP8 base' if a.fp8 else ''}, {a.rows} x {SEQ} tokens, half of pictures", "tok_s": round(statistics.median(warm)), "tok_s_all": [round(s["tok_s"]) for s in steps], "tflops": steps[-1]["tflops"], "memory_bytes": steps[-1]["memory_bytes"], "losses": [round(s["loss"], 4) for s in steps]}))
