"""nanochat's form of 2026, written down from its definition (docs and papers, not its code) for tools/golden/models.py: norms without
weights, smear, value embeddings behind gates, mixed residual streams, backout, scaled queries and keys, windows, capped logits."""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class NanoChatV2Config(PretrainedConfig):
    model_type = "nanochat_v2"

    def __init__(self, vocab_size=97, hidden_size=40, intermediate_size=None, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, window_pattern="SSSL",
                 short_window=5, qk_scale=1.2, value_embeddings=True, residual_lambdas=True, smear=True, backout=True, rope_theta=100000.0, rms_norm_eps=1.1920929e-07, final_logit_softcapping=15.0, hidden_act="relu2", **kwargs):
        for k, v in list(locals().items()):
            if k not in ("self", "kwargs", "__class__"):
                setattr(self, k, v)
        self.intermediate_size = intermediate_size or 4 * hidden_size
        super().__init__(tie_word_embeddings=False, **kwargs)


AutoConfig.register("nanochat_v2", NanoChatV2Config)


class Attention(nn.Module):
    def __init__(self, c, has_values):
        super().__init__()
        d = c.hidden_size // c.num_attention_heads
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * d, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * d, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * d, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * d, c.hidden_size, bias=False)
        if has_values:
            self.ve_gate = nn.Linear(12, c.num_key_value_heads, bias=False)


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1 = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.fc2 = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)).square())


class Layer(nn.Module):
    def __init__(self, c, has_values):
        super().__init__()
        self.self_attn, self.mlp = Attention(c, has_values), Mlp(c)


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        n = c.num_hidden_layers
        has = [c.value_embeddings and i % 2 == (n - 1) % 2 for i in range(n)]
        kv = c.num_key_value_heads * (c.hidden_size // c.num_attention_heads)
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, h) for h in has)
        if c.value_embeddings:
            self.value_embeds = nn.ModuleDict({str(i): nn.Embedding(c.vocab_size, kv) for i in range(n) if has[i]})
        if c.residual_lambdas:
            self.resid_lambdas, self.x0_lambdas = nn.Parameter(torch.ones(n)), nn.Parameter(torch.full((n,), 0.2))
        if c.smear:
            self.smear_gate, self.smear_lambda = nn.Linear(24, 1, bias=False), nn.Parameter(torch.full((1,), 0.5))
        if c.backout:
            self.backout_lambda = nn.Parameter(torch.full((1,), 0.2))


class NanoChatV2ForCausalLM(PreTrainedModel):
    config_class = NanoChatV2Config
    base_model_prefix = "model"
    _tied_weights_keys = None

    def __init__(self, c):
        super().__init__(c)
        self.model = Body(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02 if p.shape[1] > 24 else 0.1)

    def prepare_inputs_for_generation(self, *args, **kwargs):
        raise NotImplementedError

    def norm(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)

    def heads(self, a, h, ids, i):
        c, m = self.config, self.model
        t, d = h.shape[0], c.hidden_size // c.num_attention_heads
        q, k, v = (p(h).view(t, -1, d) for p in (a.q_proj, a.k_proj, a.v_proj))
        if c.value_embeddings and str(i) in m.value_embeds:
            gate = 3 * torch.sigmoid(a.ve_gate(h[:, :12]))
            v = v + gate[:, :, None] * m.value_embeds[str(i)](ids).view(t, -1, d)
        angle = torch.arange(t)[:, None].float() * c.rope_theta ** (-torch.arange(0, d, 2).float() / d)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        def turned(x):
            a, b = x[..., : d // 2], x[..., d // 2 :]
            return self.norm(torch.cat((a * cos + b * sin, b * cos - a * sin), -1)) * c.qk_scale
        q, k = turned(q), turned(k)
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        back = torch.arange(t)[:, None] - torch.arange(t)[None]
        short = c.window_pattern[i % len(c.window_pattern)] == "S" and i + 1 < c.num_hidden_layers
        seen = (back >= 0) & (back <= (c.short_window if short else t))
        scores = torch.einsum("qhd,khd->hqk", q, k) / d**0.5
        p = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return a.o_proj(torch.einsum("hqk,khd->qhd", p, v).reshape(t, -1))

    def forward(self, input_ids, use_cache=None, **kwargs):
        c, m = self.config, self.model
        ids = input_ids[0]
        x = self.norm(m.embed_tokens(ids))
        if c.smear:
            gate = m.smear_lambda * torch.sigmoid(m.smear_gate(x[:, :24]))
            x = x + torch.cat((torch.zeros_like(x[:1]), (gate[1:] * x[:-1])))
        x0, middle = x, None
        for i, layer in enumerate(m.layers):
            if c.residual_lambdas:
                x = m.resid_lambdas[i] * x + m.x0_lambdas[i] * x0
            x = x + self.heads(layer.self_attn, self.norm(x), ids, i)
            x = x + layer.mlp(self.norm(x))
            if i == c.num_hidden_layers // 2:
                middle = x
        if c.backout:
            x = x - m.backout_lambda * middle
        cap = c.final_logit_softcapping
        return CausalLMOutput(logits=(cap * torch.tanh(self.lm_head(self.norm(x)) / cap))[None])


CASES = {
    "nanochat_v2": lambda: NanoChatV2ForCausalLM(NanoChatV2Config(window_pattern="SSL", num_hidden_layers=4)),
    "nanochat_v2_plain": lambda: NanoChatV2ForCausalLM(NanoChatV2Config(vocab_size=96, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, window_pattern="L", value_embeddings=False, residual_lambdas=False, smear=False, backout=False)),
    "nanochat_v2_values": lambda: NanoChatV2ForCausalLM(NanoChatV2Config(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, short_window=3, window_pattern="SL", smear=False, qk_scale=1.5)),
}
TARGETS = {name: ["q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"] for name in CASES}
