#!/usr/bin/env python3
"""tests/golden/image: small pictures, what Pillow makes of them, and what transformers' processor shows a model of one.

    pip install 'pillow<13' transformers numpy; tools/golden/pictures.py

NAME.png, .jpg, .webp and NAME.rgb, [height, width, 3] bytes, of Image.open().convert("RGB") after exif_transpose;
sizes.json has heights and widths. resized_H_W.rgb: photo.png by Image.resize(BICUBIC). patches.f32: pixel_values of
photo.png with patches of 4, merged 2 by 2; grids.json: sizes after sizes that smart_resize gives.
"""

import json
import pathlib

import numpy as np
from PIL import Image, ImageOps
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

OUT = pathlib.Path(__file__).parents[2] / "tests/golden/image"


def photo(height, width, channels, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([np.sin(x / (3 + c)) * np.cos(y / (4 + c)) * 90 + 128 for c in range(channels)], -1)
    return np.clip(base + rng.normal(0, 25, base.shape), 0, 255).astype(np.uint8)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rgb = photo(37, 53, 3, 1)
    exif = Image.Exif()
    exif[0x112] = 6
    save = {
        "photo.png": (Image.fromarray(rgb), {}),
        "alpha.png": (Image.fromarray(photo(21, 18, 4, 2), "RGBA"), {}),
        "grey.png": (Image.fromarray(photo(20, 31, 1, 3)[..., 0]), {}),
        "palette.png": (Image.fromarray(rgb).quantize(16), {"transparency": 3}),
        "bits.png": (Image.fromarray(photo(19, 13, 1, 4)[..., 0]).convert("1"), {}),
        "turned.png": (Image.fromarray(photo(14, 23, 3, 5)), {"exif": exif}),
        "photo.jpg": (Image.fromarray(rgb), {"quality": 88}),
        "fine.jpg": (Image.fromarray(rgb), {"quality": 95, "subsampling": 0, "progressive": True}),
        "grey.jpg": (Image.fromarray(photo(33, 17, 1, 6)[..., 0]), {"quality": 80}),
        "lossy.webp": (Image.fromarray(rgb), {"quality": 80}),
        "alpha.webp": (Image.fromarray(photo(21, 18, 4, 2), "RGBA"), {"lossless": True}),
        "turned.webp": (Image.fromarray(photo(14, 23, 3, 5)), {"lossless": True, "exif": exif}),
    }
    for orientation in range(1, 9):
        e = Image.Exif()
        e[0x112] = orientation
        save[f"turned{orientation}.jpg"] = (Image.fromarray(photo(9, 14, 3, 7)), {"exif": e, "quality": 90})
    sizes = {}
    for name, (picture, options) in save.items():
        picture.save(OUT / name, **options)
        seen = ImageOps.exif_transpose(Image.open(OUT / name)).convert("RGB")
        (OUT / f"{name}.rgb").write_bytes(np.asarray(seen).tobytes())
        sizes[name] = [seen.height, seen.width]
    for h, w in [(64, 96), (13, 20), (37, 11), (80, 53), (37, 53)]:
        resized = Image.fromarray(rgb).resize((w, h), Image.Resampling.BICUBIC)
        (OUT / f"resized_{h}_{w}.rgb").write_bytes(np.asarray(resized).tobytes())
    (OUT / "sizes.json").write_text(json.dumps(sizes, indent=0) + "\n")
    bad = OUT / "bad"
    bad.mkdir(exist_ok=True)
    small = Image.fromarray(rgb)
    small.convert("CMYK").save(bad / "cmyk.jpg")
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100).save(bad / "deep.png")
    for name in ("moving.png", "moving.webp", "moving.gif"):
        small.save(bad / name, save_all=True, append_images=[small.rotate(90)])
    Image.new("RGB", (100000, 1)).save(bad / "thin.png")
    half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    p = Qwen2VLImageProcessorPil(size={"shortest_edge": 600, "longest_edge": 1600}, patch_size=4, merge_size=2, **half)
    out = p(images=[Image.fromarray(rgb)], return_tensors="np")
    out["pixel_values"].astype("<f4").tofile(OUT / "patches.f32")
    grids = {"grid": out["image_grid_thw"][0].tolist(), "sizes": []}
    rng = np.random.default_rng(8)
    for _ in range(200):
        h, w = (int(2 ** rng.uniform(3, 13)) for _ in range(2))
        if max(h, w) / min(h, w) > 200:
            continue
        grids["sizes"].append([h, w, *smart_resize(h, w, 32, 65536, 16777216)])
    for h, w in [(48, 80), (16, 16), (240, 400), (272, 272), (8191, 8193)]:
        grids["sizes"].append([h, w, *smart_resize(h, w, 32, 65536, 16777216)])
    (OUT / "grids.json").write_text(json.dumps(grids) + "\n")


if __name__ == "__main__":
    main()
