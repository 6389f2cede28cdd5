from torch.utils import collect_env

info = collect_env.get_env_info()
assert info.is_cuda_available == "True" and info.cuda_compiled_version == "13.0", info
assert "CUDA used to build PyTorch: 13.0" in collect_env.pretty_str(info)
