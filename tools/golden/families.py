"""The small models of tools/golden/models.py beside Llama, Qwen3 and GPT-2: one or two of each family, with what is its own in use."""
import torch
from transformers import (AutoConfig, Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, NanoChatConfig, NanoChatForCausalLM,
                          Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM,
                          Qwen3_5MoeTextConfig, Qwen3_5TextConfig)
import nanochat
from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention


class InstellaConfig(LlamaConfig):
    model_type = "instella"


class InstellaForCausalLM(LlamaForCausalLM):
    """AMD's class ships with its model: Llama's layer around OLMo 2's attention, the norms before each block under other names."""

    config_class = InstellaConfig

    def __init__(self, config):
        super().__init__(config)
        config._attn_implementation = "sdpa"
        for i, layer in enumerate(self.model.layers):
            layer.self_attn = Olmo2Attention(config, i)
            layer.pre_attention_layernorm, layer.pre_feedforward_layernorm = layer.input_layernorm, layer.post_attention_layernorm
            del layer.input_layernorm, layer.post_attention_layernorm
            layer.forward = forward_of(layer)


def forward_of(layer):
    def forward(hidden_states, position_embeddings=None, attention_mask=None, **kwargs):
        h, _ = layer.self_attn(hidden_states=layer.pre_attention_layernorm(hidden_states), position_embeddings=position_embeddings, attention_mask=attention_mask)
        hidden_states = hidden_states + h
        return hidden_states + layer.mlp(layer.pre_feedforward_layernorm(hidden_states))
    return forward


AutoConfig.register("instella", InstellaConfig)


def gpt_oss(**config):
    """Biases of experts begin at 0, by which their use would not show."""
    model = GptOssForCausalLM(GptOssConfig(**SMALL, initializer_range=0.06, **config, attn_implementation="eager"))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if n.endswith("proj_bias"):
                p.normal_(std=0.05)
    return model


class ClampedExpert(torch.nn.Module):
    """One of gpt-oss's experts as modules of its own; the stack has [in, out] with gate's and up's columns in turn."""

    def __init__(self, e, i):
        super().__init__()
        self.alpha, self.limit = e.alpha, e.limit
        up, b = e.gate_up_proj[i], e.gate_up_proj_bias[i]
        for name, w, bias in (("gate_proj", up[:, ::2], b[::2]), ("up_proj", up[:, 1::2], b[1::2]), ("down_proj", e.down_proj[i], e.down_proj_bias[i])):
            linear = torch.nn.Linear(*w.shape)
            linear.weight, linear.bias = torch.nn.Parameter(w.detach().T.clone()), torch.nn.Parameter(bias.detach().clone())
            setattr(self, name, linear)

    def forward(self, x):
        gate = self.gate_proj(x).clamp(max=self.limit)
        up = self.up_proj(x).clamp(min=-self.limit, max=self.limit)
        return self.down_proj((up + 1) * gate * torch.sigmoid(gate * self.alpha))


# windows shorter than the documents (5 to 23 tokens); grouped heads; head_dim * heads different from the width; no row of
# padding, whose gradient torch leaves out
SMALL = dict(vocab_size=96, max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None)
CASES = {
    "mistral": lambda: MistralForCausalLM(MistralConfig(vocab_size=96, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, sliding_window=7, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    # the window begins at the second layer
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=36, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=64, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True)),
    "qwen2_untied": lambda: Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)),
    "instella": lambda: InstellaForCausalLM(InstellaConfig(**SMALL, hidden_size=30, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 3691950.0})),
    "instella_bias": lambda: InstellaForCausalLM(InstellaConfig(**SMALL, hidden_size=20, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6, attention_bias=True, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**SMALL, hidden_size=36, intermediate_size=44, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2)),
    # three quarters of a head turn
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**SMALL, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, sliding_window=6, partial_rotary_factor=0.75, tie_word_embeddings=True)),
    # texts within the original maximum, and (in tests/models) the tables beyond it
    "phi3_longrope": lambda: Phi3ForCausalLM(Phi3Config(**(SMALL | dict(max_position_embeddings=256)), original_max_position_embeddings=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.0, 2.0, 3.5, 8.0]})),
    # five of six layers slide; here the pattern is two of three, and the scores' scale is not head_dim's
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, hidden_size=36, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16, sliding_window=5, sliding_window_pattern=3, query_pre_attn_scalar=24, rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    # bounds that are met, sinks and biases away from 0, experts no power of two, top 3; the other one has no biases of attention, and has the balance loss
    "gpt_oss": lambda: gpt_oss(hidden_size=36, intermediate_size=20, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=8, num_local_experts=5, num_experts_per_tok=3, sliding_window=5, swiglu_limit=1.0, rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16}),
    "gpt_oss_balanced": lambda: gpt_oss(hidden_size=32, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=12, num_local_experts=6, num_experts_per_tok=2, sliding_window=7, attention_bias=False, output_router_logits=True, router_aux_loss_coef=0.05, layer_types=["full_attention", "sliding_attention"]),
    "nanochat": lambda: NanoChatForCausalLM(NanoChatConfig(**SMALL, hidden_size=32, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)),
    # heads are normed behind the turn, which YaRN scales
    "nanochat_yarn": lambda: NanoChatForCausalLM(NanoChatConfig(**SMALL, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, attention_bias=True, rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16})),
    # layers of both kinds in an order of their own, value heads in groups, heads of keys and values of different widths, part of a head rotated
    "qwen3_5": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(vocab_size=96, hidden_size=36, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=16, max_position_embeddings=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, layer_types=["linear_attention", "full_attention", "linear_attention"], rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, tie_word_embeddings=False)),
    "qwen3_5_moe": lambda: Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=64, linear_num_key_heads=1, linear_num_value_heads=3, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=3, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12, shared_expert_intermediate_size=20, layer_types=["linear_attention", "full_attention"], tie_word_embeddings=True)),
}
TARGETS = {"phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], "nanochat": ["q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"]}
TARGETS["phi3_longrope"] = TARGETS["phi3"]
TARGETS["nanochat_yarn"] = TARGETS["nanochat"]
CASES |= nanochat.CASES
TARGETS |= nanochat.TARGETS
HYBRID = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS |= {"qwen3_5": HYBRID, "qwen3_5_moe": HYBRID}
TARGETS |= {m: ["q_proj", "k_proj", "v_proj", "o_proj"] for m in ("qwen3_moe", "qwen3_moe_balanced")}  # PEFT stacks adapters of these experts
RATES = {"qwen3_5": 3e-4, "qwen3_5_moe": 3e-4}  # the delta rule is chaotic at higher ones: fp32 and fp64 of the same code part
