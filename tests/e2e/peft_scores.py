"""Log-probabilities of a row of ids by a base with an adapter, as transformers and PEFT have them: BASE ADAPTER IDS OUT.json"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base, adapter, ids, out = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
model = PeftModel.from_pretrained(model, adapter).eval()
missing = [n for n, p in model.named_parameters() if "lora_B" in n and not p.abs().sum()]
if missing:
    sys.exit(f"no weights came to {missing[:3]}")
with torch.no_grad():
    z = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
json.dump([z[i, ids[i + 1]].item() for i in range(len(ids) - 1)], open(out, "w"))
