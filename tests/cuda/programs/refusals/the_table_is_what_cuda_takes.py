import warnings
from itertools import islice

from torch.testing._internal.common_methods_invocations import op_db

from tests.cuda.test_refusals import OPEN

warnings.simplefilter("ignore")


def is_refused(op, dtype, most=None):
    for sample in islice(op.sample_inputs("cuda", dtype), most):
        try:
            op(sample.input, *sample.args, **sample.kwargs)
        except NotImplementedError as error:
            assert "_cpu" not in str(error), (op.full_name, error)
            return True
    return False


wrong, seen = [], 0
for op in op_db:
    lacking = op.dtypes - op.dtypesIfCUDA
    if not lacking or op.full_name.partition(".inf")[0] in OPEN:
        continue
    seen += 1
    wrong += [(op.full_name, dtype) for dtype in lacking if not is_refused(op, dtype)]
    both = op.dtypes & op.dtypesIfCUDA
    wrong += [(op.full_name, dtype, "refused") for dtype in both if is_refused(op, dtype, most=10)]
assert seen > 30, seen
assert not wrong, wrong
