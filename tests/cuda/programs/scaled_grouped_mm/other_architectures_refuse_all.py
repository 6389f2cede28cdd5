from tests.cuda.programs.scaled_grouped_mm.fails import fails

fails("torch._scaled_grouped_mm is only supported on CUDA devices with compute capability = [9.0, 10.0]")
