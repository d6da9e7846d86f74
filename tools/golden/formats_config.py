#!/usr/bin/env python3
"""Golden defaults of transformers' configuration classes.  usage: formats_config.py OUT.json   needs: transformers"""
import json, sys
from transformers import AutoConfig

KEYS = """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act
max_position_embeddings rms_norm_eps layer_norm_eps layer_norm_epsilon tie_word_embeddings attention_bias attention_dropout rope_parameters
bos_token_id eos_token_id pad_token_id sliding_window layer_types n_embd n_layer n_head n_positions n_inner activation_function resid_pdrop
embd_pdrop attn_pdrop num_experts num_local_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size norm_topk_prob
decoder_sparse_step linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads linear_num_value_heads
final_logit_softcapping type_vocab_size initializer_range hidden_dropout_prob attention_probs_dropout_prob""".split()
TYPES = """llama mistral qwen2 qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text qwen3_vl_text qwen3_vl_moe_text gpt2 nanochat
bert""".split()
out = {}
for t in TYPES:
    d = AutoConfig.for_model(t).to_dict()
    out[t] = {k: d[k] for k in KEYS if k in d}
json.dump(out, open(sys.argv[1], "w"), separators=(",", ":"), sort_keys=True)
