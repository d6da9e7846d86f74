#!/usr/bin/env python3
"""Golden GGUF: every block type with what gguf-py decodes it to, and what ggml's reference encoders make of one input.
usage: formats_gguf.py LIBGGML_BASE.so OUT.gguf     needs: gguf numpy; the library from llama.cpp (npm's
@node-llama-cpp/linux-x64 has it), for the K-quant encoders that gguf-py lacks"""
import ctypes, sys
import numpy as np, gguf
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES as SIZES

lib, out = ctypes.CDLL(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(2048)
w = gguf.GGUFWriter(out, "golden")
w.add_uint8("k.u8", 200); w.add_int8("k.i8", -5); w.add_uint16("k.u16", 65000); w.add_int16("k.i16", -300)
w.add_uint32("k.u32", 4000000000); w.add_int32("k.i32", -7); w.add_uint64("k.u64", 2**63); w.add_int64("k.i64", -2**40)
w.add_float32("k.f32", 1e-5); w.add_float64("k.f64", 0.1); w.add_bool("k.bool", True); w.add_string("k.text", "Grüße 👋")
w.add_array("k.texts", ["a", "", "Ġthe"]); w.add_array("k.ints", [1, -2, 3]); w.add_array("k.floats", [0.5, -1.5])

HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.TQ2_0: [64], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: []}
for t, halves in HALVES.items():
    block, size = SIZES[t]
    n = 512 // block
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if t is T.TQ2_0: raw[:, :64] &= 0b10101010  # two bits hold 0, 1 or 2; 3 does not occur
    for at in halves:  # ordinary scales instead of random bits, which may be NaN
        raw[:, at:at + 2] = rng.standard_normal(n).astype(np.float16).view(np.uint8).reshape(n, 2)
    if t is T.MXFP4: raw[:, 0] = np.concatenate([[0, 1, 2, 254], rng.integers(100, 150, n - 4)])
    raw = raw.reshape(1, -1)
    w.add_tensor(f"raw.{t.name}", raw, raw_dtype=t)
    w.add_tensor(f"f32.{t.name}", gguf.quants.dequantize(raw, t).astype(np.float32))
x = np.concatenate([rng.standard_normal(256) * 0.02, rng.standard_t(2, 254), [0, 0]]).astype(np.float32).reshape(1, 512)
x[0, 64:96] = 0
w.add_tensor("input", x)
for t in [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K, T.MXFP4]:
    block, size = SIZES[t]
    got = np.zeros((1, 512 // block * size), np.uint8)
    name = "quantize_row_" + t.name.lower().replace("_k", "_K") + "_ref"
    getattr(lib, name)(x.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(512))
    w.add_tensor(f"enc.{t.name}", got, raw_dtype=t)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
