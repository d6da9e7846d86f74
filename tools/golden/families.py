"""The small models of tools/golden/models.py beside Llama, Qwen3 and GPT-2: one or two of each family, with what is its own in use."""
import torch
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

# windows shorter than the documents (5 to 23 tokens); grouped heads; head_dim * heads different from the width
CASES = {
    "mistral": lambda: MistralForCausalLM(MistralConfig(vocab_size=96, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, sliding_window=7, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    # the window begins at the second layer
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=36, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=64, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True)),
    "qwen2_untied": lambda: Qwen2ForCausalLM(Qwen2Config(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)),
}
TARGETS = {}
