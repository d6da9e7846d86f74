#!/usr/bin/env python3
"""Tiny Qwen3.5, Qwen3-VL, Phi-3 and gpt-oss folders, what llama.cpp's own converter writes of them, and what transformers computes.

usage: gguf_families.py LLAMA_CPP OUTDIR      needs: torch transformers safetensors tokenizers; LLAMA_CPP: its sources (for its
converter and its gguf-py; the sdist of llama-cpp-python has them in vendor/llama.cpp)
Writes OUTDIR/NAME/: config.json, model.safetensors (bf16; experts of gpt_oss in MXFP4), converted.json (keys of the architecture and
tensors of its BF16 file: type, shape, digest; the values where they are computed), tower.json (the same of the file with what sees
pictures), expected.json (log-probabilities in fp32)."""
import hashlib, json, os, shutil, sys, tempfile
from pathlib import Path

LLAMA, OUT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path[:0] = [str(LLAMA / "gguf-py"), str(LLAMA)]
import gguf, torch
from conversion import get_model_class
from conversion.base import ModelBase, TextModel
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Phi3Config, Phi3ForCausalLM, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.models.qwen3_5_moe import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

IDS = [5, 17, 200, 33, 91, 7, 250, 3, 3, 120, 44, 61, 18, 270, 2, 77]
COMMON = dict(vocab_size=288, hidden_size=32, max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=0)
# Three heads of values for each of two of keys: an order that is not its own way back.
HYBRID = dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], full_attention_interval=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
              linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=6,
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True})
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"


def draw(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(torch.randn_like(p) * 0.2) if p.ndim == 1 else p.copy_(torch.randn_like(p) * (0.5 if "conv" in name else 0.15))
            p.copy_(p.to(torch.bfloat16).float())
    return model.eval()


def packed(model):
    out = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):
                experts, columns, rows = p.shape
                blocks, scales = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8), torch.randint(121, 125, (experts, rows, columns // 32), dtype=torch.uint8)
                p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
                out[name + "_blocks"], out[name + "_scales"] = blocks, scales
            else:
                out[name] = p.detach().to(torch.bfloat16)
    return out


def keep(name, model, tensors=None, quantization=None):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([IDS]), use_cache=False).logits[0].double(), -1)
    (folder / "expected.json").write_text(json.dumps({"ids": IDS, "logprobs": [round(logprobs[i, IDS[i + 1]].item(), 7) for i in range(len(IDS) - 1)]}))
    config = json.loads(model.config.to_json_string())
    config.update(architectures=[type(model).__name__], dtype="bfloat16")
    config.update({"quantization_config": quantization} if quantization else {})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if tensors is None:
        tensors = {k: v.to(torch.bfloat16).clone() for k, v in model.state_dict().items() if not (k == "lm_head.weight" and config.get("tie_word_embeddings"))}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder, tensors


def sees(folder):
    processor = dict(image_processor_type="Qwen2VLImageProcessorFast", patch_size=2, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 64, "longest_edge": 4096},
                     image_mean=[0.5, 0.4, 0.3], image_std=[0.5, 0.25, 0.2])
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def write_file(folder, kind, name):
    kind(folder, gguf.LlamaFileType.MOSTLY_BF16, folder / name).write()
    file = gguf.GGUFReader(folder / name)
    keys = {k: f.contents() for k, f in file.fields.items() if not k.startswith(("tokenizer.", "GGUF.", "general."))}
    tensors = {}
    for t in file.tensors:
        computed = t.name.endswith("ssm_a")
        tensors[t.name] = [t.tensor_type.name, [int(n) for n in reversed(t.shape)], t.data.tolist() if computed else hashlib.sha256(t.data.tobytes()).hexdigest()[:16]]
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(tensors.items()))
    return f'{{"keys": {json.dumps(keys)},\n "tensors": {{\n{lines}\n }}}}\n'


def convert(folder, tower=False):
    with tempfile.TemporaryDirectory() as temp:
        for f in folder.iterdir():
            shutil.copy(f, temp)
        bytes_alone = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
        bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        PreTrainedTokenizerFast(tokenizer_object=bytes_alone).save_pretrained(temp)
        (Path(temp) / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))  # Phi-3's converter asks which it is
        architecture = ModelBase.load_hparams(Path(temp), False)["architectures"][0]
        kind = get_model_class(architecture)
        if hasattr(kind, "no_mtp"):
            kind.no_mtp = True
        with torch.inference_mode():
            (folder / "converted.json").write_text(write_file(Path(temp), kind, "m.gguf"))
            if tower:
                (folder / "tower.json").write_text(write_file(Path(temp), get_model_class(architecture, mmproj=True), "tower.gguf"))


torch.manual_seed(35)
vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2, num_position_embeddings=4, out_hidden_size=32)
dense = Qwen3_5Config(text_config=dict(intermediate_size=48, tie_word_embeddings=False, **HYBRID, **COMMON), tie_word_embeddings=False, vision_config=vision,
                      image_token_id=280, video_token_id=281, vision_start_token_id=282, vision_end_token_id=283)
folder, tensors = keep("qwen35", draw(Qwen3_5ForConditionalGeneration(dense)))
tensors["mtp.norm.weight"] = torch.zeros(32, dtype=torch.bfloat16)
save_file(tensors, folder / "model.safetensors", {"format": "pt"})
sees(folder)
convert(folder, tower=True)
moe = Qwen3_5MoeTextConfig(moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=4, num_experts_per_tok=2, tie_word_embeddings=True, **HYBRID, **COMMON)
convert(keep("qwen35moe", draw(Qwen3_5MoeForCausalLM(moe)))[0])
oss = GptOssConfig(intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, num_local_experts=3, num_experts_per_tok=2,
                   sliding_window=6, attn_implementation="eager", **COMMON)
model = draw(GptOssForCausalLM(oss))
convert(keep("gpt_oss_plain", model)[0])
codes = packed(model)
convert(keep("gpt_oss", model, codes, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})[0])
torch.manual_seed(36)
tower = dict(depth=3, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2, num_position_embeddings=4, out_hidden_size=32, deepstack_visual_indexes=[0, 2])
text = dict(intermediate_size=48, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}, **COMMON)
seeing = Qwen3VLConfig(text_config=text, tie_word_embeddings=True, vision_config=tower, image_token_id=280, video_token_id=281, vision_start_token_id=282, vision_end_token_id=283)
folder = keep("qwen3vl", draw(Qwen3VLForConditionalGeneration(seeing)))[0]
sees(folder)
convert(folder, tower=True)
torch.manual_seed(37)
longer = Phi3Config(intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True, sliding_window=None, original_max_position_embeddings=32,
                    rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 32,
                                     "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5], "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0]}, **{**COMMON, "pad_token_id": 0})
convert(keep("phi3_longrope", draw(Phi3ForCausalLM(longer)))[0])
