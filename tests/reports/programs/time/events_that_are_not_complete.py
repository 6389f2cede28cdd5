import torch

from tests.gate import installed

start, end, unrecorded = (torch.cuda.Event(enable_timing=True) for _ in range(3))
untimed, side = torch.cuda.Event(), torch.cuda.Stream()
with installed() as gate:
    start.record(side)
    gate.hold(side)
    end.record(side)
    untimed.record(side)
    assert start.query() and not end.query()
    for event, text in (
        (end, "Both events must be completed before calculating elapsed time."),
        (unrecorded, "Both events must be recorded before calculating elapsed time."),
        (untimed, "Both events must be created with argument 'enable_timing=True'."),
    ):
        try:
            start.elapsed_time(event)
        except (RuntimeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
    gate.open()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0
