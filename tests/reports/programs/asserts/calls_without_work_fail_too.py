import torch

from tests.reports.programs.asserts.broken import asserts

asserts(torch.cuda.synchronize)
asserts(torch.cuda.empty_cache)
asserts(torch.cuda.mem_get_info)
asserts(torch.accelerator.empty_cache)
