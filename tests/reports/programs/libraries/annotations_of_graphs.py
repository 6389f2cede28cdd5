from torch.cuda._graph_annotations import _is_tools_id_unavailable

assert isinstance(_is_tools_id_unavailable(), bool)
