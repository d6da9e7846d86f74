"""Adapters of stacked experts as PEFT writes them (target_parameters), and what transformers with them says:
tests/golden/peft_experts. Run with transformers and peft installed: python tools/golden/peft_experts.py"""
import json
import pathlib
import warnings

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

warnings.simplefilter("ignore")
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
IDS = [1, 5, 9, 33, 2, 7, 80, 41, 12, 3]


def make(name, base, **config):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "models" / base, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=6, task_type="CAUSAL_LM", **config)).eval()
    for key, p in model.named_parameters():
        if "lora_" in key:
            p.data.copy_(torch.randn_like(p) * 0.2)
    with torch.no_grad():
        z = torch.log_softmax(model(input_ids=torch.tensor([IDS])).logits[0].double(), -1)
    folder = GOLDEN / "peft_experts" / name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    j = json.loads(path.read_text())
    j["base_model_name_or_path"] = base
    path.write_text(json.dumps(j, indent=1, sort_keys=True) + "\n")
    said = [z[i, IDS[i + 1]].item() for i in range(len(IDS) - 1)]
    (folder / "expected.json").write_text(json.dumps({"model": base, "ids": IDS, "logprobs": said}) + "\n")


make("both", "qwen3_moe", target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
     target_modules=["q_proj"])
make("down", "qwen3_5_moe", target_parameters=["mlp.experts.down_proj"], target_modules=[])
make("gate_up", "qwen3_5_moe", target_parameters=["mlp.experts.gate_up_proj"], target_modules=["o_proj"])
# PEFT turns these names into its stacked form, with another rank for gate and up together.
make("converted", "qwen3_moe", target_modules=["q_proj", "gate_proj", "up_proj", "down_proj"])
# All linear layers: of Qwen3-MoE the router's matrix too, as a parameter; of Qwen3.5-MoE the gate of the shared expert.
make("all_linear", "qwen3_moe", target_modules="all-linear")
make("all_linear_shared", "qwen3_5_moe", target_modules="all-linear")
