"""Generate text with a small Llama of transformers on the device, and compare the tokens with the CPU's.

    pip install transformers
    TORCH_LOOM_DEVICE_NAME=rbln python examples/rbln/llama_generate.py

The model is made from its configuration, with random weights: nothing is downloaded.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
)
model = LlamaForCausalLM(config).half().eval()
prompt = torch.randint(0, config.vocab_size, (1, 8))


def generate(device: str) -> torch.Tensor:
    """Return prompt and continuation, chosen greedily, on the cpu."""
    on_device = model.to(device)
    inputs = prompt.to(device)
    tokens = on_device.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=16, do_sample=False, pad_token_id=0
    )
    return tokens.cpu()


expected = generate("cpu")
tokens = generate("rbln")
print("prompt:   ", prompt[0].tolist())
print("generated:", tokens[0, prompt.shape[1] :].tolist())
print("same tokens as the cpu:", torch.equal(tokens, expected))
print(f"peak device memory: {torch.rbln.max_memory_allocated() / 2**20:.1f} MiB")
