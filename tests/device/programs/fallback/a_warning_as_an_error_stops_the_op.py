import warnings

from tests.device.programs.fallback.prelude import half, stats
from tests.raising import raises

warnings.simplefilter("error")
x = half(4)
raises("FallbackWarning", "aten::exp_", lambda: x.exp_())
assert x.cpu().tolist() == [0.0] * 4 and stats() == {}
