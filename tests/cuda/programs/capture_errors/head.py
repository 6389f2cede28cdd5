import warnings

import torch

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
PREVIOUS = "CUDA error: operation failed due to a previous error during capture"


def captured(body, **options):
    graph = torch.cuda.CUDAGraph()
    try:
        with warnings.catch_warnings(), torch.cuda.graph(graph, **options):
            warnings.simplefilter("ignore")
            body()
    except Exception as error:
        return graph, error
    return graph, None


def first_line(error):
    return str(error).splitlines()[0]
