import torch

from tests.torch.programs.mirror_driver.train import losses

properties = torch.loom.get_device_properties(0)
assert (properties.driver, properties.engine) == ("mirror", "cpu")
assert not torch.loom.can_device_access_peer(0, 1)
expected = losses("cpu")
assert losses("loom") == expected
side = torch.loom.Stream()
with torch.loom.stream(side):
    assert losses("loom:0") == expected
