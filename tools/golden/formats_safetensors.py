#!/usr/bin/env python3
"""Golden safetensors file as Hugging Face's own writer makes it.  usage: formats_safetensors.py OUT.safetensors
needs: safetensors torch"""
import sys, torch
from safetensors.torch import save_file

save_file({"b.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4, "a.weight": torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16),
           "half": torch.tensor([[0.5]], dtype=torch.float16), "ids": torch.tensor([1, -2], dtype=torch.int64), "flags": torch.tensor([True, False, True]),
           "fp8": torch.tensor([1.0, -448.0], dtype=torch.float8_e4m3fn), "scalar": torch.tensor(7.0), "empty": torch.zeros(0, 4),
           "small": torch.tensor([3, 4, 5], dtype=torch.int32), "bytes": torch.tensor([255], dtype=torch.uint8), "ümlaut\"": torch.tensor([-1], dtype=torch.int8)},
          sys.argv[1], metadata={"format": "pt"})
